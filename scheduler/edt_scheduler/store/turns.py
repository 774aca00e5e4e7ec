"""Whose turn it is to write, among the threads of one process. Room: scheduler, store. Touches nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from edt_scheduler.errors import DatabaseUnavailable

MOST_URGENT_IN_A_ROW = 4


class Turns:
    """One thread at a time, first come, first served; who is urgent goes before all others, some times in a row."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._urgent: deque[threading.Event] = deque()
        self._taken = False
        self._urgent_in_a_row = 0
        """Turns, up to the one that is or was last: after a few the next one is another's."""

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._waiting) + len(self._urgent)

    @contextmanager
    def turn(self, seconds: float, *, urgent: bool = False) -> Iterator[float]:
        """Wait for one's turn, at most so long, and have it for the length of the block; yields the seconds left.

        Raises DatabaseUnavailable where they are over.
        """
        until = time.monotonic() + seconds
        mine, line = threading.Event(), self._urgent if urgent else self._waiting
        with self._guard:
            line.append(mine)
            if not self._taken:
                self._hand_on()
        try:
            if not mine.wait(seconds):
                raise DatabaseUnavailable("is asked too much at once", passing=False)
            yield max(0.0, until - time.monotonic())
        finally:
            with self._guard:
                if mine.is_set():
                    self._hand_on()
                else:
                    line.remove(mine)

    def _hand_on(self) -> None:
        """Give the turn to the next that waits, if there is one. Called under the guard."""
        patient = self._urgent_in_a_row >= MOST_URGENT_IN_A_ROW
        lines = (self._waiting, self._urgent) if patient else (self._urgent, self._waiting)
        line = next((each for each in lines if each), None)
        self._taken = line is not None
        if line is not None:
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if line is self._urgent else 0
            line.popleft().set()
