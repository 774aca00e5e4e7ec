"""Frozen views of queues and of recorded decisions. Pure.

Sizes are slots. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edt_scheduler.plan.queues import Sharing


@dataclass(frozen=True)
class QueueUser:
    """What one user has in one queue."""

    user: str
    """The user's name."""
    entitled: int
    """Slots to which the user is entitled in this queue, for all of the user's jobs there."""
    held: int
    running: int
    """The user's jobs that hold slots."""
    waiting: int
    """The user's jobs that hold none."""
    usage: float
    """Decayed slot-seconds of the past."""


@dataclass(frozen=True)
class QueueOthers:
    """The users of a queue that the viewer may not see, together."""

    users: int = 0
    entitled: int = 0
    held: int = 0
    running: int = 0
    waiting: int = 0
    usage: float = 0.0


@dataclass(frozen=True)
class WaitingInQueue:
    """A job that waits in a queue."""

    exec_id: str
    owner: str
    app_name: str
    framework: str
    script: str
    folder: str
    command: str
    priority: int
    need: int
    """Slots that it needs to start."""
    most: int
    """The most slots that it can hold."""
    rank: int
    """Place among all waiting jobs; 1 is next; 0: it is paused, or not considered yet."""
    blocking: str | None
    """Why it waits, as a code; None: the scheduler has not considered it yet."""
    reason: str
    since: float
    """When it was submitted."""


@dataclass(frozen=True)
class QueueView:
    """One queue of the tree. ``used`` to ``usage`` include the queues below it."""

    path: str
    """Such as ``/research/vision``; "": the root."""
    quota: int
    weight: float
    limit: int | None
    policy: Sharing
    used: int
    """Slots that its jobs hold."""
    entitled: int
    """Slots to which its users are entitled with the jobs that they have now."""
    demand: int
    """Slots for which its jobs have use."""
    running: int
    waiting: int
    usage: float
    """Decayed slot-seconds of the past."""
    users: tuple[QueueUser, ...]
    """Who has jobs or usage in this queue itself, as far as the viewer may see them; those that hold most first."""
    others: QueueOthers
    waiting_jobs: tuple[WaitingInQueue, ...]
    """The jobs that wait in this queue itself and that the viewer may see, the next first; at most ``MOST_WAITING``."""


@dataclass(frozen=True)
class QueueTree:
    """All queues: the root first, and each before those below it."""

    at: float
    slots: int
    """Slots of the nodes that take work."""
    used: int
    """Slots that jobs hold, those on other nodes included."""
    queues: tuple[QueueView, ...]


@dataclass(frozen=True)
class DecisionAction:
    """What one decision did to one job."""

    exec_id: str
    verb: str
    """A ``plan.state.Verb``."""
    before: int
    after: int
    cause: str
    """A ``ResizeCause``."""


@dataclass(frozen=True)
class DecisionView:
    """One decision that changed something."""

    number: int
    at: float
    bytes: int
    """How much its record takes."""
    actions: tuple[DecisionAction, ...]


@dataclass(frozen=True)
class DecisionPage:
    """A part of the list of decisions, newest first."""

    decisions: tuple[DecisionView, ...]
    before: int | None
    """The next page has the decisions with numbers below this one; None: this page is the last."""


@dataclass(frozen=True)
class RecordedDecision:
    """One decision with all that went into it, and what comes of that now."""

    view: DecisionView
    state: Mapping[str, Any]
    """The ``plan.state.State`` as JSON."""
    plan: Mapping[str, Any]
    """The ``plan.state.Plan`` as JSON."""
    differences: tuple[str, ...]
    """What differs, in sentences, if the same state is planned again now; empty: nothing."""
    seconds: float
    """How long planning again took."""
