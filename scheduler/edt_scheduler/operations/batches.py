"""Work that is done a bit at a time. Room: scheduler, operations. Touches nothing by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

PAUSE_SECONDS = 0.01
"""From one batch to the next, so that who waits for the writer's lock finds it free."""
_T = TypeVar("_T")

TASK_SECONDS = 20.0
"""So long may a periodic task begin further batches; what is left waits for its next run."""
BATCH_ROWS = 5000
"""So many rows at most are written in one transaction, which others wait for."""


def in_batches(
    batch: Callable[[], int], seconds: float = TASK_SECONDS, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Call ``batch`` until it finds nothing to do or the ``seconds`` are over. Answers how many things it did in all.

    ``batch`` is one transaction, or a few files, and answers how many things it did.
    """
    ends, done = monotonic() + seconds, 0
    while True:
        found = batch()
        done += found
        if not found or monotonic() >= ends:
            return done
        time.sleep(PAUSE_SECONDS)


def in_time(
    things: Iterable[_T], seconds: float = TASK_SECONDS, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[_T]:
    """The ``things``, one after another, until the ``seconds`` are over; the first one always."""
    ends = monotonic() + seconds
    for thing in things:
        yield thing
        if monotonic() >= ends:
            return
