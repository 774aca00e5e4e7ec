"""The log of a training that people read, ``training.log``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from edt_runner.course import Course, Speed, number, span
from edt_runner.errors import Suspended, TrainingFailed
from edt_runner.protocol.data import MetricItem
from edt_runner.readable_log import ReadableLog
from edt_runner.schedule import Schedule
from support.small_disk import small_disk

SCHEDULE = Schedule(train_samples=640, test_samples=64, micro_batches=4, batch_size=16, epochs=3)
"""Ten training steps of 64 samples, then a validation, three times."""
NO_TEST = Schedule(train_samples=640, test_samples=0, micro_batches=4, batch_size=16, epochs=3)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def train(step: int, seconds: float, workers: int = 2, **values: float) -> MetricItem:
    metrics = {"loss": 1 / step, **values}
    return MetricItem("train", step, step * 4, 1 + (step - 1) // 10, workers, metrics, start() + seconds)


def validation(step: int, seconds: float, workers: int = 2, **values: float) -> MetricItem:
    return MetricItem("validate", step, step * 4, step // 10, workers, {"loss": 2 / step, **values}, start() + seconds)


def start() -> float:
    return time.mktime((2026, 11, 26, 12, 0, 0, 0, 0, -1))


class Driver:
    """A driver's log, whose clock shows the time of the newest item."""

    def __init__(self, folder: Path, schedule: Schedule = SCHEDULE, attempt: int = 1, seconds: float = 0.0) -> None:
        self.now = start() + seconds
        self.log = ReadableLog(str(folder), Course(Speed(schedule)), attempt, clock=lambda: self.now)

    def begin(self, resumed_at: int | None = None) -> Driver:
        self.log.begin(resumed_at)
        return self

    def take(self, *items: MetricItem) -> Driver:
        for item in items:
            self.now = item.time
            self.log.take(
                item, {name: float("nan") if value is None else value for name, value in item.metrics.items()}
            )
        return self


def lines(folder: Path) -> list[str]:
    return (folder / "training.log").read_text().splitlines()


def said(folder: Path) -> list[str]:
    """The lines without their times, and without dates."""
    return [line[10:] for line in lines(folder) if line[2:3] == ":"]


def epoch(number: int, seconds: float = 0.5, workers: int = 2, **values: float) -> Sequence[MetricItem]:
    """The items of an epoch whose steps take so long, and whose validation takes two seconds."""
    began = (number - 1) * (10 * seconds + 2)
    steps = [train(10 * (number - 1) + at, began + at * seconds, workers, **values) for at in range(1, 11)]
    return [*steps, validation(10 * number, began + 10 * seconds + 2, workers, **values)]


def test_a_training_is_told_from_its_begin_to_its_end(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.log.note("num_workers has no effect here")
    driver.begin().take(*epoch(1, accuracy=0.5), *epoch(2, accuracy=0.75), *epoch(3, accuracy=0.9375))
    driver.log.note("All engines' replicas were compared 3 times.")
    driver.log.finished()
    driver.log.close()
    assert lines(tmp_path) == [
        "2026-11-26",
        "12:00:00  started: 3 epochs, 30 steps of 64 samples · attempt 1",
        "12:00:00  note: num_workers has no effect here",
        "12:00:00  epoch 1/3 · step 1/30 · loss 1 · accuracy 0.5 · 2 workers",
        "12:00:07  epoch 1/3 · step 10/30 · loss 0.1 · accuracy 0.5 · val_loss 0.2 · val_accuracy 0.5"
        " · 128/s · 2 workers",
        "12:00:14  epoch 2/3 · step 20/30 · loss 0.05 · accuracy 0.75 · val_loss 0.1 · val_accuracy 0.75"
        " · 128/s · 2 workers",
        "12:00:21  epoch 3/3 · step 30/30 · loss 0.03333 · accuracy 0.9375 · val_loss 0.06667 · val_accuracy 0.9375"
        " · 128/s · 2 workers",
        "12:00:21  note: All engines' replicas were compared 3 times.",
        "12:00:21  done: 3 epochs, 30 steps in 21 s, 128 samples/s on average",
    ]


def test_short_steps_have_a_line_each_five_seconds_and_long_ones_one_each(tmp_path: Path) -> None:
    schedule = Schedule(train_samples=64_000, test_samples=0, micro_batches=4, batch_size=16, epochs=1)
    driver = Driver(tmp_path, schedule).begin()
    driver.take(*(train(step, step * 0.01) for step in range(1, 901)))
    driver.take(*(train(900 + step, 9 + step * 20.0) for step in range(1, 4)))
    steps = [int(line.split("step ")[1].split("/")[0].replace(",", "")) for line in said(tmp_path)[1:]]
    assert steps == [1, 501, 901, 902, 903]


def test_metrics_have_their_own_names_and_details_stand_beside_them(tmp_path: Path) -> None:
    Driver(tmp_path).begin().take(train(1, 1, 1, mae=0.123456, learning_rate=1e-5, loss_scale=65536.0))
    assert said(tmp_path)[1] == (
        "epoch 1/3 · step 1/30 · loss 1 · mae 0.1235 · learning_rate 1e-05 · loss_scale 65,536 · 1 worker"
    )


def test_a_change_of_the_workers_has_a_line_of_its_own(tmp_path: Path) -> None:
    driver = Driver(tmp_path, NO_TEST).begin()
    driver.take(train(1, 1, 1), train(2, 2, 1), train(3, 3, 4), train(4, 4, 4), train(5, 5, 1))
    assert [line for line in said(tmp_path) if "→" in line] == ["1 → 4 workers at step 3", "4 → 1 worker at step 5"]


def test_a_loss_that_is_no_number_is_shown_as_that(tmp_path: Path) -> None:
    Driver(tmp_path).begin().take(MetricItem("train", 1, 4, 1, 1, {"loss": None}, start()))
    assert "loss nan" in said(tmp_path)[1]


def test_an_epoch_without_a_validation_has_a_line_at_its_end(tmp_path: Path) -> None:
    Driver(tmp_path, NO_TEST).begin().take(*(train(step, step * 0.1) for step in range(1, 31)))
    assert ["step 1/" in said(tmp_path)[1], *("step 10/" in line for line in said(tmp_path)[2:])] == [
        True, True, False, False,
    ]  # fmt: skip


def test_epochs_of_a_millisecond_do_not_fill_the_log(tmp_path: Path) -> None:
    schedule = Schedule(train_samples=16, test_samples=0, micro_batches=1, batch_size=16, epochs=5000)
    driver = Driver(tmp_path, schedule).begin()
    for step in range(1, 5001):
        item = MetricItem("train", step, step, step, 1, {"loss": 1.0}, start() + step / 1000)
        driver.take(item)
    driver.log.finished()
    assert 1000 <= len(said(tmp_path)) <= 1010
    assert "step 5000/5000" in said(tmp_path)[-2], "the last one is there in any case"


def test_the_rate_counts_training_alone_and_also_the_steps_of_short_epochs_ends(tmp_path: Path) -> None:
    """The last step of each epoch has 32 samples here, and the average is of samples, not of steps."""
    schedule = Schedule(train_samples=96, test_samples=64, micro_batches=4, batch_size=16, epochs=2)
    speed = Speed(schedule)
    for step, seconds in ((1, 1.0), (2, 2.0), (3, 13.0), (4, 14.0)):  # ten seconds of validation
        if step == 3:
            speed.add(MetricItem("validate", 2, 8, 1, 1, {"loss": 1.0}, 12.0))
        speed.add(MetricItem("train", step, 4 * step, 1 + (step > 2), 1, {"loss": 1.0}, seconds))
    assert speed.average == pytest.approx((32 + 64 + 32) / 3)
    assert speed.left(3) == 32


def test_a_training_that_ends_early_says_where(tmp_path: Path) -> None:
    driver = Driver(tmp_path).begin().take(*epoch(1))
    driver.log.finished()
    assert said(tmp_path)[-1] == "ended early at epoch 1 of 3: 10 of 30 steps in 7.0 s, 128 samples/s on average"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Suspended(), "suspended after step 4 of 30: all engines have left; it goes on from its checkpoint"),
        (TrainingFailed("ValueError: no\nsuch sample"), "failed after step 4 of 30: ValueError: no"),
    ],
)
def test_a_training_that_does_not_come_to_its_end_says_why_after_its_newest_step(
    tmp_path: Path, error: Exception, words: str
) -> None:
    driver = Driver(tmp_path).begin().take(*epoch(1)[:4])
    driver.log.broke_off(error)
    driver.log.close()
    assert said(tmp_path)[-1] == words
    assert "step 4/30" in said(tmp_path)[-2]


def test_an_attempt_that_goes_on_says_from_where_and_how_long_its_own_part_took(tmp_path: Path) -> None:
    first = Driver(tmp_path).begin().take(*epoch(1), *epoch(2)[:5])
    first.log.broke_off(Suspended())
    first.log.close()
    second = Driver(tmp_path, attempt=2, seconds=60).begin(10)
    second.take(*(train(step, 60 + step) for step in range(16, 31)), validation(30, 91))
    second.log.finished()
    second.log.close()
    told = said(tmp_path)
    assert "resumed from step 10 of 30 · attempt 2" in told
    assert told[-1] == "done: 3 epochs, 30 steps, the last 20 in 31 s, 64 samples/s on average"


@pytest.mark.parametrize("killed_after", range(1, 12))
def test_a_driver_that_is_started_again_repeats_no_line_and_no_begin(tmp_path: Path, killed_after: int) -> None:
    """It is killed without a word. The engines send again what it may not have written: its last three items."""
    whole = [*epoch(1, seconds=6), *epoch(2, seconds=6)]
    driver = Driver(tmp_path)
    driver.log.note("a note")
    driver.begin().take(*whole[:killed_after])
    driver.log._log.close()
    again = Driver(tmp_path, seconds=100)
    again.log.note("a note")
    again.begin().take(*whole[max(0, killed_after - 3) :])
    told = said(tmp_path)
    shown = [line for line in told if line.startswith("epoch")]
    assert len(set(shown)) == len(shown)
    places = [(line.split(" · ")[1], "val_" in line) for line in shown]
    assert len(set(places)) == len(places), "no step is told twice"
    assert sum(line.startswith("started") for line in told) == 1
    assert told.count("note: a note") == 1
    assert "the driver was started again; the training went on · attempt 1" in told
    assert [place for place, of_validation in places if of_validation] == ["step 10/30", "step 20/30"]


def test_another_training_in_the_same_folder_is_told_from_its_first_step(tmp_path: Path) -> None:
    Driver(tmp_path).begin().take(*epoch(1)).log.close()
    Driver(tmp_path, attempt=2).begin().take(*epoch(1)).log.close()
    assert sum("step 10/30" in line for line in said(tmp_path)) == 2


def test_a_new_day_has_a_line(tmp_path: Path) -> None:
    Driver(tmp_path, NO_TEST).begin().take(train(1, 1), train(2, 13 * 3600.0))
    assert [line for line in lines(tmp_path) if line[2] != ":"] == ["2026-11-26", "2026-11-27"]


@pytest.mark.tmpfs_mount
def test_a_full_disk_delays_lines_and_loses_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "log", 1 << 16) as disk:
        driver = Driver(disk.folder).begin()
        disk.fill()
        driver.take(*(train(step, step * 6.0) for step in range(1, 200)))  # more than the file's block has room for
        assert "the log" in capsys.readouterr().err
        disk.make_room()
        driver.log.close()
        shown = [line for line in said(disk.folder) if line.startswith("epoch")]
    assert len(shown) > 100 and len(set(shown)) == len(shown)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (9.97, "10 s"), (192, "3 min 12 s"), (3600, "1 h"), (7500, "2 h 5 min"),
     (3605, "1 h"), (187_200, "2 d 4 h")],
)  # fmt: skip
def test_a_duration_has_two_units_at_most(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.31, "0.31"), (0.123456, "0.1235"), (2.0, "2"), (0.0, "0"), (-0.5, "-0.5"), (1234.56, "1,235"), (1e-7, "1e-07"),
     (65536.0, "65,536"), (float("inf"), "inf"), (float("nan"), "nan"), (1e15, "1e+15")],
)  # fmt: skip
def test_a_number_is_as_short_as_it_can_be(value: float, words: str) -> None:
    assert number(value) == words
