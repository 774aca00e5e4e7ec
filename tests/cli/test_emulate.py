"""`edt emulate`: a script under sizes that change, once for each rule. One is real, of a job that was resized."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edt_cli import emulate
from edt_emulate import display
from edt_emulate.outcome import Curve, metric_of, outcome, smooth
from edt_runner.lr_scaling.emulation import Point, Record
from edt_runner.schedule import Schedule
from support.nursery import RUNNERS, TESTS, Nursery
from support.training import Elastic, script, spec_for
from support.typed import Done, edt

MAIN = script("emulated")
BATCH, REFERENCE, LEARNING_RATE, EPOCHS, SAMPLES = 4, 8, 0.05, 3, 90
SEED, THREADS = 7, 1


LONG = """
import os, pathlib, time
from edt_runner.lr_scaling import emulation
from edt_runner.lr_scaling.emulation import Recorder
from edt_runner.schedule import Schedule

pathlib.Path("pid").write_text(str(os.getpid()))
schedule = Schedule(train_samples=90, test_samples=0, micro_batches=1, batch_size=4, epochs=1)
shape = {"schedule": schedule.to_json_object(), "batch_size": 4, "reference": 8, "per_engine": False}
Recorder(emulation.current().record, shape)
time.sleep(600)
"""


def typed(folder: Path, *words: object, **environ: str) -> Done:
    given = {name: value for name, value in os.environ.items() if not name.startswith("EDT_")}
    given |= {
        "PYTHONPATH": f"{TESTS}:{RUNNERS}",
        "EDT_CPU_SLOTS": "1",
        "EDT_DEVICES": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        **environ,
    }
    return edt([str(word) for word in ("emulate", *words)], given, folder)


def lines_of(log: Path) -> Iterator[bytes]:
    """As the API gives them: in pieces that end anywhere."""
    text = log.read_bytes()
    yield from (text[start : start + 100] for start in range(0, len(text), 100))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The history of a job of 1, 3, 2 engines, whose batch and learning rate followed them."""
    nursery = Nursery()
    spec = spec_for(tmp_path_factory.mktemp("job"), MAIN, "--scaling", "per_engine", "--rule", "linear")
    try:
        with Elastic(spec, nursery.start) as training:
            for engines in ([1], [1, 2, 3], [2, 3]):
                training.settle(engines)
            end = training.finish()
    finally:
        nursery.close()
    assert end["kind"] == "finished", end
    unit, updates = emulate._updates(lines_of(Path(spec.log_dir) / "stdout"), most=8)
    job = {"id": "edt-12", "attempts": 1, "seed": SEED, "threads": THREADS, "digest": end["digest"]}
    yield {"job": job, "micro_batches_a_step": unit, "updates": updates, "resizes": []}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory, job: dict[str, Any]) -> tuple[Done, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("emulated")
    (folder / "edt-12.json").write_text(json.dumps(job))
    words = ("--rule", "script", "--json", "figures.json", "edt-12.json", MAIN)
    done = typed(folder, *words, "--scaling", "per_engine", "--rule", "linear")
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "figures.json").read_text()), folder


def batches(updates: list[list[int]]) -> list[int]:
    """Samples of each update, counted out by hand."""
    found: list[int] = []
    in_epoch = -(-SAMPLES // BATCH)
    done, total = 0, EPOCHS * in_epoch
    while done < total:
        width = [width for start, width in updates if start <= done][-1]
        taken = min(width, in_epoch - done % in_epoch)
        first = done % in_epoch * BATCH
        found.append(min(first + taken * BATCH, SAMPLES) - first)
        done += taken
    return found


def run_of(figures: dict[str, Any], name: str) -> dict[str, Any]:
    return next(run for run in figures["runs"] if run["run"] == name)


def values(figures: dict[str, Any], name: str, curve: str) -> list[float]:
    return list(run_of(figures, name)["curves"][curve]["value"])


@pytest.mark.extended
class TestEmulation:
    def test_the_log_of_a_resized_job_tells_the_size_of_every_update(self, job):
        assert job["micro_batches_a_step"] == 1
        assert {width for _, width in job["updates"]} >= {1, 2}  # how long there were 3 is for the machine to say
        assert sum(batches(job["updates"])) == EPOCHS * SAMPLES

    def test_the_replay_of_a_job_ends_with_its_bits(self, emulated, job):
        done, figures, _ = emulated
        assert run_of(figures, "script")["digest"] == job["job"]["digest"]
        assert "script ended with edt-12's bits" in done.stderr
        assert run_of(figures, "fixed batch")["digest"] != job["job"]["digest"]

    def test_every_run_has_the_batches_of_the_trace_and_the_fixed_one_those_of_the_script(self, emulated, job):
        _, figures, _ = emulated
        expected = batches(job["updates"])
        assert values(figures, "script", "batch") == expected
        assert run_of(figures, "script")["updates"] == len(expected)
        assert run_of(figures, "script")["mean_batch"] == pytest.approx(EPOCHS * SAMPLES / len(expected))
        assert values(figures, "fixed batch", "batch") == batches([[0, REFERENCE // BATCH]])

    def test_the_learning_rate_follows_the_rule(self, emulated, job):
        _, figures, _ = emulated
        linear = [LEARNING_RATE * batch / REFERENCE for batch in batches(job["updates"])]
        assert values(figures, "script", "learning_rate") == pytest.approx(linear)
        updates = run_of(figures, "fixed batch")["updates"]
        assert values(figures, "fixed batch", "learning_rate") == pytest.approx([LEARNING_RATE] * updates)

    def test_the_table_tells_what_elasticity_did(self, emulated):
        done, figures, _ = emulated
        head, *rows = done.stdout.strip().splitlines()
        assert "TEST ACCURACY" in head and "ACCURACY VS fixed batch" in head
        assert [row.split("  ")[0] for row in rows] == ["fixed batch", "script"]
        difference = (
            run_of(figures, "script")["final"]["accuracy"] - run_of(figures, "fixed batch")["final"]["accuracy"]
        )
        assert f"{difference:+.4f}" in rows[1]
        assert figures["metric"] == "accuracy" and figures["reference_batch"] == REFERENCE

    def test_the_picture_is_drawn(self, emulated):
        done, _, folder = emulated
        assert "picture: emulation.png" in done.stderr
        png = (folder / "emulation.png").read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) > 20_000

    def test_nothing_else_is_left(self, emulated):
        assert {path.name for path in emulated[2].iterdir()} == {"edt-12.json", "figures.json", "emulation.png"}


class TestWrongUse:
    def test_sizes_that_the_script_cannot_have_end_it_as_soon_as_it_has_said_its_own(self, tmp_path):
        (tmp_path / "trace.csv").write_text("step,batchsize\n0,8\n1,10\n")
        (tmp_path / "main.py").write_text(LONG)
        done = typed(tmp_path, "trace.csv", "main.py")
        assert done.returncode == 2
        assert "trace.csv: trace: got 10 at step 1, takes a multiple of 4, the script's batch_size" in done.stderr
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("trace.csv",), "name a TRACE and a script"),
            (("--save-history", "h.json", "trace.csv", MAIN), "name a job"),
            (("--rule", "lineal", "trace.csv", MAIN), "got 'lineal', takes one of adam-sqrt"),
            (("trace.csv", "none.py"), "script: got none.py"),
            (("none.csv", MAIN), "TRACE: got none.csv, takes a file that can be read"),
        ],
    )
    def test_it_says_what_it_takes(self, tmp_path, words, message):
        (tmp_path / "trace.csv").write_text("step,batchsize\n0,8\n")
        done = typed(tmp_path, *words)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())

    def test_a_script_that_fails_shows_what_it_said_last(self, tmp_path):
        (tmp_path / "trace.csv").write_text("step,batchsize\n0,8\n")
        (tmp_path / "main.py").write_text("raise ValueError('no such luck')\n")
        done = typed(tmp_path, "trace.csv", "main.py")
        assert done.returncode == 1
        assert "ended with status 1" in done.stderr and "ValueError: no such luck" in done.stderr
        (tmp_path / "main.py").write_text("print('nothing to do')\n")
        done = typed(tmp_path, "trace.csv", "main.py")
        assert done.returncode == 1
        assert "without having trained" in done.stderr and "nothing to do" in done.stderr


def recorded() -> Record:
    """Two epochs of 10 samples in micro-batches of 4; means over the epoch so far, as engines tell them."""
    schedule = Schedule(train_samples=10, test_samples=0, micro_batches=1, batch_size=4, epochs=2).to_json_object()
    record = Record({"schedule": schedule, "batch_size": 4, "reference": 4, "per_engine": False}, digest="ab")
    means = [(2, 1, 4.0), (3, 1, 4.4), (4, 2, 1.0), (6, 2, 2.2)]
    record.updates = [Point(step, epoch, {"loss": mean, "top5": mean, "batch": 8.0}) for step, epoch, mean in means]
    return record


class TestFigures:
    def test_each_update_has_its_own_loss(self):
        found = outcome("x", recorded(), None)
        assert found.curves["loss"].value == pytest.approx((4.0, 6.0, 1.0, 3.0))
        assert found.curves["loss"].step == (2, 3, 4, 6)
        assert found.loss == 2.2  # the mean over the last epoch

    def test_without_an_accuracy_the_first_metric_is_compared(self):
        assert metric_of(recorded()) == "top5"
        record = recorded()
        record.validations = [Point(6, 2, {"loss": 1.0, "mse": 2.0, "val_acc": 0.5})]
        assert metric_of(record) == "val_acc"

    def test_a_training_that_diverged_is_said_to_have(self, capsys):
        record = recorded()
        record.updates[-1] = Point(6, 2, {"loss": float("nan")})
        display.show_table(
            [outcome("a", recorded(), None), outcome("b", record, None)], {"c": "why"}, None, tested=False
        )
        out = capsys.readouterr().out
        assert "diverged" in out and "failed" in out and "LOSS VS a" in out

    def test_smoothing_weighs_updates_by_their_micro_batches(self):
        curve = Curve((1, 2, 6, 7), (1.0, 1.0, 4.0, 1.0))
        assert smooth(curve, 0.0) == [1.0, 1.0, 4.0, 1.0]
        assert smooth(curve, 2.0) == [1.0, 1.0, 17 / 5, 17 / 5]
        assert smooth(curve, 100.0) == [19 / 7] * 4

    def test_smoothing_leaves_out_what_is_not_a_number(self):
        curve = Curve((1, 2, 3, 9), (1.0, math.nan, 3.0, 5.0))
        assert smooth(curve, 2.0) == [1.0, 2.0, 3.0, 5.0]
        assert [math.isnan(mean) for mean in smooth(curve, 0.0)] == [False, True, False, False]


class TestLog:
    def test_a_log_whose_beginning_is_gone_begins_later(self):
        lines = b"".join(
            b"[x] Train,\tTimestamp: 1,\tGlobal steps: %d,\tIteration: %d,\tLoss: 1\n" % (n, n) for n in (90, 92)
        )
        assert emulate._updates([lines], most=4) == (1, [[90, 2]])

    def test_a_fixed_batch_is_seen_by_its_iterations(self):
        lines = b"".join(b"Train,\tGlobal steps: %d,\tIteration: %d,\tLoss: 1\n" % (n, 4 * n) for n in (1, 2, 3))
        assert emulate._updates([lines[:50], lines[50:]], most=4) == (4, [[0, 1]])


def test_matplotlib_is_imported_to_draw_and_for_nothing_else():
    """So that where it is missing all else is there."""
    code = (
        "import sys, edt_emulate.__main__;"
        "sys.exit(any(name.split('.')[0] in ('matplotlib', 'torch') for name in sys.modules))"
    )
    environ = {**os.environ, "PYTHONPATH": str(RUNNERS)}
    assert subprocess.run([sys.executable, "-c", code], env=environ, check=False).returncode == 0


@pytest.mark.extended
@pytest.mark.timeout(600)  # each training is a process of its own, on a machine that may do other things besides
def test_the_readmes_example_is_typed_as_it_stands_there_and_the_batch_and_the_rate_follow_the_trace(
    tmp_path: Path,
) -> None:
    """With one rule instead of all four, and for one epoch."""
    repository = RUNNERS.parent
    [line] = [each for each in (repository / "README.md").read_text().splitlines() if "edt emulate --trace-end" in each]
    command, *words = shlex.split(line)
    assert [command, words[0]] == ["edt", "emulate"]
    (tmp_path / "examples").symlink_to(repository / "examples")
    done = typed(tmp_path, *words[1:3], "--rule", "linear", "--json", "figures.json", *words[3:], "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "emulation.png").stat().st_size > 0
    fixed, linear = json.loads((tmp_path / "figures.json").read_text())["runs"]
    assert [fixed["run"], linear["run"]] == ["fixed batch", "linear"]
    trained = {each["run"]: round(each["updates"] * each["mean_batch"]) for each in (fixed, linear)}
    assert trained["fixed batch"] == trained["linear"], "each sample once in the epoch"
    assert linear["updates"] < fixed["updates"], "the trace has larger batches"
    assert "0.0001 – 0.0004" in done.stdout, "the learning rate follows the batch, up to four times as large"
