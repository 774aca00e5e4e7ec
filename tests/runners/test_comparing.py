"""When an engine takes checksums of its replica, and what it sends of them."""

from __future__ import annotations

import threading
from typing import Any, cast

from edt_runner.adapter import State
from edt_runner.engine.checksum_sender import ChecksumSender
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.protocol.engine_messages import ChecksumsTaken
from edt_runner.protocol.messages import Message, Note
from edt_runner.schedule import Schedule


class Line:
    compare_from = 0

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)


def exported() -> State:
    """Another thread would see what a pass moves and puts back."""
    assert threading.current_thread() is threading.main_thread()
    return State({}, {})


def train(
    interval: int | None, *, joined: int | None = None, line: Line | None = None, engines: int = 2
) -> list[tuple[int, str]]:
    """(step, reason) of each comparison in three epochs of four steps, with a validation after each."""
    schedule = Schedule(train_samples=16, test_samples=4, micro_batches=1, batch_size=4, epochs=3)
    line = line or Line()
    comparing = ChecksumSender(
        cast(EngineLink, line), exported, lambda state: [("a", "1")], interval, clock=lambda: 0.0
    )
    for offset in range(schedule.length - 1):
        if offset == joined:
            comparing.joined()
        where, members = schedule.at(offset), tuple("123"[:engines])
        comparing.committed(where, offset + 1, Membership(1, members, cast(Any, None), "1"))
    comparing.wait()
    return [(taken.step, taken.reason) for taken in line.sent if isinstance(taken, ChecksumsTaken)]


def test_replicas_are_compared_after_a_join_and_at_each_epochs_end() -> None:
    assert train(None, joined=1) == [(2, "join"), (4, "epoch"), (8, "epoch")]


def test_a_join_before_a_validation_is_compared_after_the_next_training_step() -> None:
    assert train(None, joined=4) == [(4, "epoch"), (5, "join"), (8, "epoch")]


def test_an_interval_counts_training_steps_and_stands_in_for_the_epochs() -> None:
    assert train(3, joined=1) == [(2, "join"), (3, "interval"), (6, "interval"), (9, "interval"), (12, "interval")]


def test_nothing_is_compared_where_that_is_not_wanted_or_one_engine_trains() -> None:
    assert train(0, joined=1) == [] and train(None, joined=1, engines=1) == []


def test_at_an_epochs_end_that_is_not_worth_its_time_only_settings_are_compared() -> None:
    line = Line()
    line.compare_from = 100
    assert train(None, joined=6, line=line) == [(4, "settings"), (6, "join"), (8, "settings")]


def test_checksums_that_cannot_be_taken_cost_the_comparison_and_not_the_training() -> None:
    def fails(state: State) -> list[tuple[str, str]]:
        raise MemoryError

    line = Line()
    schedule = Schedule(train_samples=16, test_samples=0, micro_batches=1, batch_size=4, epochs=3)
    comparing = ChecksumSender(cast(EngineLink, line), exported, fails, 1)
    comparing.committed(schedule.at(0), 1, Membership(1, ("1", "2"), cast(Any, None), "1"))
    comparing.wait()
    assert line.sent == [Note("no checksums at step 1: MemoryError")]
    assert comparing.at_end(names=True) is None
    assert line.sent[1:] == [Note("no checksums at the end: MemoryError")]
