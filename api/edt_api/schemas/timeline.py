"""Slots x time: who held what, when sizes changed, what failed. Room: api.

Compact, since a picture of everything has tens of thousands of bars. Every user sees that a slot is held and by which
job; whose it is, and words that come out of its script, are told to its owner and to admins.
"""

from __future__ import annotations

from edt_api.schemas.base import Shown
from edt_api.schemas.nodes import Node
from edt_api.schemas.wmla import ExecState


class TimelineJob(Shown):
    """A job that occurs in the picture."""

    state: ExecState
    owner: str | None
    """None: another user's, here and below."""
    app_name: str | None
    removed: bool = False
    """It can no longer be opened; that it held slots stays true."""


class TimelineAllocation(Shown):
    """A bar: one slot held by one job for a while."""

    allocation: int
    exec_id: str
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    """The engine's process exists."""
    counted_at: float | None
    """Its first micro-batch is in a committed step."""
    released_at: float | None
    kind: str | None
    """How it ended."""


class TimelineResize(Shown):
    """A mark: one change of a job's size."""

    number: int
    exec_id: str
    cause: str
    time: float
    from_slots: int
    to_slots: int
    pause_seconds: float | None
    recomputed: int | None
    """Micro-batches done again."""
    detail: str | None


class TimelineFailure(Shown):
    """A mark: an engine that was lost, all of a job on a node that was (then without a slot), or a whole attempt (then
    without a node). The stream may tell one again: job, time, node and slot say which it is."""

    exec_id: str
    node: str | None
    slot: str | None
    time: float
    kind: str
    """``lost``, ``script-error`` or ``pull-failed``."""
    message: str | None


class Timeline(Shown):
    """What overlaps ``since`` to ``until``."""

    now: float
    since: float
    until: float
    earliest: float | None
    """When the first slot was ever given."""
    nodes: list[Node]
    jobs: dict[str, TimelineJob]
    allocations: list[TimelineAllocation]
    resizes: list[TimelineResize]
    failures: list[TimelineFailure]
