"""Time that may pass: every wait of the demo ends. Room: examples; standard library only."""

from __future__ import annotations

import time
from collections.abc import Callable

from edt_demo.exits import DemoFailed, ExitCode


class Budget:
    """A limit for the whole, and for each wait in it. ``clock`` is monotonic seconds."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start, self._seconds = clock, clock(), seconds

    @property
    def used(self) -> float:
        return self._clock() - self._start

    def waiting(self, what: str, seconds: float) -> Wait:
        """A wait for ``what`` that may take ``seconds``, and no longer than what is left of the whole."""
        return Wait(what, min(seconds, self._seconds - self.used), self._clock)


class Wait:
    """One wait."""

    def __init__(self, what: str, seconds: float, clock: Callable[[], float]) -> None:
        self._what, self._seconds, self._clock = what, seconds, clock
        self._until = clock() + seconds

    def check(self) -> None:
        """Raises DemoFailed once the time is over."""
        if self._clock() > self._until:
            raise DemoFailed(ExitCode.TOO_LONG, f"waited {max(self._seconds, 0):.0f} s for {self._what}")
