"""Shapes of jobs and their history. The base classes of all shapes come first.

``Exec``, ``Framework`` and ``Logon`` are WMLA's. They have its names and are flat. They hold scalars only where WMLA's
notebooks make a table of them (``DataFrame(body, index=[0])``).
"""

from __future__ import annotations

import enum
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

_Item = TypeVar("_Item")


class Output(BaseModel):
    """Part of an answer; made from the scheduler's views by their attributes."""

    model_config = ConfigDict(
        from_attributes=True,
        extra="ignore",
        json_schema_serialization_defaults_required=True,  # answers hold every field, with or without a default
    )


class UserInput(BaseModel):
    """A request of a person: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid")


class AgentInput(BaseModel):
    """A request of an agent: keys of a newer version are dropped."""

    model_config = ConfigDict(extra="ignore")


class Page(Output, Generic[_Item]):
    """A part of a list."""

    items: list[_Item]
    next: str | None
    """``cursor`` of the page that follows; None: this is the last."""


class ExecState(enum.StrEnum):
    """The six states that clients are shown; a notebook's poller goes on in the first three."""

    SUBMITTED = "SUBMITTED"  # the job is stored; the scheduler has not considered it yet
    PENDING = "PENDING_CRD_SCHEDULER"  # the job waits for slots
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script ended without an error
    KILLED = "KILLED"  # a user stopped the job
    ERROR = "ERROR"  # the script failed

    @property
    def over(self) -> bool:
        """Nothing of the job runs any more, nor ever will."""
        return self in {ExecState.FINISHED, ExecState.KILLED, ExecState.ERROR}


class Exec(Output):
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


class Framework(Output):
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


class Logon(Output):
    """Answer of ``GET /auth/v1/logon``."""

    accessToken: str  # noqa: N815
    """To be shown as ``Authorization: Bearer`` or ``X-Auth-Token``; all tokens are equally long."""
    username: str
    role: str
    """``Admin`` or ``User``, as WMLA writes them."""
    expiresIn: int  # noqa: N815
    """Seconds for which the token holds."""


class Message(Output):
    """A sentence."""

    message: str


class Waiting(Output):
    """Why a job holds no slot, with numbers."""

    blocking: str
    """``capacity``, ``cooldown``, ``vacating`` or ``nodes`` (none is up)."""
    reason: str
    rank: int
    """Place among the waiting jobs, 1 is next."""
    need: int
    free: int


class Exactness(Output):
    """Whether a result has the bits of an undisturbed training on one engine, as far as that was checked."""

    verdict: Literal["exact", "not-compared", "not-exact"]
    """``exact``: all engines were compared since the last one joined, and were equal. ``not-compared``: nothing speaks
    against it, and nothing was compared. ``not-exact``: something has ended the guarantee."""
    reason: str
    """Why, in a sentence. Where engines differ: the engine, the step, and the first tensor or setting."""
    comparisons: int
    """How often the states of all engines were compared and were equal."""
    compared_step: int | None
    """At which step that was last."""


class Progress(TypedDict, total=False):
    """How far a training is, by its newest report; empty before the first. None: a number that is none, as of a loss
    that has diverged."""

    step: int | None
    steps_total: int | None
    epoch: int | None
    epochs: int | None
    workers: int | None
    loss: float | None
    samples_per_second: float | None
    """While it trains: of late, validations left out. Of a job that is over: the median of its training."""
    metrics: dict[str, float | None]
    time: float
    """The node's clock."""


class Job(Output):
    """One job with all that we know of it."""

    id: str
    owner: str
    owner_removed: bool = False
    """That user was removed; another one may have the name now."""
    state: ExecState
    status: Literal["submitted", "waiting", "starting", "running", "stopping", "finished", "stopped", "failed"]
    """The state as people see it. ``starting``: it holds slots, and its attempt has yet to report its start.
    ``stopping``: its stop was asked for, and processes of it are left."""
    framework: str
    app_name: str
    """What its user calls it, else its script or folder. WMLA's calls name its framework's then."""
    args: str
    num_worker: int
    worker_device_num: int
    max_workers: int
    """num_worker x worker_device_num: the most slots it may hold."""
    min_workers: int = 1
    """The fewest with which it goes on."""
    max_restarts: int = 0
    """How often it may start again after an exception of its script."""
    restarts: int = 0
    """How often it has."""
    created_at: float
    started_at: float | None
    finished_at: float | None
    stop_requested_at: float | None
    attempts: int
    engines: int | None
    """E, once the training has begun."""
    steps_total: int | None
    epochs: int | None
    slots: int
    """Slots held now, those being vacated included."""
    workers: int
    """W: engines that count now."""
    progress: Progress
    share_done: float | None = None
    """The share of its steps that it has done, 0 to 1. Below 1 where a training ended early; None: not known yet."""
    eta_seconds: float | None = None
    """Until its last step, at the speed of late; None: it does not train, or nothing is known yet."""
    message: str | None
    """Why it ended, or, until another attempt runs, why the last one did."""
    digest: str | None
    """SHA-256 of the trained state."""
    exactness: Exactness
    checkpoint_step: int | None
    seed: int
    threads: int
    waiting: Waiting | None
    work_dir: str
    image: str | None = None
    """Of its containers, where it has asked for its own."""
    results_removed_at: float | None = None
    """Since when its results, checkpoints and logs are removed because of their age; None: they are not."""
    results_days: float | None = None
    """For so many days they were kept, as the administrator set."""
    results_removed: str | None = None
    """Both in a sentence, as ``410 results-removed`` says it where they are asked for."""


class ResultState(Output):
    """What a job has saved so far, for who wants to download it."""

    bytes: int | None
    """Size of the zip; None: there is nothing."""
    missing: str | None
    """Why there is nothing, in a sentence."""


class JobPage(Page[Job]):
    """Jobs, newest first."""

    total: int
    """How many the filter finds."""


class Resize(Output):
    """One change of a job's size: what was decided, what woke the agent, when each thing happened."""

    number: int
    exec_id: str
    fence: int
    cause: str
    detail: str
    from_slots: int
    to_slots: int
    decided_at: float
    notified_at: float | None
    """The notification of the node was sent."""
    woken_by: str | None
    """``notification``, ``timer`` or ``start``."""
    woken_at: float | None
    started_at: float | None
    joined_at: float | None
    first_step_at: float | None
    gone_at: float | None
    generation: int | None
    step: int | None
    workers: int | None
    pause_seconds: float | None
    recomputed: int | None = None
    """Micro-batches that were done again, since an engine died with them."""


class ResizePage(Page[Resize]):
    """A job's resizes, oldest first."""


class Allocation(Output):
    """One slot held by one job for a while."""

    allocation: int
    exec_id: str
    fence: int
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    """The engine's process exists."""
    joined_at: float | None
    """It has the weights."""
    counted_at: float | None
    """Its first micro-batch is in a committed step."""
    release_asked_at: float | None
    released_at: float | None
    """Its process was seen gone."""
    kind: str | None
    """How it ended: ``finished``, ``left``, ``pull-failed``, ``script-error``, ``lost`` or ``stopped``."""


class AllocationPage(Page[Allocation]):
    """The slots that a job held, oldest first."""


class Event(Output):
    """One line of a job's history; ``seq`` runs 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    fence: int
    message: str
    data: dict[str, Any]


class EventPage(Page[Event]):
    """A job's history, oldest first."""


class Metrics(Output):
    """The metrics of a training in columns of one length, oldest first; ``step`` only grows.

    Of many points these are the ones that keep the shape, the first and the last among them. What an attempt did
    beyond the checkpoint from which the next one went on was done again, and is shown once. None: not reported.
    """

    step: list[int]
    time: list[float]
    """The node's clock."""
    epoch: list[int | None]
    workers: list[int | None]
    loss: list[float | None]
    samples_per_second: list[float | None]
    metrics: dict[str, list[float | None]]
    total: int
    """How many points there are."""


class LogFile(Output):
    """One file of a job's log."""

    stream: str
    """``elog``, ``out``, ``err``, or an engine's: ``engine-12.out``."""
    bytes: int


class LogFilePage(Page[LogFile]):
    """The files of a job's log, the driver's first."""
