"""How the demo ends: an exit status for each reason, and a time limit for each wait."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable


class ExitCode(enum.IntEnum):
    """Exit status of ``python examples/demo``. ``make`` prints it as ``Error 3``."""

    OBSERVED = 0  # everything that the demo promises was seen
    BROKEN = 1  # the demo itself has a defect: a traceback says where
    USAGE = 2  # FRAMEWORK, DEVICES or DEMO_FAULT has a value that is not known
    SAMPLES = 3  # samples were lost or trained on twice
    DIGEST = 4  # the resized training and the static one ended with other bits
    ACCURACY = 5  # too few of the held-out images were recognised
    RESIZES = 6  # a resize that was to be seen was not, or the training was over before it
    CRASH = 10  # an engine was killed and the job did not simply go on
    TOO_LONG = 7  # a wait, or the whole demo, went past its limit
    TRAINING = 8  # a training did not finish
    PLATFORM = 9  # the platform did not start, or answered with an error
    INTERRUPTED = 130  # Ctrl-C


class DemoFailed(Exception):
    """The demo cannot go on."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


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
