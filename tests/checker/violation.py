"""What is wrong, in one sentence, and the invariant that says so."""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass


class Invariant(enum.StrEnum):
    """The fifteen, each as it reads in this platform."""

    I1 = "a slot is held by one open allocation, and a free one by no process"
    I2 = "nobody holds more than there is, than it asked for, or on a node that takes no work"
    I3 = "each acknowledged submit is exactly one job"
    I4 = "of a job one attempt lives on the machine"
    I5 = "a job moves by legal steps, and its history replays to its row"
    I6 = "a job that is over holds nothing"
    I7 = "nothing lives of an attempt that is over"
    I8 = "a slot is given once and comes back once"
    I9 = "fences only grow, and nothing is written under an old one"
    I10 = "a job that can run is started"
    I11 = "no job is passed by those that came later"
    I12 = "counters are what the events add up to"
    I13 = "the outbox drains"
    I14 = "the newest checkpoint is whole, and of no attempt to come"
    I15 = "a job that was seen running has started"
    SAMPLES = "each epoch is made of every sample once"


class Unsound(AssertionError):
    """What the checker has found, all of it."""

    checkers_verdict = True
    """A test that fails by this is never forgiven (suite.plugin looks for the name)."""


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong. ``key`` tells it apart, so that it is said once."""

    invariant: Invariant
    key: Hashable
    evidence: str
    after: float = 0.0
    """So many seconds of quiet may pass before it is one; 0: none."""

    def __str__(self) -> str:
        return f"{self.invariant.name} ({self.invariant.value}): {self.evidence}"
