"""The files of TensorBoard beside the results, read as TensorBoard reads them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from edt_runner.course import Speed
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule
from edt_runner.tensorboard_files import TensorBoardFiles
from support.small_disk import small_disk

SCHEDULE = Schedule(train_samples=640, test_samples=64, micro_batches=4, batch_size=16, epochs=100)
"""Ten training steps of 64 samples, then a validation."""


def train(step: int, time: float, **values: float) -> MetricItem:
    return MetricItem("train", step, step * 4, 1 + (step - 1) // 10, 2, {"loss": 1 / step, **values}, time)


def validation(step: int, time: float, **values: float) -> MetricItem:
    return MetricItem("validate", step, step * 4, step // 10, 2, {"loss": 2 / step, **values}, time)


def written(folder: Path, *items: MetricItem, attempt: int = 1, closed: bool = True) -> list[str]:
    """Write items as one driver does; returns the notes for the user."""
    notes: list[str] = []
    files = TensorBoardFiles(str(folder), attempt, Speed(SCHEDULE), notes.append)
    for item in items:
        files.take(item, dict(item.metrics))  # type: ignore[arg-type]
    if closed:
        files.close()
    return notes


def points(folder: Path, run: str, tag: str = "loss") -> list[tuple[int, float]]:
    """Steps and values of a tag, as TensorBoard shows them."""
    events = EventAccumulator(str(folder / "tensorboard" / run), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, round(event.value, 5)) for event in events.Scalars(tag)] if tag in tags(folder, run) else []


def tags(folder: Path, run: str) -> set[str]:
    events = EventAccumulator(str(folder / "tensorboard" / run))
    events.Reload()
    return set(events.Tags()["scalars"])


def test_training_and_validation_are_two_runs_with_the_same_tags(tmp_path: Path) -> None:
    steps = [train(step, 1000.0 + step, accuracy=step / 20, learning_rate=0.1) for step in range(1, 11)]
    written(tmp_path, *steps, validation(10, 1012.0, accuracy=0.25), train(11, 1013.0, accuracy=0.5))
    assert tags(tmp_path, "validation") == {"loss", "accuracy"}
    assert tags(tmp_path, "train") == {"loss", "accuracy", "learning_rate", "workers", "samples_per_second"}
    assert points(tmp_path, "train") == [(step, round(1 / step, 5)) for step in range(1, 12)]
    assert points(tmp_path, "validation", "accuracy") == [(10, 0.25)]
    assert set(points(tmp_path, "train", "samples_per_second")) == {(step, 64.0) for step in range(2, 12)}
    assert points(tmp_path, "train", "workers")[0] == (1, 2.0)


def test_short_steps_have_a_point_each_half_second_and_the_last_before_a_validation_and_the_end(tmp_path: Path) -> None:
    steps = [train(step, 1000.0 + step * 0.01) for step in range(1, 1001)]
    written(tmp_path, *steps[:730], validation(730, 1007.3), *steps[730:])
    shown = [step for step, _ in points(tmp_path, "train")]
    assert shown[:3] == [1, 51, 101] and {730, 1000} <= set(shown)
    assert len(shown) <= 1000 / 50 + 3


def test_a_training_of_days_leaves_files_of_some_megabytes(tmp_path: Path) -> None:
    """A step of a second, for two days: the later, the rarer."""
    items = [train(step, 1000.0 + step, accuracy=0.5, learning_rate=0.1) for step in range(1, 172_801)]
    written(tmp_path, *items)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*tfevents*"))
    assert 1e6 < size < 10e6


def test_a_training_that_goes_on_shows_each_step_once(tmp_path: Path) -> None:
    first = [train(step, 1000.0 + step) for step in range(1, 16)]
    written(tmp_path, *first[:10], validation(10, 1010.5), *first[10:], closed=False)  # killed
    written(tmp_path, *(train(step, 1100.0 + step) for step in range(14, 21)), validation(20, 1121.0), attempt=2)
    assert [step for step, _ in points(tmp_path, "train")] == list(range(1, 21))
    assert [step for step, _ in points(tmp_path, "validation")] == [10, 20]


def test_a_driver_that_goes_on_with_a_validation_keeps_the_step_before_it(tmp_path: Path) -> None:
    written(tmp_path, *(train(step, 1000.0 + step) for step in range(1, 11)), closed=False)
    written(tmp_path, validation(10, 1011.0), train(11, 1012.0))
    assert [step for step, _ in points(tmp_path, "train")] == list(range(1, 12))


def test_another_training_in_the_same_folder_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    written(tmp_path, *(train(step, 1000.0 + step) for step in range(1, 21)), validation(3, 1030.0))
    written(tmp_path, *(train(step, 2000.0 + step) for step in range(1, 6)), attempt=2)
    assert [step for step, _ in points(tmp_path, "train")] == [1, 2, 3, 4, 5]
    assert points(tmp_path, "validation") == []


@pytest.mark.tmpfs_mount
def test_on_a_full_disk_points_wait_and_the_files_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "small", 1 << 17) as disk:
        files = TensorBoardFiles(str(disk.folder), 1, Speed(SCHEDULE), print)
        files.take(train(1, 1001.0), {"loss": 1.0})
        disk.fill()
        for step in range(2, 10_000):
            files.take(train(step, 1000.0 + step), {"loss": 1.0, **{f"metric {number}": 0.5 for number in range(9)}})
        assert "tfevents" in capsys.readouterr().err
        disk.make_room()
        files.close()
        shown = [step for step, _ in points(disk.folder, "train")]
    assert shown[0] == 1 and shown == sorted(set(shown)), "no record is torn"


def test_where_the_package_is_missing_one_note_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    notes = written(tmp_path, train(1, 1001.0), train(2, 1002.0), validation(2, 1003.0))
    assert len(notes) == 1 and "openedt[tensorboard]" in notes[0]
    assert not (tmp_path / "tensorboard").exists()


def test_writing_imports_no_tensorflow_and_takes_no_second() -> None:
    program = """
import json, sys, tempfile, time
from edt_runner.course import Speed
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule
from edt_runner.tensorboard_files import TensorBoardFiles

files = TensorBoardFiles(tempfile.mkdtemp(), 1, Speed(Schedule(64, 0, 1, 16, 1)), print)
began = time.process_time()
files.take(MetricItem("train", 1, 1, 1, 1, {"loss": 1.0}, 1000.0), {"loss": 1.0})
print(json.dumps([time.process_time() - began, "tensorflow" in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(importlib.import_module("edt_runner").__file__).parents[1])},  # type: ignore[arg-type]
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, imported = json.loads(done.stdout)
    assert not imported and seconds < 1.0
