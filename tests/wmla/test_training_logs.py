"""What a training writes for WMLA's tools: the rows of the default log, lines on standard output, two files of metrics.

The log is read as WMLA's notebooks read it: every colon becomes a comma, then columns 4, 6, 8, 10, 12 of a CSV.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from edt_cli import follow
from edt_runner import evaluation_metrics
from edt_runner.driver_log import DriverLog
from edt_runner.loggers import ELog, accuracy
from edt_runner.lr_scaling.update import DETAILS
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule, Widths
from edt_runner.step_lines import DriverLines, EngineLines
from edt_runner.validation_history import ValidationHistory
from support.nursery import Nursery
from support.training import Elastic, spec_for

E = 4
SCHEDULE = Schedule(train_samples=48, test_samples=16, micro_batches=E, batch_size=4, epochs=2)
"""Three training steps, then a validation, twice."""
COLUMNS = {"Global steps": 4, "Iteration": 6, "Loss": 8, "Accuracy": 10}
"""Where a notebook finds the values, counted after the colons of the time have become commas, too."""


def as_notebook(log: str) -> pd.DataFrame:
    """The log, as the notebooks read it."""
    return pd.read_csv(io.StringIO(log.replace(":", ",")), header=None, sep=",", engine="python")


def train_item(step: int, **metrics: float) -> MetricItem:
    return MetricItem("train", step, step * E, 1 + (step - 1) // 3, 2, {"loss": 1 / step, **metrics}, 1000.0 + step)


def test_item(step: int, **metrics: float | None) -> MetricItem:
    return MetricItem("validate", step, step * E, step // 3, 2, {"loss": 2 / step, **metrics}, 1000.0 + step)


test_item.__test__ = False  # type: ignore[attr-defined]


class Job:
    """A job's folder, and its drivers one after the other."""

    def __init__(self, folder: Path, *, rule: bool = False, logger: Any = None) -> None:
        self.folder, self._rule, self._logger = folder, rule, logger
        self.printed: list[str] = []

    def driver(self) -> DriverLog:
        """The log of another driver, which has begun."""
        rule = "linear" if self._rule else None
        request = SimpleNamespace(driver_logger=self._logger, lr_rule=rule, batch_size=SCHEDULE.batch_size)
        training = SimpleNamespace(request=request, schedule=SCHEDULE, widths=Widths(((0, E),)))
        spec = SimpleNamespace(log_dir=str(self.folder / "log"), result_dir=str(self.folder), fence=1)
        lines = DriverLines(write=self.printed.append)
        log = DriverLog(cast(Any, training), cast(Any, spec), lambda item, metrics: None, lines)
        log.begin()
        return log

    @property
    def elog(self) -> str:
        return (self.folder / "log/stdout").read_text()

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Kind and step of each row."""
        return [
            (line.split("] ")[1].split(",")[0], int(line.split("Global steps: ")[1].split(",")[0]))
            for line in self.elog.splitlines()
        ]

    @property
    def validations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "val_dict_list.json").read_text())
        return found

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "log/evaluation-metrics.txt").read_text().splitlines()]


WHOLE = [("Train", 1), ("Train", 2), ("Train", 3), ("Test", 3), ("Train", 4), ("Train", 5), ("Train", 6), ("Test", 6)]
ITEMS = [
    train_item(step, accuracy=step / 10) if kind == "Train" else test_item(step, accuracy=step / 20)
    for kind, step in WHOLE
]


@pytest.mark.parametrize("rule", [False, True])
@pytest.mark.parametrize("metrics", [{}, {"accuracy": 0.25}, {"sparse_top_k": 0.5, "sparse_acc": 0.75}, {"mae": 3.0}])
def test_every_row_of_the_log_has_all_columns_whatever_the_model_measures(
    tmp_path: Path, rule: bool, metrics: dict[str, float]
) -> None:
    job = Job(tmp_path, rule=rule)
    log = job.driver()
    known_later = {"batch": 16.0, "learning_rate": 0.1} if rule else {}
    for number, (kind, step) in enumerate(WHOLE):
        details = {**known_later, "gradient_noise_scale": 2.5} if rule and number > 1 else known_later
        item = train_item(step, **metrics, **details) if kind == "Train" else test_item(step, **metrics)
        log.take([item])
    log.close()
    table = as_notebook(job.elog)
    assert table.shape == (8, 13 + 2 * len(DETAILS) * rule)
    assert not table.isna().any().any()
    assert job.rows == WHOLE
    for name, column in COLUMNS.items():
        assert list(table[column + 1].str.strip().unique()) == [name]
    assert list(table[6]) == [step for _, step in WHOLE] and list(table[8]) == [4 * step for _, step in WHOLE]
    assert list(table[12]) == [accuracy({"loss": 1.0, **metrics})] * 8


def test_the_accuracy_is_the_metric_of_that_name_else_the_first_one_else_zero() -> None:
    assert accuracy({"loss": 9.0, "batch": 16.0}) == 0.0
    assert accuracy({"loss": 9.0, "f1": 0.5, "top1_accuracy": 0.25}) == 0.25
    assert accuracy({"loss": 9.0, "f1": 0.5}) == 0.5


@pytest.mark.parametrize("done", range(len(ITEMS) + 1))
def test_a_driver_that_is_started_again_leaves_no_hole_and_repeats_nothing(tmp_path: Path, done: int) -> None:
    """The engines send all again that the first driver has not acknowledged: from two items before its end on."""
    job = Job(tmp_path)
    first = job.driver()
    first.take(ITEMS[:done])  # this driver is killed
    for file in (first._logger._log, first._logger._records):  # type: ignore[union-attr]
        if file is not None:
            file.close()
    second = job.driver()
    second.take(ITEMS[max(0, done - 2) :])
    second.finished()
    second.close()
    assert "completed 24 iterations" in job.printed[-1] and "completed epoch 2 " in job.printed[-1]
    assert job.rows == WHOLE
    assert [entry["steps"] for entry in job.validations] == [3, 6]
    tests = [int(found["etimes"]["iteration"]["value"]) for found in job.records if found["grouplabel"] == "test"]
    assert tests == [12, 24]


def test_an_attempt_that_goes_on_from_a_checkpoint_adds_only_what_is_new(tmp_path: Path) -> None:
    job = Job(tmp_path)
    first = job.driver()
    first.take(ITEMS[:6])
    first.close()
    second = job.driver()
    second.take(ITEMS[1:])  # its checkpoint was of step 1
    second.close()
    assert job.rows == WHOLE
    assert job.validations == [
        {"steps": 3, "loss": pytest.approx(2 / 3), "accuracy": 0.15},
        {"steps": 6, "loss": pytest.approx(1 / 3), "accuracy": 0.3},
    ]


def test_a_log_that_an_older_release_began_goes_on(tmp_path: Path) -> None:
    """Its rows of validations have neither steps nor iterations."""
    job = Job(tmp_path)
    (tmp_path / "log").mkdir()
    old = "[2026-11-01 10:00:00] {}Loss: 0.5,\tAccuracy: 0.0\n"
    train = "".join(
        old.format(f"Train,\tTimestamp: 1,\tGlobal steps: {step},\tIteration: {4 * step},\t") for step in (1, 2, 3)
    )
    (tmp_path / "log/stdout").write_text(train + old.format("Test,\tTimestamp: 1,\t"))
    log = job.driver()
    log.take(ITEMS[2:])
    log.close()
    added = job.elog.splitlines()[4:]
    assert ["Test" in line for line in added] == [False, False, False, True]


def test_another_training_in_the_same_folder_begins_its_list_of_validations_anew(tmp_path: Path) -> None:
    job = Job(tmp_path)
    (tmp_path / "val_dict_list.json").write_text('[{"steps": 1, "loss": 9.0}]')
    log = job.driver()
    log.take(ITEMS[:4])
    log.close()
    assert [entry["steps"] for entry in job.validations] == [3]


def test_a_list_of_validations_that_the_script_writes_itself_is_left_to_it(tmp_path: Path) -> None:
    history = ValidationHistory(str(tmp_path))
    history.add(3, {"loss": 0.5})
    (tmp_path / "val_dict_list.json").write_text('[{"steps": 1, "score": 1}]')
    history.add(6, {"loss": 0.25})
    assert json.loads((tmp_path / "val_dict_list.json").read_text()) == [{"steps": 1, "score": 1}]


def test_a_loss_that_is_no_number_is_null_in_the_list_and_nan_in_rows_and_lines(tmp_path: Path) -> None:
    job = Job(tmp_path)
    log = job.driver()
    log.take([*ITEMS[:3], test_item(3, accuracy=None)])
    log.close()
    assert job.validations[0]["accuracy"] is None
    assert job.elog.splitlines()[-1].endswith("Accuracy: nan")
    assert "Iteration 12: tag test_accuracy, simple_value nan" in "".join(job.printed)


def test_a_logger_of_the_user_replaces_the_log_but_neither_lines_nor_the_list(tmp_path: Path) -> None:
    calls: list[str] = []
    logger = SimpleNamespace(
        on_train_begin=lambda: calls.append("begin"),
        on_train_end=lambda: calls.append("end"),
        log_train_metrics=lambda *given: calls.append("train"),
        log_test_metrics=lambda *given: calls.append("test"),
    )
    job = Job(tmp_path, logger=logger)
    log = job.driver()
    log.take(ITEMS[:4])
    log.close()
    assert calls == ["begin", "train", "train", "train", "test", "end"]
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["training.log"]
    assert [entry["steps"] for entry in job.validations] == [3]
    assert "".join(job.printed).count("tag train_loss") == 3


def test_the_driver_prints_four_lines_for_each_step_between_start_and_end(tmp_path: Path) -> None:
    job = Job(tmp_path)
    log = job.driver()
    log.take(ITEMS)
    log.finished()
    log.close()
    assert len(job.printed) == 3, "what arrives together is written at once"
    lines = "".join(job.printed).splitlines()
    assert lines[0] == "--------START TRAINING--------"
    assert lines[1:5] == [
        "Timestamp 1001000, Iteration 4",
        "batches :4 1.0",
        "Iteration 4: tag train_accuracy, simple_value 0.1",
        "Iteration 4: tag train_loss, simple_value 1.0",
    ]
    assert lines[13:15] == [
        "Iteration 12: tag test_accuracy, simple_value 0.15",
        "Iteration 12: tag test_loss, simple_value 0.66667",
    ]
    assert len(lines) == 1 + 6 * 4 + 2 * 2 + 2
    assert lines[-2] == "--------END TRAINING: completed 24 iterations --------"
    assert lines[-1].startswith("--------END TRAINING: completed epoch 2 in time ")
    assert lines[-1].endswith(" --------") and float(lines[-1].split()[-2]) >= 0


def test_an_engine_of_very_fast_steps_writes_about_some_of_them_and_always_about_its_last() -> None:
    now, printed, computed = [0.0], list[str](), list[int]()

    def values(step: int) -> dict[str, float]:
        computed.append(step)
        return {"loss": 1.0 / step, "accuracy": 0.5}

    lines = EngineLines(clock=lambda: now[0], write=printed.append)
    lines.begin()
    for step in range(1, 101):
        lines.committed(2, step * 4, 0, lambda step=step: values(step), (4096, 4))  # type: ignore[misc]
        now[0] += 0.001
    lines.end()
    assert computed == [1, 21, 41, 61, 81, 100], "one step in 20 ms, and the last"
    assert printed[1].splitlines()[1:] == [
        "batches :2 1.0",
        "Iteration 4: tag train_accuracy, simple_value 0.5",
        "Iteration 4: tag train_loss, simple_value 1.0",
        "allreduce size of data: 4096",
        "allreduce: syncInterval = 4 reduce Alpha = 0.25",
    ]
    assert "Iteration 400: tag train_loss, simple_value 0.01" in printed[-2]
    assert printed[-1].startswith("--------END TRAINING: completed 200 iterations --------\n")


def test_evaluation_metrics_are_thinned_but_hold_every_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_ID", "edt-7")
    now = [1000.0]
    log = ELog(str(tmp_path), E, clock=lambda: now[0])
    log.on_train_begin()
    for step in range(1, 101):
        log.log_train_metrics({"loss": 0.5, "accuracy": 0.25}, step * E, 1, 2)
        now[0] += 0.1
    log.log_test_metrics({"loss": 0.75, "accuracy": 0.5}, 0, 1)
    log.on_train_end()
    lines = [json.loads(line) for line in (tmp_path / evaluation_metrics.FILE_NAME).read_text().splitlines()]
    train = [int(line["etimes"]["iteration"]["value"]) for line in lines if line["grouplabel"] == "train"]
    assert 18 <= len(train) <= 22 and train[0] == E and train[-1] == 100 * E
    assert lines[-1]["grouplabel"] == "test" and lines[-1]["meta"]["training_id"] == "edt-7"
    assert lines[-1]["values"] == {"loss": {"type": 3, "value": "0.75"}, "accuracy": {"type": 3, "value": "0.5"}}


def test_the_lines_of_a_step_cost_next_to_nothing() -> None:
    """A step of 1 ms is to lose less than one percent to them, also on a machine that is ten times busier than this."""
    lines = EngineLines(write=lambda text: None)
    began = time.process_time()
    for step in range(10_000):
        lines.committed(2, step, 0, lambda: {"loss": 0.5, "accuracy": 0.25}, (4096, 4))
    assert (time.process_time() - began) / 10_000 < 100e-6


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_who_follows_a_job_sees_what_its_script_prints_and_no_line_about_a_step(tmp_path: Path, size: int) -> None:
    """However the output is cut into pieces. What the script prints without a line's end is shown at once."""
    job = Job(tmp_path)
    log = job.driver()
    log.take(ITEMS)
    log.finished()
    log.close()
    output = f"Iteration of mine\n{''.join(job.printed)}Time is up: 3"
    follower = follow.Log(cast(Any, None), "edt-1", ("out",), steps=False)
    pieces = [output[start : start + size].encode() for start in range(0, len(output), size)]
    shown = b"".join(follower._without_steps("out", piece) for piece in pieces).decode().splitlines()
    assert shown == [
        "Iteration of mine",
        "--------START TRAINING--------",
        *(line for line in output.splitlines() if "END TRAINING" in line),
        "Time is up: 3",
    ]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.lane("processes")
def test_a_training_leaves_logs_files_and_folders_in_the_forms_that_are_known(nursery: Nursery, tmp_path: Path) -> None:
    spec = spec_for(tmp_path / "job", "conv", environ={"TRAINING_ID": "edt-1"})
    with Elastic(spec, cast(Callable[..., Any], nursery.start)) as training:
        training.settle([1])
        training.settle([1, 2])
        assert training.finish()["kind"] == "finished"
    folder = Path(spec.result_dir)
    table = as_notebook((folder / "log/stdout").read_text())
    assert table.shape == (32, 13) and not table.isna().any().any()  # 2 epochs of 15 steps and a validation
    assert [entry["steps"] for entry in json.loads((folder / "val_dict_list.json").read_text())] == [15, 30]
    told = [line[10:] for line in (folder / "log/training.log").read_text().splitlines()]
    assert told[1] == "started: 2 epochs, 30 steps of 16 samples · attempt 1"
    assert sum(line.startswith("1 → 2 workers at step ") for line in told) == 1
    validated = [line for line in told if " · val_loss " in line]
    assert [line.split(" · ")[:2] for line in validated] == [["epoch 1/2", "step 15/30"], ["epoch 2/2", "step 30/30"]]
    assert "val_accuracy" in validated[0] and validated[1].endswith("2 workers")
    assert told[-2].startswith("note: All engines' replicas were compared ")
    assert told[-1].startswith("done: 2 epochs, 30 steps in ")
    for run, steps in (("train", 30), ("validation", 30)):
        events = EventAccumulator(str(folder / "tensorboard" / run)).Reload()
        assert {"loss", "accuracy"} <= set(events.Tags()["scalars"]) and events.Scalars("loss")[-1].step == steps
    models = {path.name for path in (folder / "model/train").iterdir()}
    assert models >= {f"model_epoch_{epoch}{kind}.pth" for epoch in (1, "final") for kind in ("", "_optimizer_state")}
    driver = (folder / "log/driver.out").read_text().splitlines()
    assert driver[:2] == ["Using pytorch backend.", "--------START TRAINING--------"]
    assert sum("tag train_loss" in line for line in driver) == 30
    assert sum("tag test_accuracy" in line for line in driver) == 2
    assert driver[-3] == "--------END TRAINING: completed 120 iterations --------"
    assert driver[-2].startswith("--------END TRAINING: completed epoch 2 in time ")
    assert driver[-1] == "the code behind train() runs once"
    computed = []
    for engine in (1, 2):
        output = (folder / f"log/engine-{engine}.out").read_text()
        assert output.startswith("Using pytorch backend.\n--------START TRAINING--------\nTimestamp ")
        assert "allreduce: syncInterval = 4 reduce Alpha = 0.25\n" in output
        computed.append(int(output.split("END TRAINING: completed ")[1].split()[0]))
    assert sum(computed) == 120, "each engine counts the micro-batches that it has computed itself"


def test_after_a_thousand_steps_the_driver_prints_one_in_20_ms_and_the_last_before_a_validation_and_the_end() -> None:
    printed: list[str] = []
    lines = DriverLines(write=printed.append)
    for step in range(3000):
        lines.train(100 + step / 1000, step + 1, 0, {"loss": 0.5, "accuracy": 0.5})
        if step == 2500:
            lines.test(step + 1, {"loss": 0.5, "accuracy": 0.5})
    lines.flush()
    lines.end()
    steps = [int(number) for number in re.findall(r"^batches :(\d+) ", "".join(printed), re.MULTILINE)]
    assert steps[:1000] == list(range(1, 1001))
    assert len(steps) <= 1000 + 2000 / 20 + 3
    assert 2501 in steps
    assert steps[-1] == 3000
    assert steps == sorted(set(steps))
    assert "completed 3000 iterations" in printed[-1]
