"""Shapes of answers that come from the plan itself: why a job waits or has as many slots, a dry run, and what if.

Times are seconds since the epoch. Sizes are slots. Jobs that the caller may not see are counted, not named.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from edt_api.schemas.jobs import Output, UserInput
from edt_api.schemas.queues import QueuePolicy

# ── who holds, who may ────────────────────────────────────────────────────────────────────────────────────────────────


class Holder(Output):
    """A job that stands in another one's way, or takes part of what it could have."""

    job: str
    user: str
    queue: str
    priority: int
    slots: int
    """The slots that it holds; 0: it waits, too, and comes first."""
    nodes: list[str]
    sentence: str


class Hidden(Output):
    """What is not named, because the caller may not see it."""

    jobs: int
    slots: int


class QueueUse(Output):
    """One queue on the way from a job's own queue to the root."""

    queue: str
    """Its path; "" is the root."""
    policy: QueuePolicy
    """How its jobs share; its own, or that of the nearest queue above that is defined."""
    quota: int
    weight: float
    limit: int | None
    """The most slots that its jobs may hold together; None: no limit."""
    held: int
    """Slots that its jobs hold now, those of queues below it included."""
    waiting: int
    """Jobs that wait in it, those of queues below it included."""


class Entitlement(Output):
    """What the job's user may have in its queue, and has."""

    user: str
    queue: str
    entitled: int
    """Slots to which the user is entitled there, for all of the user's jobs."""
    held: int
    """Slots that the user's jobs hold there."""
    jobs: int
    """The user's jobs there that are not over."""
    queues: list[QueueUse]
    """The queue and those above it, the root last."""


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Verdict(enum.StrEnum):
    """Whether a node could take the job, and what keeps it from that. The first that holds, in this order."""

    LOST = "lost"  # it is not heard from
    DRAINING = "draining"
    CORDONED = "cordoned"
    DEVICE = "device"  # its slots are of another kind than the job asks for
    MODEL = "model"  # its GPUs are of a model that the job does not take
    CONTAINERS = "containers"  # the job brings an image, and the node starts no containers
    OTHERS = "others"  # another job has asked a cluster manager for it, and uses it alone
    SMALL = "small"  # a worker of the gang needs more slots on one node than it has
    ALONE = "alone"  # engines on it reach no other node, and it has fewer slots than the job needs
    AVOIDED = "avoided"  # processes of the job are still leaving it
    FULL = "full"  # other jobs hold its slots
    KEPT = "kept"  # slots are free, but kept for another job, or not worth it or not allowed to this one
    FREE = "free"  # it has slots for the job


class NodeVerdict(Output):
    """One node as the job sees it."""

    node: str
    verdict: Verdict
    sentence: str
    slots: int
    free: int
    """Free slots once the present plan is carried out."""
    jobs: list[str]
    """Jobs that hold slots there, those that hold most first."""
    hidden: Hidden


class Nodes(Output):
    """The verdict on each node, those that are nearest to taking the job first."""

    items: list[NodeVerdict]
    """At most 100 of them."""
    counts: dict[str, int]
    """Verdict to the number of all nodes with it."""


# ── changes, as an answer suggests them and as a question asks for them ───────────────────────────────────────────────

_Size = Annotated[int, Field(ge=1, le=10_000)]
_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Priority = Annotated[int, Field(ge=1, le=2**31 - 1)]
DeviceKind = Literal["gpu", "cpu"]


class MoreSlots(UserInput):
    """A further node."""

    kind: Literal["more-slots"]
    slots: _Size
    device: DeviceKind | None = None
    """Kind of its slots; None: GPUs if some node has any."""
    model: Annotated[str, Field(max_length=256)] = ""
    """Model of its GPUs; "": that of most GPUs here."""
    containers: bool | None = None
    """Whether it starts containers; None: as most nodes of its kind do."""


class NodeLess(UserInput):
    """A node is taken away. Jobs on it move elsewhere or wait."""

    kind: Literal["node-less"]
    node: _Name


class NodeOpened(UserInput):
    """A cordoned or draining node takes work again."""

    kind: Literal["node-opened"]
    node: _Name


class JobWith(UserInput):
    """A job asks for something else. What is None stays."""

    kind: Literal["job"]
    job: _Name
    max: _Size | None = None
    """The most slots; of a gang all of them."""
    min: _Size | None = None
    priority: _Priority | None = None
    device: Literal["gpu", "cpu", "any"] | None = None
    models: list[_Name] | None = None
    """The only models of GPUs that it takes; empty: any."""
    image: bool | None = None
    """False: it brings no image, so that any node will do."""


class JobStopped(UserInput):
    """A job is over."""

    kind: Literal["job-stopped"]
    job: _Name


class JobResumed(UserInput):
    """A paused job goes on."""

    kind: Literal["job-resumed"]
    job: _Name


class QueueWith(UserInput):
    """A queue has other numbers. What is None stays."""

    kind: Literal["queue"]
    queue: Annotated[str, Field(max_length=256)]
    quota: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    limit: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    unlimited: bool = False
    """Whether its limit is taken away."""
    weight: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    policy: QueuePolicy | None = None


class NewJob(UserInput):
    """One more job, of the caller, in its order behind all others."""

    kind: Literal["new-job"]
    max: _Size
    min: _Size = 1
    gang: bool = False
    priority: _Priority = 1
    queue: Annotated[str, Field(max_length=256)] = ""
    device: DeviceKind | None = None
    models: list[_Name] = Field(default_factory=list)
    image: bool = False


Change = Annotated[
    MoreSlots | NodeLess | NodeOpened | JobWith | JobStopped | JobResumed | QueueWith | NewJob,
    Field(discriminator="kind"),
]


class WhatIfRequest(UserInput):
    """Changes that are all assumed together."""

    changes: Annotated[list[Change], Field(min_length=1, max_length=20)]


class Suggestion(Output):
    """A change that was tried on the present state: with it, the job starts, or gets more slots."""

    change: Change
    sentence: str
    slots: int
    """The slots that the job then has."""
    plans: int
    """After how many plans, each of them carried out: 1 is at once, more when slots have to be vacated first."""
    resubmit: bool
    """Whether the job has to be submitted anew for it."""
    command: str
    """The command that makes this change; "": there is none that the caller may give."""


# ── why ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Waits(Output):
    """Why a job holds no slot."""

    rank: int
    """Place among the waiting jobs; 1 is next; 0: it is paused."""
    waiting: int
    """How many jobs wait."""
    rule: str
    """What keeps it, as a code: ``capacity``, ``vacating``, ``cooldown``, ``nodes``, ``paused``, ``key``, ``quota``,
    ``priority``, ``reserved``, ``topology`` or ``dependency``; "": it starts with the present plan.
    """
    sentence: str
    need: int
    """Slots that it needs to start."""
    free: int
    """Slots free now, on nodes that take work."""
    not_before: float | None
    """When its back-off ends; None: it has none."""
    by: list[Holder]
    """What blocks it, the most important first."""
    hidden: Hidden


class WhyNotMore(enum.StrEnum):
    """What keeps a running job from more slots. The first that holds, in this order."""

    GANG = "gang"  # it is never resized
    COMING = "coming"  # it grows with the present plan
    MAXIMUM = "maximum"  # it has what its user allows at most
    CAPPED = "capped"  # a joining engine could not get the weights, so it stays as it is for some time
    ENGINES = "engines"  # its script has not said yet how many engines it can use, or more would not shorten a step
    MEASURED = "measured"  # it has to be measured on fewer slots first
    BACK_OFF = "back-off"  # it gets nothing until some time has passed after a loss
    QUOTA = "quota"  # its queue has all that it may have
    WORTH = "worth"  # others make more of the slots
    COST = "cost"  # growing would cost more than it brings
    REACH = "reach"  # it is worth a slot, but none is free that its engines can reach


class NextSize(Output):
    """What keeps a running job from more slots."""

    slots: int | None
    """Its next size; None: there is none."""
    rule: WhyNotMore
    sentence: str


class Holds(Output):
    """Why a job holds as many slots as it does."""

    slots: int
    share: int
    """The slots that it should hold once the present plan is carried out."""
    min: int
    max: int
    gain: float
    """What its next slot is worth to it beside the price: below 1, others make more of it; 0: it can use no more."""
    price: float
    """What the last slot that was given out is worth, in the plan's own unit."""
    worth: str
    """The two numbers in a sentence."""
    next: NextSize
    takers: list[Holder]
    """Jobs that hold slots which it could use, those first that make most of them."""
    hidden: Hidden


class PastError(Output):
    """How far earlier estimates of a start were off, each made when its job began to wait."""

    jobs: int
    median_seconds: float
    """Half of them were off by no more than this."""
    p90_seconds: float
    """Nine of ten were."""


class Expected(Output):
    """When the job is expected to start, and to end."""

    start: float | None
    """None: not before ``until``, or it runs already."""
    end: float | None
    """None: not before ``until``."""
    coarse: bool
    """Whether the start is only reckoned from the job's rank and the pace at which others start, because the forecast
    ended before.
    """
    until: float
    """How far the forecast goes."""
    guessed: int
    """Jobs that have not said how much they have left. Each is taken to need as long again as it has had, and at
    least ten minutes.
    """
    first: float | None
    """The start that was expected when it began to wait."""
    error: PastError | None
    """None: there are no past estimates yet."""
    sentence: str


class Explained(Output):
    """Why one job waits, or has as many slots as it has, by the plan that the scheduler would make now."""

    job: str
    at: float
    phase: Literal["waiting", "running", "ending", "over"]
    sentence: str
    """The answer in short."""
    waits: Waits | None
    """None: the job does not wait, or the scheduler has not looked at it yet."""
    holds: Holds | None
    """None: the job does not run."""
    entitlement: Entitlement | None
    """None: the job is over."""
    nodes: Nodes | None
    """None: the job does not wait."""
    changes: list[Suggestion]
    """What would start a waiting job now, or give a running one more, each tried."""
    untried: int
    """How many further changes were not tried, because the time for an answer was over."""
    expected: Expected | None
    """None: the job is over, or ends."""


# ── dry run and what if ───────────────────────────────────────────────────────────────────────────────────────────────


class Effect(enum.StrEnum):
    """What a change does to one job."""

    STARTS = "starts"  # it starts at once
    WAITS = "waits"  # it has slots now, and would wait
    GROWS = "grows"
    SHRINKS = "shrinks"
    EARLIER = "earlier"  # it is expected to start, or to end, earlier
    LATER = "later"


class Outlook(Output):
    """What one job has, and when it is expected to start and to end."""

    slots: int
    start: float | None
    end: float | None


class JobEffect(Output):
    """One job to which a change does something."""

    job: str
    user: str
    effect: Effect
    before: Outlook
    after: Outlook
    sentence: str


class Totals(Output):
    """The whole platform at once."""

    slots: int
    """Slots of nodes that take work."""
    used: int
    running: int
    waiting: int
    price: float
    mean_start_seconds: float | None
    """How long the waiting jobs that are expected to start still wait, on average; None: none waits."""


class WhatIf(Output):
    """What would be different, and for whom."""

    at: float
    sentence: str
    assumed: list[str]
    """A sentence for each change."""
    jobs: list[JobEffect]
    """At most 200, those with the largest changes first."""
    hidden: dict[str, int]
    """Effect to the number of jobs with it that are not among ``jobs``."""
    before: Totals
    after: Totals
    until: float
    """How far both forecasts go."""


class DryRunRequest(UserInput):
    """A submission without its code."""

    args: Annotated[str, Field(max_length=65_536)]
    """The args of a submit: ``--exec-start edtPyTorch --numWorker 4 …``."""


class DryRun(Output):
    """What would become of a submission now. A submission that would be refused is refused here, too."""

    kind: Literal["elastic", "gang"]
    max: int
    min: int
    starts: bool
    """Whether it would start at once, or as soon as slots are vacated for it."""
    slots: int
    """The slots with which it would start."""
    nodes: dict[str, int]
    """Node to the slots on it."""
    explained: Explained
    """Its ``job`` is "new"."""
    others: list[JobEffect]
    """Whose slots it would take, and who would start later."""
    hidden: dict[str, int]
    """Effect to the number of jobs with it that are not among ``others``."""
    remark: str | None
