"""What happened, as plain data from the platform's answers: tables and the figure are made from it.

All times are seconds since the epoch, wall clock of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edt_api.schemas import cluster, jobs
from edt_demo.samples import LossPoint


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
    """None: too few steps came after it."""
    woken_by: str | None = None
    """``notification`` or ``timer``: what made the agent look. None: there was no agent."""
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
class History:
    """Everything that is drawn."""

    title: str
    subtitle: str
    slots: tuple[str, ...]
    jobs: tuple[str, ...]
    """In the order of their colours."""
    bars: tuple[Bar, ...]
    resizes: tuple[Resize, ...]
    curves: tuple[Curve, ...]


def history_of(
    title: str,
    subtitle: str,
    *,
    jobs: Mapping[str, str],
    timeline: cluster.Timeline,
    resizes: Mapping[str, Sequence[jobs.Resize]],
    steps: Mapping[str, Sequence[LossPoint]],
) -> History:
    """``jobs``: name to exec id, in the order of their colours; the rest by name."""
    names = {exec_id: name for name, exec_id in jobs.items()}
    return History(
        title,
        subtitle,
        tuple(slot.slot for node in timeline.nodes for slot in node.slots),
        tuple(jobs),
        tuple(
            Bar(
                allocation.slot,
                names[allocation.exec_id],
                allocation.started_at,
                allocation.counted_at,
                allocation.released_at or timeline.now,
            )
            for allocation in timeline.allocations
            if allocation.exec_id in names and allocation.started_at is not None
        ),
        tuple(
            sorted(
                (
                    changed(name, each, steps[name])
                    for name in jobs
                    for each in resizes[name]
                    if each.from_slots and each.to_slots
                ),
                key=lambda resize: resize.time,
            )
        ),
        tuple(Curve(name, tuple((step.time, step.loss) for step in steps[name])) for name in jobs),
    )


def changed(name: str, resize: jobs.Resize, steps: Sequence[LossPoint]) -> Resize:
    """One change of size, placed at the first step that was made that way."""
    first = next((step.time for step in steps if resize.step is not None and step.step > resize.step), None)
    woken = None if resize.woken_at is None else resize.woken_at - resize.decided_at
    return Resize(
        name,
        first or resize.first_step_at or resize.gone_at or resize.decided_at,
        resize.from_slots,
        resize.to_slots,
        resize.step or 0,
        resize.detail or resize.cause,
        resize.pause_seconds,
        resize.woken_by,
        woken,
        resize.cause == "engine-lost",
    )
