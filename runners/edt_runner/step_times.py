"""Where the time of an engine's steps goes: a clock that is always in one phase.

The thread that trains tells the clock which phase begins. The clock is one for the process, as the status page of
``context`` is, because a process has one training and the phases are entered far from each other: in the engine, in the
framework's adapter and in the data plane.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Phase(enum.StrEnum):
    """What the time of a step is spent on."""

    DATA = "data"  # the engine waits for the batch of a micro-batch
    FORWARD = "forward"  # forward pass and loss
    BACKWARD = "backward"  # backward pass, without what belongs to COPIES
    COPIES = "copies"  # gradients are scaled, copied and added to the sums of this engine
    REDUCE = "reduce"  # sums are exchanged with other engines, without WAIT
    WAIT = "wait"  # another engine has not sent yet what this engine needs
    APPLY = "apply"  # the optimizer's step and buffers
    OTHER = "other"  # everything else: seeds, metrics, messages, callbacks, checkpoints


PHASES = tuple(Phase)


class StepClock:
    """Adds up the seconds that a process has spent in each phase. Only one thread uses it.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._phase = Phase.OTHER
        self._since = clock()

    def enter(self, phase: Phase) -> Phase:
        """Begin a phase. Returns the phase that has ended."""
        now, before = self._clock(), self._phase
        self._seconds[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """A context that is spent in ``phase``. At its end the phase of before goes on."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def move(self, seconds: float, source: Phase, target: Phase) -> None:
        """Count ``seconds`` that were spent in ``source`` as spent in ``target``, at most all of them."""
        moved = min(max(0.0, seconds), self._seconds[source])
        self._seconds[source] -= moved
        self._seconds[target] += moved

    def take(self) -> tuple[float, ...]:
        """Return the seconds of each phase since the last call, in the order of ``PHASES``."""
        self.enter(self._phase)
        taken = tuple(self._seconds[phase] for phase in PHASES)
        self._seconds = dict.fromkeys(PHASES, 0.0)
        return taken


clock = StepClock()
"""The clock of this process."""
