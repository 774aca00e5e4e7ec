"""Whose turn it is to write, among the threads of one process. Room: scheduler, store. Touches nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from edt_scheduler.errors import DatabaseUnavailable


class Turns:
    """One thread at a time, first come, first served."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._waiting)

    @contextmanager
    def turn(self, seconds: float) -> Iterator[float]:
        """Wait for one's turn, at most so long, and have it for the length of the block; yields the seconds left.

        Raises DatabaseUnavailable where they are over.
        """
        until = time.monotonic() + seconds
        mine = threading.Event()
        with self._guard:
            if self._taken:
                self._waiting.append(mine)
            else:
                self._taken = True
                mine.set()
        try:
            if not mine.wait(seconds):
                raise DatabaseUnavailable("is asked too much at once", passing=False)
            yield max(0.0, until - time.monotonic())
        finally:
            with self._guard:
                if not mine.is_set():
                    self._waiting.remove(mine)
                elif self._waiting:
                    self._waiting.popleft().set()
                else:
                    self._taken = False
