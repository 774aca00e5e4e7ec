"""What happened, as plain data: the one thing that tables and the picture are made from. Room: examples; pure.

All times are seconds since the epoch, wall clock of one machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """One engine's life on one slot."""

    slot: str
    job: str
    started: float
    counted: float | None
    """Its first micro-batch was in a committed step; before, it prepared while the others trained."""
    ended: float


@dataclass(frozen=True)
class Resize:
    """One change of a job's size."""

    job: str
    time: float
    """Of the first step at the new size."""
    before: int
    after: int
    step: int
    cause: str
    pause_seconds: float | None
    """None: too few steps came after it to tell."""
    woken_by: str | None = None
    """``doorbell`` or ``timer``: what made the agent look. None: there was no agent."""
    woken_seconds: float | None = None
    """From decision to the agent's waking."""
    crash: bool = False
    """Nobody decided it: an engine was killed."""


@dataclass(frozen=True)
class Curve:
    """A job's loss."""

    job: str
    points: tuple[tuple[float, float], ...]
    """(time, loss)."""


@dataclass(frozen=True)
class Story:
    """Everything that is drawn."""

    title: str
    subtitle: str
    slots: tuple[str, ...]
    jobs: tuple[str, ...]
    """In the order of their colours."""
    bars: tuple[Bar, ...]
    resizes: tuple[Resize, ...]
    curves: tuple[Curve, ...]
