"""Shapes of everything but jobs: nodes, images, users, sessions, the timeline, the stream, and an agent's requests."""

from __future__ import annotations

import enum
from typing import Annotated, Any

from pydantic import Field

from edt_api.schemas.jobs import AgentInput, ExecState, Job, JobKind, Output, Page, UserInput


class Problem(Output):
    """RFC 9457 ``application/problem+json``: every error under ``/api/v1``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    """Stable name of the error, for programs."""


class Ready(Output):
    """Answer of ``/readyz``. A request from the server's own machine also gets the state of each part: ``ok``, or a
    description of the fault.
    """

    ready: bool
    database: str | None = None
    migrations: str | None = None
    broker: str | None = None
    """State of the broker. It never makes the platform unready, because timers work without a broker."""


class ForeignProcess(Output):
    """A process that computes on a GPU and belongs to no job of its node."""

    pid: int
    name: str


class Slot(Output):
    """One slot of a node, and the job that holds it."""

    slot: str
    device: str
    """``cpu``, or the UUID of a GPU or a MIG device."""
    label: str
    model: str | None = None
    """Name of the GPU; None for a CPU stand-in, here and below."""
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    mig_profile: str | None = None
    """Such as ``1g.10gb``; None: it is no MIG device."""
    exec_id: str | None
    """Id of the job that holds the slot; None if the slot is free."""
    busy: bool
    leaving: bool
    """Whether the scheduler has asked for the slot back, and the end of the engine's process was not seen yet."""
    owner: str | None = None
    """Owner of the job that holds the slot. Only that user and admins get it."""
    kind: JobKind | None = None
    """Kind of that job; None if the slot is free."""
    utilisation: float | None = None
    """Recent utilisation, 0 to 1; None if unknown, here and below."""
    memory_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    ecc_errors: int | None = None
    """Errors in the GPU's memory that could not be corrected, since the driver was loaded."""
    problem: str | None = None
    """Why the GPU does not answer, so that no engine starts there; None: it does."""
    foreign_processes: list[ForeignProcess] = Field(default_factory=list)


class Node(Output):
    """One node."""

    name: str
    host: str
    cores: int
    health: str
    """``up``, ``cordoned``, ``draining`` or ``lost``."""
    health_since: float | None = None
    """None if unknown."""
    launcher: str = "process"
    """How the node starts jobs: ``process`` or ``docker``."""
    registered_at: float
    seen_at: float
    lease_age_seconds: float = 0.0
    """Seconds between the agent's last request and this answer."""
    slots: list[Slot]
    pool: str | None = None
    """The pool from whose cluster manager it comes; None: it is a machine of its own."""
    only_for: str | None = None
    """Id of the only job that may use it; None: any job."""
    leaving_why: str | None = None
    """Why it is being emptied; None: it is not, or an admin has asked for it."""


class NodePage(Page[Node]):
    """Nodes, in the order in which they first registered."""


class SlotUsage(Output):
    """How busy a slot was: columns of equal length, oldest value first."""

    time: list[float]
    utilisation: list[float | None]
    """0 to 1."""
    memory_bytes: list[int | None]
    power_watts: list[float | None]
    temperature_c: list[float | None]


class NodeUsage(Output):
    """How busy a node's slots were."""

    now: float
    since: float
    until: float
    slots: dict[str, SlotUsage]


class NewImage(UserInput):
    """An image that every job may name from now on."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    everywhere: bool = False
    """Whether every node that starts containers fetches the image before a job needs it."""


class ImageOnNode(Output):
    """Whether one node has fetched an image. Times are in seconds since the epoch."""

    node: str
    asked_at: float
    done_at: float | None
    """When the node had the image or failed to get it; None while the node is fetching it."""
    error: str | None
    """Why the node could not fetch the image; None if the node has it or is fetching it."""


class Image(Output):
    """An image that every job may name."""

    name: str
    allowed_by: str
    allowed_at: float
    everywhere: bool
    nodes: list[ImageOnNode]


class ImagePage(Page[Image]):
    """Images, oldest first."""

    patterns: list[str]
    """Patterns of EDT_IMAGES. Jobs may also name any image that matches one of them."""


class RoleName(enum.StrEnum):
    """What a user may do."""

    ADMIN = "admin"  # sees every job, manages nodes and users
    USER = "user"  # submits jobs, sees and stops only the user's own
    VIEWER = "viewer"  # sees every job, changes nothing


class ScopeName(enum.StrEnum):
    """What an API token allows. Each scope includes those before it."""

    READ = "read"  # whatever changes nothing
    SUBMIT = "submit"  # to submit jobs, and to stop and delete the user's own
    ADMIN = "admin"  # all that the role of its user allows


MOST_NAME = 64
LEAST_PASSWORD, MOST_PASSWORD = 8, 1024
Password = Annotated[str, Field(min_length=LEAST_PASSWORD, max_length=MOST_PASSWORD)]


class User(Output):
    """One user."""

    name: str
    role: RoleName
    created_at: float


class UserPage(Page[User]):
    """Users, by name."""


class NewUser(UserInput):
    """A user to be added."""

    name: Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
    password: Password
    role: RoleName = RoleName.USER


class NewPassword(UserInput):
    """A password to be set. The new password ends all tokens of its user, API tokens too."""

    password: Password
    current_password: Annotated[str, Field(max_length=MOST_PASSWORD)] | None = None
    """Users who set their own password send their current one, too. An admin who sets another user's password
    omits it.
    """


MOST_TOKEN_DAYS = 366
USUAL_TOKEN_DAYS = 30


class NewApiToken(UserInput):
    """An API token to be made for the caller."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """What the caller calls it, to know it again in the list."""
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=3, default_factory=lambda: [ScopeName.READ])]
    """What it allows. Each scope includes those before it, so ``["submit"]`` and ``["read", "submit"]`` are the same.
    The role of the caller must allow it.
    """
    days: Annotated[int, Field(ge=1, le=MOST_TOKEN_DAYS)] | None = USUAL_TOKEN_DAYS
    """For how many days it is valid; null: until it is revoked."""


class ApiToken(Output):
    """An API token without its secret."""

    id: int
    user: str
    name: str
    scopes: list[ScopeName]
    created_at: float
    expires_at: float | None
    """Null: it does not expire."""
    last_used_at: float | None
    """When it was last used, to within some minutes; null: never."""


class MadeApiToken(ApiToken):
    """A new API token, with its secret."""

    token: str
    """The secret. No other answer holds it, and the server keeps only its SHA-256. Clients send it as
    ``Authorization: Bearer`` or ``X-Auth-Token``.
    """


class ApiTokenPage(Page[ApiToken]):
    """API tokens of one user, oldest first."""


class NewSession(UserInput):
    """The name and the password of a user who signs in.

    The password has no least length: one that is too short to be set is answered as a wrong password.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    password: Annotated[str, Field(max_length=1024)]


class Me(Output):
    """The user who sent the request, and the version of the server."""

    name: str
    role: RoleName
    version: str
    """Version of the server."""


class SlotTime(Output):
    """For how many hours the jobs of a user have held slots on one day."""

    day: int
    """Start of the day in UTC, in seconds since the epoch."""
    user: str
    slot_hours: float


class SlotTimePage(Page[SlotTime]):
    """Slot hours of users, newest day first."""


class TimelineJob(Output):
    """A job that occurs in the timeline."""

    state: ExecState
    owner: str | None
    """None if the job belongs to another user and the caller is no admin. The same holds for ``app_name``."""
    app_name: str | None
    kind: JobKind = JobKind.ELASTIC
    removed: bool = False
    """Whether the job was removed. It cannot be opened any more, but its bars stay."""


class TimelineAllocation(Output):
    """A bar of the timeline: one job held one slot from one time to another."""

    allocation: int
    exec_id: str
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    """When the engine's process was started."""
    counted_at: float | None
    """When a step with the engine's first micro-batch was committed."""
    released_at: float | None
    kind: str | None
    """How the allocation ended."""


class TimelineResize(Output):
    """A mark of the timeline: one change of a job's size."""

    number: int
    exec_id: str
    cause: str
    time: float
    from_slots: int
    to_slots: int
    pause_seconds: float | None
    recomputed: int | None
    """How many micro-batches were computed again."""
    detail: str | None


class TimelineFailure(Output):
    """A mark of the timeline: one lost engine, all engines of a job on a lost node, or a failure of a whole attempt.

    ``slot`` is None for a lost node. ``node`` is None for a whole attempt. The stream may send a failure again: job,
    time, node and slot identify it.
    """

    exec_id: str
    node: str | None
    slot: str | None
    time: float
    kind: str
    """``lost``, ``script-error`` or ``pull-failed``."""
    message: str | None


class Timeline(Output):
    """Everything that overlaps the time from ``since`` to ``until``."""

    now: float
    since: float
    until: float
    earliest: float | None
    """When a job was first given a slot on this platform; None if never."""
    nodes: list[Node]
    jobs: dict[str, TimelineJob]
    allocations: list[TimelineAllocation]
    resizes: list[TimelineResize]
    failures: list[TimelineFailure]


class JobsChanged(Output):
    """``event: jobs``: jobs that are new or have changed, and ids of jobs that were removed."""

    items: list[Job]
    removed: list[str]


class NodesChanged(Output):
    """``event: nodes``: nodes that are new or have changed, and names of nodes that were removed."""

    items: list[Node]
    removed: list[str]


class TimelineChanged(Output):
    """``event: timeline``: bars and marks that are new or have changed."""

    allocations: list[TimelineAllocation]
    resizes: list[TimelineResize]
    failures: list[TimelineFailure]


class Beat(Output):
    """``event: hello``, ``reset``, ``beat`` or ``bye``.

    ``hello``: the stream begins, and the client should fetch the lists. ``reset``: the client has missed too much, and
    should fetch the lists again. ``beat``: the stream is alive. It is sent when a stream is resumed, and when nothing
    else was sent for ten seconds. ``bye``: the credential has ended.
    """

    now: float


class SlotOffer(AgentInput):
    """One slot that an agent registers."""

    slot: Annotated[str, Field(min_length=1, max_length=64)]
    device: Annotated[str, Field(min_length=1, max_length=256)] = "cpu"
    label: Annotated[str, Field(max_length=256)] = ""
    model: Annotated[str, Field(max_length=256)] | None = None
    memory_total_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    compute_capability: Annotated[str, Field(max_length=16)] | None = None
    mig_profile: Annotated[str, Field(max_length=64)] | None = None


class NodeOffer(AgentInput):
    """A node that registers. Its credential is the join token."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    host: Annotated[str, Field(min_length=1, max_length=255)]
    cores: Annotated[int, Field(ge=1, le=65536)]
    boot_id: Annotated[str, Field(min_length=1, max_length=64)]
    incarnation: Annotated[str, Field(min_length=1, max_length=64)]
    slots: Annotated[list[SlotOffer], Field(max_length=1024)]
    launcher: Annotated[str, Field(pattern=r"^[a-z-]{1,32}$")] = "process"
    """How the node starts jobs: ``process``, ``docker`` or ``docker-fixed``. Containers of ``docker-fixed`` keep the
    GPUs with which they started.
    """
    alone: bool = False
    """Whether the node's containers have a network of their own. Its engines and those of other nodes then cannot reach
    each other.
    """


class LeavingIn(AgentInput):
    """A node of a pool that wants to leave, or has left."""

    why: Annotated[str, Field(max_length=4096)]
    """Why, in words."""
    if_idle: bool = False
    """Whether it leaves only if no job uses it."""
    gone: bool = False
    """Whether no process of any job is left there."""


class Leaving(Output):
    """Answer to a node that wants to leave."""

    leave: bool
    """Whether it may leave."""


class Registered(Output):
    """Answer to a node that registers."""

    node: str
    token: str
    """The node's own credential from now on. Earlier tokens of a node of this name are not valid any more."""
    queue: str
    """Celery queue of the node's notifications."""
    broker_url: str | None
    """None: there are no notifications, and the agent must use long polls."""


class Assignments(Output):
    """What a node should be running: one object for each attempt, with its job, its fence and its slots."""

    version: int
    assignments: list[dict[str, Any]]
    images: list[str] = Field(default_factory=list)
    """Container images that the node should fetch before a job needs them."""


class PulledIn(AgentInput):
    """Whether a node has got an image that it was asked to fetch."""

    image: Annotated[str, Field(min_length=1, max_length=255)]
    error: Annotated[str, Field(max_length=4096)] = ""
    """Why the node cannot get the image; "" if the node has it."""


class ReportIn(AgentInput):
    """A report of what happened to an attempt on a node. ``seq`` numbers the reports without a gap."""

    job: Annotated[str, Field(min_length=1, max_length=64)]
    fence: Annotated[int, Field(ge=1, le=2**31 - 1)]
    node: Annotated[str, Field(min_length=1, max_length=63)]
    seq: Annotated[int, Field(ge=1, le=2**62)]
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    time: Annotated[float, Field(allow_inf_nan=False)]
    body: dict[str, Any] = Field(default_factory=dict)


class Acked(Output):
    """The last accepted report number of each attempt, such as ``{"edt-7/2": 41}``."""

    acked: dict[str, int]


class ForeignProcessIn(AgentInput):
    """A process that computes on a GPU and belongs to no job of its node."""

    pid: Annotated[int, Field(ge=1, lt=1 << 31)]
    name: Annotated[str, Field(max_length=256)] = ""


class SlotSample(AgentInput):
    """How busy one slot was since its previous sample."""

    slot: Annotated[str, Field(min_length=1, max_length=64)]
    utilisation: Annotated[float, Field(ge=0, le=1)] | None = None
    memory_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    memory_total_bytes: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    power_watts: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    temperature_c: Annotated[float, Field(allow_inf_nan=False)] | None = None
    ecc_errors: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    problem: Annotated[str, Field(max_length=1024)] | None = None
    foreign_processes: Annotated[list[ForeignProcessIn], Field(max_length=256)] = Field(default_factory=list)


class UsageIn(AgentInput):
    """How busy a node's slots were. The time of the sample is the time of its arrival."""

    slots: Annotated[list[SlotSample], Field(max_length=1024)]
