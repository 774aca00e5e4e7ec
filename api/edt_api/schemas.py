"""What crosses the wire, as shapes. Room: api. Touches pydantic alone: the CLI reads it without a server.

``Exec`` and ``Framework`` have WMLA's names and are flat (notebooks do ``DataFrame(body, index=[0])``);
all else is ours, under ``/api/v1``. Times are seconds since the epoch where nothing else is said; None: not yet.
What a person sends must not hold unknown keys; of what an agent of another version sends they are dropped.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class _Shown(BaseModel):
    """A picture we hand out; readable from the scheduler's views as they are."""

    model_config = ConfigDict(from_attributes=True, extra="ignore")


class _Typed(BaseModel):
    """Something a person sends: a misspelt key is told, not dropped."""

    model_config = ConfigDict(extra="forbid")


class _Told(BaseModel):
    """Something an agent sends: keys of a newer version are dropped."""

    model_config = ConfigDict(extra="ignore")


# --- the WMLA surface -------------------------------------------------------------------------------------


class ExecState(enum.StrEnum):
    """The six states that clients are shown; a notebook's poller goes on in the first three."""

    SUBMITTED = "SUBMITTED"  # durable; no scheduler has looked at it yet
    PENDING = "PENDING_CRD_SCHEDULER"  # waits for slots
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script came to its end
    KILLED = "KILLED"  # stopped on its user's word
    ERROR = "ERROR"  # the script failed

    @property
    def over(self) -> bool:
        """Nothing of the job runs any more, nor ever will."""
        return self in {ExecState.FINISHED, ExecState.KILLED, ExecState.ERROR}


class Exec(_Shown):
    """One job as WMLA's clients read it: what three generations of them look at, scalars only."""

    id: str
    args: str
    """As they came, ``--msd-env`` values masked."""
    submissionId: str  # noqa: N815 - WMLA's names, here and below
    creator: str
    state: ExecState
    appId: str  # noqa: N815
    schedulerUrl: str  # noqa: N815
    modelFileOwnerName: str  # noqa: N815
    workDir: str  # noqa: N815
    appName: str  # noqa: N815
    createTime: str  # noqa: N815
    """``2026-11-21T12:00:00Z``"""
    elastic: bool
    nameSpace: str  # noqa: N815
    numWorker: int  # noqa: N815
    framework: str
    userName: str  # noqa: N815
    sigName: str  # noqa: N815
    sigId: str  # noqa: N815
    masterURL: str  # noqa: N815
    executionUserName: str  # noqa: N815


class Framework(_Shown):
    """One entry of ``GET /execs/frameworks``, as WMLA 2.x gives it."""

    name: str
    description: str
    desc: list[str]
    deployMode: str  # noqa: N815
    hasTask0: str  # noqa: N815
    execMode: str  # noqa: N815
    appName: str  # noqa: N815
    numWorkers: int  # noqa: N815
    maxWorkers: int  # noqa: N815
    workerMemory: str  # noqa: N815
    frameworkCmdGenerator: str  # noqa: N815
    backend: str
    prebuiltModelMain: str  # noqa: N815
    prebuiltModelDir: str  # noqa: N815
    frameworkVersion: str  # noqa: N815
    exports: dict[str, str]
    numPs: int  # noqa: N815
    distributeStrategy: str  # noqa: N815


class Logon(_Shown):
    """Answer of ``GET /auth/v1/logon``."""

    accessToken: str  # noqa: N815
    """To be shown as ``Authorization: Bearer`` or ``X-Auth-Token``; all tokens are equally long."""
    username: str
    role: str
    """``Admin`` or ``User``, as WMLA writes them."""
    expiresIn: int  # noqa: N815
    """Seconds for which the token holds."""


class Message(_Shown):
    """A sentence."""

    message: str


# --- jobs -------------------------------------------------------------------------------------------------


class Waiting(_Shown):
    """Why a job holds no slot, with numbers."""

    blocking: str
    """``capacity``, ``cooldown``, ``vacating`` or ``nodes`` (none is up)."""
    reason: str
    rank: int
    """Place among the waiting jobs, 1 is next."""
    need: int
    free: int


class Job(_Shown):
    """One job with all that we know of it."""

    id: str
    owner: str
    state: ExecState
    framework: str
    app_name: str
    args: str
    num_worker: int
    worker_device_num: int
    max_workers: int
    """num_worker x worker_device_num: the most slots it may hold."""
    created_at: float
    started_at: float | None
    finished_at: float | None
    stop_requested_at: float | None
    attempts: int
    engines: int | None
    """E, once the script has told it."""
    steps_total: int | None
    epochs: int | None
    slots: int
    """Slots held now, those being vacated included."""
    workers: int
    """W: engines that count now."""
    progress: dict[str, Any]
    """step, steps_total, epoch, epochs, workers, loss, samples_per_second, metrics; empty at first."""
    message: str | None
    """Why it ended, or what its last attempt died of."""
    digest: str | None
    """SHA-256 of the trained state."""
    inexact: str | None
    """What ended the guarantee of an exact result; None: it holds."""
    checkpoint_step: int | None
    seed: int
    threads: int
    waiting: Waiting | None
    work_dir: str


class Resize(_Shown):
    """One change of a job's size: what was decided, what woke the agent, when each thing happened."""

    number: int
    exec_id: str
    fence: int
    cause: str
    detail: str
    from_slots: int
    to_slots: int
    decided_at: float
    rung_at: float | None
    woken_by: str | None
    """``doorbell``, ``timer`` or ``start``."""
    woken_at: float | None
    started_at: float | None
    joined_at: float | None
    first_step_at: float | None
    gone_at: float | None
    generation: int | None
    step: int | None
    workers: int | None
    pause_seconds: float | None


class Event(_Shown):
    """One line of a job's history; ``seq`` runs 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    fence: int
    message: str
    data: dict[str, Any]


# --- nodes and time ---------------------------------------------------------------------------------------


class Slot(_Shown):
    """One slot of a node, and who holds it."""

    slot: str
    device: str
    label: str
    exec_id: str | None
    """None: free."""
    busy: bool
    leaving: bool
    """Asked back, its process not yet seen gone."""


class Node(_Shown):
    """One node."""

    name: str
    host: str
    cores: int
    health: str
    """``up``, ``cordoned``, ``draining`` or ``lost``."""
    registered_at: float
    seen_at: float
    slots: list[Slot]


class Allocation(_Shown):
    """One slot held by one job for a while."""

    allocation: int
    exec_id: str
    fence: int
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    joined_at: float | None
    counted_at: float | None
    release_asked_at: float | None
    released_at: float | None
    kind: str | None


class Timeline(_Shown):
    """Slots x time, for a picture."""

    now: float
    nodes: list[Node]
    allocations: list[Allocation]
    resizes: list[Resize]


# --- users ------------------------------------------------------------------------------------------------


class RoleName(enum.StrEnum):
    """What a user may do."""

    ADMIN = "admin"  # sees every job, runs nodes and users
    USER = "user"  # sees and stops their own jobs


Password = Annotated[str, Field(min_length=8, max_length=1024)]


class User(_Shown):
    """One user."""

    name: str
    role: RoleName
    created_at: float


class NewUser(_Typed):
    """A user to be added."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    password: Password
    role: RoleName = RoleName.USER


class NewPassword(_Typed):
    """A password to be set; it ends every token of its user."""

    password: Password


# --- agents -----------------------------------------------------------------------------------------------


class SlotOffer(_Told):
    """One slot as its agent registers it."""

    slot: Annotated[str, Field(min_length=1, max_length=64)]
    device: Annotated[str, Field(min_length=1, max_length=256)] = "cpu"
    label: Annotated[str, Field(max_length=256)] = ""


class NodeOffer(_Told):
    """A node that registers. Its credential is the join token."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    host: Annotated[str, Field(min_length=1, max_length=255)]
    cores: Annotated[int, Field(ge=1, le=65536)]
    boot_id: Annotated[str, Field(min_length=1, max_length=64)]
    incarnation: Annotated[str, Field(min_length=1, max_length=64)]
    slots: Annotated[list[SlotOffer], Field(max_length=1024)]


class Registered(_Shown):
    """What a node gets for registering."""

    node: str
    token: str
    """The node's own credential from now on; an earlier one of this name has ended."""
    queue: str
    """Celery queue on which it is rung."""
    broker_url: str | None
    """None: nobody rings, ask by long poll."""


class Assignments(_Shown):
    """What a node should be running: ``edt_runner.contract.Assignment`` objects as JSON."""

    version: int
    assignments: list[dict[str, Any]]


class ReportIn(_Told):
    """``edt_runner.contract.Report`` with its types looked at."""

    job: Annotated[str, Field(min_length=1, max_length=64)]
    fence: Annotated[int, Field(ge=1, le=2**31 - 1)]
    node: Annotated[str, Field(min_length=1, max_length=63)]
    seq: Annotated[int, Field(ge=1, le=2**62)]
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    time: Annotated[float, Field(allow_inf_nan=False)]
    body: dict[str, Any] = {}


class Acked(_Shown):
    """How far the reports of each attempt are taken: ``{"edt-7/2": 41}``."""

    acked: dict[str, int]


# --- errors and health ------------------------------------------------------------------------------------


class Problem(_Shown):
    """RFC 9457 ``application/problem+json``: every error under ``/api/v1``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    """Stable, for programs."""


class Ready(_Shown):
    """Answer of ``/readyz``: each part and what is the matter with it, ``ok`` where nothing is."""

    ready: bool
    database: str
    migrations: str
    broker: str
    """Never a reason to be unready: without a broker the timers serve."""
