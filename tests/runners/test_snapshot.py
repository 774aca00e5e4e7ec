"""Recovery checkpoints in the background: when they begin, what they hold, what waits for what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from edt_runner.checkpoints.snapshot import Snapshots
from edt_runner.errors import CheckpointError
from support.waiting import until


class Training:
    """A state of one number, a clock by hand, a disk that can be held up or full."""

    def __init__(self) -> None:
        self.now, self.weight = 0.0, 0
        self.may_copy, self.may_write = threading.Event(), threading.Event()
        self.may_copy.set()
        self.may_write.set()
        self.copying = threading.Event()
        self.exported_by: set[threading.Thread] = set()
        self.full = False
        self.written: list[tuple[int, Any, int]] = []
        self.notes: list[str] = []
        self.snapshots = Snapshots(10.0, self._export, self._copy, self._write, self.notes.append, lambda: self.now)

    def step(self, offset: int, *, force: bool = False) -> None:
        """The boundary at ``offset``, then the step that changes the weight."""
        self.snapshots.begin(offset, {"loss": offset}, force=force)
        self.snapshots.wait_copied()
        self.weight += 1

    def _export(self) -> Training:
        self.exported_by.add(threading.current_thread())
        return self

    def _copy(self, state: Training) -> int:
        self.copying.set()
        assert self.may_copy.wait(60)
        return state.weight

    def _write(self, offset: int, metric_sums: Mapping[str, Any], state: int) -> None:
        assert self.may_write.wait(60)
        if self.full:
            raise OSError(28, "No space left on device")
        self.written.append((offset, metric_sums["loss"], state))


@pytest.fixture
def training() -> Training:
    return Training()


def test_one_begins_when_the_interval_is_over_and_not_before(training: Training) -> None:
    for offset in range(30):
        training.now = float(offset)
        training.step(offset)
        if training.written or offset >= 10:
            until(lambda: not training.snapshots.under_way, 30, "the checkpoint is written")
    assert training.written == [(10, 10, 10), (20, 20, 20)]


def test_a_forced_one_begins_at_once_and_the_interval_counts_from_there(training: Training) -> None:
    training.now = 4.0
    training.step(1, force=True)
    training.snapshots.finish()
    training.now = 13.0
    assert not training.snapshots.due()
    training.now = 14.0
    assert training.snapshots.due()
    assert training.written == [(1, 1, 0)]


def test_the_state_waits_for_its_copy_and_not_for_the_disk(training: Training) -> None:
    training.may_copy.clear()
    training.may_write.clear()
    stepped = threading.Thread(target=training.step, args=(1,), kwargs={"force": True})
    stepped.start()
    assert training.copying.wait(30)
    stepped.join(0.05)
    assert stepped.is_alive() and training.weight == 0
    training.may_copy.set()
    stepped.join(30)
    assert training.weight == 1 and not training.written
    training.may_write.set()
    training.snapshots.finish()
    assert training.written == [(1, 1, 0)]


def test_a_forced_one_waits_for_the_one_under_way_and_takes_the_state_as_it_is_then(training: Training) -> None:
    training.may_write.clear()
    training.step(1, force=True)
    training.step(2, force=True)
    training.step(3, force=True)
    training.step(4)
    assert not training.snapshots.due()
    training.may_write.set()
    until(training.snapshots.due, 30, "the first is on disk")
    training.step(5)
    training.snapshots.finish()
    assert training.written == [(1, 1, 0), (5, 5, 4)]
    assert not training.snapshots.due()


def test_at_the_end_what_waits_is_written_too(training: Training) -> None:
    training.may_write.clear()
    training.step(1, force=True)
    training.snapshots.begin(2, {"loss": 2}, force=True)  # the last boundary: nothing changes any more
    training.may_write.set()
    training.snapshots.finish()
    assert training.written == [(1, 1, 0), (2, 2, 1)]
    training.snapshots.finish()
    assert len(training.written) == 2


def test_the_last_to_leave_writes_its_position_after_the_one_under_way(training: Training) -> None:
    training.may_write.clear()
    training.step(1, force=True)
    threading.Timer(0.02, training.may_write.set).start()
    training.snapshots.write_now(2, {"loss": 2})
    assert training.written == [(1, 1, 0), (2, 2, 1)]


def test_a_full_disk_costs_the_checkpoint_and_the_next_is_tried_an_interval_later(training: Training) -> None:
    training.full = True
    training.step(1, force=True)
    training.snapshots.finish()
    training.snapshots.write_now(2, {"loss": 2})
    assert training.notes == [
        "recovery checkpoints cannot be written: No space left on device (at offset 1); the training goes on, and it "
        "is tried again every 10 s"
    ]
    training.full = False
    assert not training.snapshots.due()
    training.now = 10.0
    training.step(3)
    training.snapshots.finish()
    assert training.written == [(3, 3, 1)]
    assert training.notes[1:] == ["recovery checkpoints can be written again, after 10 s"]


def test_the_last_engine_waits_for_room_as_long_as_it_may() -> None:
    now, tries = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def write(offset: int, metric_sums: Mapping[str, Any], state: int) -> None:
        tries.append(now[0])
        if now[0] < full_until:
            raise OSError(28, "No space left on device")

    def snapshots() -> Snapshots:
        return Snapshots(10.0, int, int, write, lambda text: None, lambda: now[0], patience=18.0, sleep=sleep)

    full_until = 5.0
    snapshots().write_now(7, {})
    assert tries == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    full_until = 1000.0
    snapshots().write_now(7, {})
    assert now[0] == 5.0 + 18.0


def test_the_last_engine_does_not_wait_for_room_once_its_attempt_is_shut_out() -> None:
    now, tries, notes = [0.0], list[float](), list[str]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def write(offset: int, metric_sums: Mapping[str, Any], state: int) -> None:
        tries.append(now[0])
        raise OSError(28, "No space left on device") if now[0] < 2 else CheckpointError("the attempt is shut out")

    Snapshots(10.0, int, int, write, notes.append, lambda: now[0], patience=18.0, sleep=sleep).write_now(7, {})
    assert tries == [0.0, 1.0, 2.0]
    assert notes[1:] == ["no recovery checkpoint at offset 7: the attempt is shut out"]


def fail(state: object = None) -> int:
    raise MemoryError


@pytest.mark.parametrize("export, copy", [(int, fail), (fail, int)])
def test_a_copy_that_fails_holds_nobody_up(export: Callable[[], int], copy: Callable[[int], int]) -> None:
    notes: list[str] = []
    snapshots = Snapshots(10.0, export, copy, lambda offset, metric_sums, copy: None, notes.append)
    snapshots.begin(7, {}, force=True)
    snapshots.wait_copied()
    snapshots.finish()
    snapshots.write_now(8, {})
    assert notes == [f"no recovery checkpoint at offset {offset}: MemoryError" for offset in (7, 8)]


def test_the_thread_that_trains_says_what_the_state_is(training: Training) -> None:
    """Another one would look at it in the middle of a pass, which moves statistics and puts them back."""
    training.step(1, force=True)
    training.snapshots.write_now(2, {"loss": 2})
    assert len(training.written) == 2 and training.exported_by == {threading.current_thread()}
