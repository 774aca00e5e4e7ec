"""Shapes of queues, of what a job may be changed to while it runs or waits, and of recorded decisions.

Sizes are slots and times are seconds since the epoch. Users and jobs that the caller may not see are counted, not
named.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

from pydantic import Field

from edt_api.schemas.jobs import Output, Page, UserInput

MOST_QUOTA = 10_000_000
MOST_WEIGHT = 1_000_000
MOST_PRIORITY = 2**31 - 1


class QueuePolicy(enum.StrEnum):
    """How the jobs of a queue share its slots. In each, jobs of a higher priority come first."""

    EFFICIENT = "efficient"  # each slot goes where it is worth most
    FAIRSHARE = "fairshare"  # each job gets as many slots as the others, or by its priority as a weight
    PRIORITY = "priority"  # by priority, then by submission: who comes first gets all that it can use
    FIFO = "fifo"  # by submission alone


class QueueUser(Output):
    """What one user has in one queue."""

    user: str
    entitled: int
    """Slots to which the user is entitled in this queue, for all of the user's jobs there."""
    held: int
    """Slots that the user's jobs in this queue hold."""
    running: int
    """The user's jobs in this queue that hold slots."""
    waiting: int
    """The user's jobs in this queue that hold none."""
    usage: float
    """Slot-seconds of the past, which count less the older they are."""


class QueueOthers(Output):
    """The users of a queue that are not listed, together."""

    users: int
    entitled: int
    held: int
    running: int
    waiting: int
    usage: float


class QueueWaiting(Output):
    """A job that waits in a queue."""

    job: str
    owner: str
    name: str
    """As in a list of jobs."""
    priority: int
    need: int
    """Slots that it needs to start."""
    max: int
    """The most slots that it can hold."""
    rank: int
    """Place among all waiting jobs; 1 is next; 0: it is paused, or not considered yet."""
    blocking: str | None
    """Why it waits, as a code; None: the scheduler has not considered it yet."""
    reason: str
    """Why it waits, in a sentence."""
    since: float
    """When it was submitted."""


class Queue(Output):
    """One queue of the tree."""

    path: str
    """Such as ``/research/vision``; empty: the root."""
    name: str
    """The last part of its path; ``root`` for the root."""
    parent: str | None
    """Path of the queue above; None: it is the root."""
    depth: int
    """How many queues are above it."""
    quota: int
    """Slots that it has before anything is divided by weight. Those that it does not use are lent to others."""
    weight: float
    """Its share of what is divided, beside the queues that have the same parent."""
    limit: int | None
    """The most slots that its jobs may hold together; None: no limit."""
    policy: QueuePolicy
    used: int
    """Slots that its jobs hold, those of queues below it included, as in the five fields that follow."""
    entitled: int
    """Slots to which its users are entitled with the jobs that they have now."""
    demand: int
    """Slots for which its jobs have use."""
    running: int
    """Jobs that hold slots."""
    waiting: int
    """Jobs that hold none."""
    usage: float
    """Slot-seconds of the past, which count less the older they are."""
    users: list[QueueUser]
    """The users who have jobs or usage in this queue itself: those that the caller may see, at most 100 of them, those
    that hold most first."""
    others: QueueOthers
    """All other users of this queue itself."""
    waiting_jobs: list[QueueWaiting]
    """The jobs that wait in this queue itself: those that the caller may see, at most 20 of them, the next first."""


class Queues(Output):
    """The tree of queues: the root first, and each queue before those below it, which are in the order of names."""

    at: float
    slots: int
    """Slots of the nodes that take work."""
    used: int
    """Slots that jobs hold, those on other nodes included."""
    queues: list[Queue]


class QueueSettings(UserInput):
    """What a queue gets. What is left out stays as it is; a new queue has no quota and no limit, the weight 1 and the
    policy ``efficient``.
    """

    quota: Annotated[int, Field(ge=0, le=MOST_QUOTA)] | None = None
    weight: Annotated[float, Field(gt=0, le=MOST_WEIGHT, allow_inf_nan=False)] | None = None
    limit: Annotated[int, Field(ge=0, le=MOST_QUOTA)] | None = None
    """``null`` takes the limit away."""
    policy: QueuePolicy | None = None


class QueueChanged(Output):
    """A queue after a change."""

    path: str
    quota: int
    weight: float
    limit: int | None
    policy: QueuePolicy
    message: str
    """What holds now, in a sentence."""


class JobChange(UserInput):
    """What a job that is not over shall be from now on. What is left out stays as it is."""

    min_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The fewest slots with which it trains, as in ``Job``."""
    max_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The most slots that it may hold, as in ``Job``."""
    priority: Annotated[int, Field(ge=1, le=MOST_PRIORITY)] | None = None
    """Its priority. Its owner may set at most the one that the job was submitted with; an admin may set any."""


class DecisionAction(Output):
    """What one decision did to one job."""

    job: str
    verb: str
    """``start``, ``grow``, ``shrink``, ``preempt``, ``hand-over``, ``move`` or ``pause``."""
    before: int
    after: int
    cause: str


class Decision(Output):
    """One decision that changed something. The slots of all its actions were decided together."""

    id: int
    at: float
    actions: list[DecisionAction]
    bytes: int
    """How much its record takes."""


class DecisionPage(Page[Decision]):
    """Decisions, newest first."""


class RecordedDecision(Decision):
    """One decision with all that went into it, and whether it comes out the same again."""

    state: dict[str, Any]
    """What was decided on: nodes, jobs, queues, usage."""
    plan: dict[str, Any]
    """What was decided."""
    same: bool
    """Whether the scheduler makes the same plan of this state now."""
    differences: list[str]
    """Otherwise what differs, in sentences; at most 50."""
    seconds: float
    """How long making the plan took."""
