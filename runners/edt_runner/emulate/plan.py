"""From the sizes of updates, one after another, to the positions at which they change. Room: runners; pure.

A position counts micro-batches, those of validations too; an update of width w takes w of an epoch's, and the last of
an epoch what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from edt_runner.engine.schedule import Schedule
from edt_runner.errors import UsageError

Changes = list[tuple[int, int]]
"""(position, width from there on)."""
ENDINGS = ("hold", "cycle", "error")


def micro_batches(schedule: Schedule) -> int:
    """Of training, in all."""
    return schedule.epochs * _in_epoch(schedule)


def of_updates(schedule: Schedule, widths: Iterator[int]) -> Changes:
    """Where widths change that are given update by update; takes as many of them as the training has updates."""
    found: Changes = []
    for epoch in range(schedule.epochs):
        done, left = epoch * _in_epoch(schedule), _in_epoch(schedule)
        while left:
            width = next(widths)
            if not found or found[-1][1] != width:
                found.append((position(schedule, done), width))
            taken = min(width, left)
            done, left = done + taken, left - taken
    return found


def of_micro_batches(schedule: Schedule, changes: Iterable[tuple[int, int]]) -> Changes:
    """Where widths change that are given by (micro-batches of training before, width)."""
    most = micro_batches(schedule)
    return [(position(schedule, done), width) for done, width in changes if done < most]


def position(schedule: Schedule, done: int) -> int:
    """Where the training stands when so many micro-batches of training are behind it, and the validations that come
    before the next one are, too."""
    epoch = done // _in_epoch(schedule)
    validations = epoch // schedule.validation_freq if schedule.test_samples and schedule.validation_freq else 0
    return done + validations * -(-schedule.test_samples // schedule.batch_size)


def lasting(name: str, make: Callable[[], Iterator[int]], at_end: str, note: Callable[[str], None]) -> Iterator[int]:
    """The widths of ``make()``, and when they end by ``at_end``: the last one for ever (hold), all of them again and
    again (cycle), or an error. What happened is told to ``note``, once.

    Raises:
        UsageError: they end, by ``error``; or there are none at all.
    """
    count, last = 0, 0
    for width in make():
        count, last = count + 1, width
        yield width
    if not count:
        raise UsageError(f"{name}: got a trace of no update, takes one at least")
    if at_end == "error":
        raise UsageError(
            f"{name}: got {count} updates, takes as many as the training has; --trace-end hold or cycle says how it "
            "goes on"
        )
    rest = "its last size stays" if at_end == "hold" else "it begins anew"
    note(f"{name} ends after {count} updates; from there on {rest}")
    while True:
        yield from [last] if at_end == "hold" else make()


def _in_epoch(schedule: Schedule) -> int:
    return -(-schedule.train_samples // schedule.batch_size)
