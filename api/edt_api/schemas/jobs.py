"""Shapes of jobs and their history. The base classes of all shapes come first.

``Exec``, ``Framework`` and ``Logon`` are WMLA's. They have its names and are flat. They hold scalars only where WMLA's
notebooks make a table of them (``DataFrame(body, index=[0])``).
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
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
    """``cursor`` of the next page; None if this page is the last."""


class ExecState(enum.StrEnum):
    """The six states that clients see. A notebook that polls a job continues in the first three."""

    SUBMITTED = "SUBMITTED"  # the job is stored; the scheduler has not considered it yet
    PENDING = "PENDING_CRD_SCHEDULER"  # the job waits for slots
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script ended without an error
    KILLED = "KILLED"  # a user stopped the job
    ERROR = "ERROR"  # the script failed

    @property
    def over(self) -> bool:
        """Whether the job has ended for good."""
        return self in {ExecState.FINISHED, ExecState.KILLED, ExecState.ERROR}


class JobKind(enum.StrEnum):
    """Whether the number of a job's processes may change."""

    ELASTIC = "elastic"  # it trains with as many engines as there are slots for, from one up
    GANG = "gang"  # all of its processes start together, and their number never changes


class Exec(Output):
    """One job as WMLA's clients read it.

    It has the fields that three generations of these clients read. All of them are scalars.
    """

    id: str
    args: str
    """The args as the client sent them, with secret values masked."""
    submissionId: str  # noqa: N815 - WMLA's names, here and below
    creator: str
    state: ExecState
    appId: str  # noqa: N815
    schedulerUrl: str  # noqa: N815
    modelFileOwnerName: str  # noqa: N815
    workDir: str  # noqa: N815
    appName: str  # noqa: N815
    createTime: str  # noqa: N815
    """A time such as ``2026-11-21T12:00:00Z``."""
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
    """One entry of ``GET /execs/frameworks``, in the form of WMLA 2.x."""

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
    elastic: bool
    """Whether its jobs grow and shrink. This and the fields below are not WMLA's."""
    processes: str
    """For what each process is started: ``device``, ``worker`` or ``job``; empty for an elastic framework."""
    command: list[str]
    """What a process runs; empty for an elastic framework."""
    addedBy: str | None  # noqa: N815
    """Name of the admin who added it; None: it is built in."""


class Logon(Output):
    """Answer of ``GET /auth/v1/logon``."""

    accessToken: str  # noqa: N815
    """Clients send the token as ``Authorization: Bearer`` or ``X-Auth-Token``. It is a JWT, and all have the same
    length.
    """
    username: str
    role: str
    """``Admin``, ``User`` or ``Viewer``, as WMLA writes them."""
    expiresIn: int  # noqa: N815
    """For how many seconds the token is valid."""


class Message(Output):
    """An answer that is one sentence."""

    message: str


class Waiting(Output):
    """Why a job holds no slot, with numbers."""

    blocking: str
    """``capacity``, ``cooldown``, ``vacating`` or ``nodes`` (no node is up)."""
    reason: str
    rank: int
    """Place among the waiting jobs; the job with 1 is next."""
    need: int
    free: int


class Exactness(Output):
    """Whether a result has the bits of an undisturbed training on one engine, as far as that was checked."""

    verdict: Literal["exact", "not-compared", "not-exact", "not-applicable"]
    """``exact``: all engines were compared after the last one joined, and were equal. ``not-compared``: no comparison
    took place, and nothing is known against exactness. ``not-exact``: an event has ended the guarantee.
    ``not-applicable``: the job is a gang, of whose results the platform says nothing.
    """
    reason: str
    """The reason in a sentence. If engines differ, it names the engine, the step, and the first tensor or setting."""
    comparisons: int
    """How many comparisons of the states of all engines found them equal."""
    compared_step: int | None
    """The step of the last such comparison."""


class Progress(TypedDict, total=False):
    """How far a training is, by its newest report; empty before the first report. None stands for a value that is not
    finite, such as a loss that has diverged.
    """

    step: int | None
    steps_total: int | None
    epoch: int | None
    epochs: int | None
    workers: int | None
    loss: float | None
    samples_per_second: float | None
    """Of a running training: the recent speed of its training steps, without validations, hooks and files. Of a job
    that is over: the mean of its training.
    """
    metrics: dict[str, float | None]
    time: float
    """Time on the node's clock."""


class Validation(Output):
    """The newest validation of a job."""

    step: int
    """How many training steps were done before it."""
    epoch: int | None = None
    """After which epoch it was, from 1 on."""
    time: float
    """Time on the node's clock."""
    workers: int | None = None
    samples: int | None = None
    """How many samples it had."""
    seconds: float | None = None
    """How long it took."""
    metrics: dict[str, float | None]
    """Its metrics by names such as ``val_loss``. None stands for a value that is not finite."""


class BestValue(Output):
    """The best value of a metric, over all validations of a job."""

    value: float
    epoch: int | None = None
    step: int


class BestModel(Output):
    """The model that a job keeps because it is the best so far."""

    metric: str
    """The metric by which it is the best, such as ``val_accuracy``."""
    mode: Literal["min", "max"] | None = None
    """Whether the metric is best when it is small or when it is large."""
    value: float
    epoch: int | None = None
    step: int | None = None
    file: str | None = None
    """Name of its files in the result, without their endings."""


class MainMetric(Output):
    """The metric that a list of jobs shows."""

    name: str
    value: float | None
    """None stands for a value that is not finite."""


class JobOption(Output):
    """One of the platform's options that a job was submitted with."""

    name: str
    """The option, such as ``--numWorker``, or its path in the form's ``data``, such as ``hardwareSpec.nodes.mem.size``.
    """
    values: list[str]
    """Its values in their order, of which most options have one. Secret values are masked."""
    effect: bool
    """Whether the option does something on this platform. The others are checked and recorded."""


class Job(Output):
    """One job with everything that the platform knows about it."""

    id: str
    owner: str
    owner_removed: bool = False
    """Whether the owner was removed as a user. Another user may have the name now."""
    state: ExecState
    status: Literal[
        "submitted",
        "waiting",
        "starting",
        "running",
        "pausing",
        "paused",
        "stopping",
        "finished",
        "stopped",
        "failed",
    ]
    """The state as people see it. ``starting``: the job holds slots, and its attempt has not reported its start yet.
    ``pausing``: its user has paused the job, and some of its processes still run; ``paused``: none does, except on
    nodes that are lost.
    ``stopping``: the job was asked to stop, and some of its processes still run.
    """
    kind: JobKind = JobKind.ELASTIC
    processes: int | None = None
    """How many processes a gang has; None: the job is elastic."""
    framework: str
    app_name: str
    """The name that the user gave to the job, or else its script or folder. WMLA's calls name the framework in that
    case.
    """
    args: str
    options: list[JobOption] = []
    """The platform's options in the order in which they were given."""
    remark: str | None = None
    """What is to be known of the submission, such as a word that looks like a misspelt option of the platform."""
    num_worker: int
    worker_device_num: int
    max_workers: int
    """The most slots that the job may hold: num_worker x worker_device_num, or what it was changed to later."""
    min_workers: int = 1
    """The fewest slots with which the job trains. Of a gang: ``max_workers``."""
    sizes: list[int] = []
    """The only numbers of slots that the job may have, smallest first; empty: those that suit its steps."""
    queue: str = ""
    """Path of the queue that the job was submitted to, such as ``/research/vision``; empty: the root. If there is no
    such queue, the job belongs to the nearest one above it.
    """
    priority: int = 1
    """Jobs of a higher priority come first."""
    after: list[str] = []
    """Jobs that must have finished before this one starts."""
    deadline: float | None = None
    """When its user wants it to be done; None: no matter when."""
    time_limit: float | None = None
    """Seconds that its attempts may run in all; None: no limit."""
    gpu_models: list[str] = []
    """The only models of GPUs that the job gets, in lower case; empty: any."""
    max_restarts: int = 0
    """How often the job may start again after an exception of its script."""
    restarts: int = 0
    """How often the job has started again after an exception of its script."""
    created_at: float
    started_at: float | None
    finished_at: float | None
    stop_requested_at: float | None
    paused_at: float | None = None
    """Since when a user has paused the job; None: it is not paused, or is over."""
    paused_by: str | None = None
    """Name of the user who paused it."""
    wanted_epochs: int | None = None
    """The epochs that a user gave its training in all; None: those of its script."""
    resumed_from: str | None = None
    """The job from whose checkpoint this one began; None: it began anew. That job may be gone."""
    resumed_step: int | None = None
    """The step of that checkpoint."""
    attempts: int
    engines: int | None
    """E; None until the training has begun."""
    steps_total: int | None
    epochs: int | None
    slots: int
    """How many slots the job holds now, including slots that it is vacating."""
    workers: int
    """W: how many engines are in the newest membership."""
    progress: Progress
    efficiency: float | None = None
    """The share of its engines' time that is forward and backward pass, 0 to 1, over some seconds of its training;
    ``GET /api/v1/jobs/{id}/step-times`` has the rest. None until it is reported.
    """
    mean_samples_per_second: float | None = None
    """Samples per second of all training steps so far, over all attempts, without validations; None if unknown."""
    validation: Validation | None = None
    """The newest validation; None if there was none."""
    best: dict[str, BestValue] = {}
    """The best value of each metric of the validations, by its name. A metric that is named like an accuracy is best
    when it is large, all others when they are small.
    """
    best_model: BestModel | None = None
    """The model that the job keeps as the best; None if it keeps none."""
    main_metric: MainMetric | None = None
    """The metric to show where there is room for one: a validation's first one besides its loss, else a validation's
    loss, else the training's loss; None before the first report.
    """
    share_done: float | None = None
    """The share of the steps that is done, 0 to 1. It stays below 1 if a training ends early; None if unknown."""
    ended_early: str | None = None
    """Of a finished job whose training ended before its last step: where, such as ``ended early at epoch 3 of 10``."""
    eta_seconds: float | None = None
    """Seconds until the last step at the recent speed; None if the job does not train or the speed is unknown."""
    message: str | None
    """Why the job ended. Before the next attempt runs: why the last attempt ended."""
    digest: str | None
    """SHA-256 of the trained state."""
    exactness: Exactness
    checkpoint_step: int | None
    """The step of the newest recovery checkpoint; None: there is none."""
    kept: str | None = None
    """Of a job that was stopped or has failed: up to which step its training is kept, and how to go on from there, in a
    sentence. None if nothing is kept."""
    seed: int
    threads: int
    waiting: Waiting | None
    work_dir: str
    image: str | None = None
    """The image of the job's containers, if the job named one."""
    results_removed_at: float | None = None
    """When the job's results, checkpoints and logs were removed because of their age; None if they were not."""
    results_days: float | None = None
    """How many days the files were kept after the job's end, as the administrator set."""
    results_removed: str | None = None
    """Both values in a sentence, which is also the message of ``410 results-removed``."""


class Epochs(UserInput):
    """The epochs that a job's training shall have in all."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000_000)]
    environ: dict[str, str] = {}
    """Of a job that is over: values of the variables that it was given, which the platform removed at its end."""


class Changed(Output):
    """A job after a change that its user asked for."""

    job: Job
    """The job; of one that was over, the new job that goes on."""
    message: str
    """What happens now, in a sentence."""


class ResultState(Output):
    """Whether a job has a result to download, and its size."""

    bytes: int | None
    """Size of the zip in bytes; None if there is no result."""
    missing: str | None
    """Why there is no result, in a sentence; None if there is one."""


class JobPage(Page[Job]):
    """Jobs, newest first."""

    total: int
    """How many jobs match the filter."""


class Resize(Output):
    """One change of a job's size: the decision, what woke the agent, and the time of each step."""

    number: int
    exec_id: str
    fence: int
    cause: str
    detail: str
    from_slots: int
    to_slots: int
    decided_at: float
    notified_at: float | None
    """When the node's notification was sent."""
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
    """How many micro-batches were computed again because an engine died with them."""


class ResizePage(Page[Resize]):
    """A job's resizes, oldest first."""


class Allocation(Output):
    """One job held one slot from one time to another."""

    allocation: int
    exec_id: str
    fence: int
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    """When the engine's process was started."""
    joined_at: float | None
    """When the engine had the weights."""
    counted_at: float | None
    """When a step with the engine's first micro-batch was committed."""
    release_asked_at: float | None
    released_at: float | None
    """When the engine's process was seen gone."""
    kind: str | None
    """How the allocation ended: ``finished``, ``left``, ``pull-failed``, ``script-error``, ``lost`` or ``stopped``."""


class AllocationPage(Page[Allocation]):
    """The slots that a job held, oldest first."""


class Rank(Output):
    """One process of a gang's newest attempt."""

    rank: int
    fence: int
    """Number of the attempt."""
    node: str
    slots: list[str]
    """The slots that the process uses on its node."""
    started_at: float | None
    ended_at: float | None
    """When the process was seen gone."""
    kind: str | None
    """How the process ended: ``finished``, ``left``, ``script-error``, ``lost`` or ``stopped``."""


class RankPage(Page[Rank]):
    """The processes of a gang that were started, by rank."""


class Event(Output):
    """One event of a job's history. ``seq`` numbers the events 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    fence: int
    message: str
    data: dict[str, Any]


class EventPage(Page[Event]):
    """A job's history, oldest first."""


class ValidationMetrics(Output):
    """The validations of a training: columns of equal length, oldest value first. ``step`` only grows."""

    step: list[int]
    time: list[float]
    """Times on the node's clock."""
    epoch: list[int | None]
    metrics: dict[str, list[float | None]]
    """Columns by names such as ``val_loss``."""
    total: int
    """How many validations there are in all."""


class Metrics(Output):
    """The metrics of a training: columns of equal length, oldest value first. ``step`` only grows.

    If there are too many points, the answer holds those that keep the shape of the loss, with the first and the last
    point. An attempt repeats the steps that the previous attempt did after its last checkpoint. Such a step occurs
    once, with its newest values. None: the value was not reported.
    """

    step: list[int]
    time: list[float]
    """Times on the node's clock."""
    epoch: list[int | None]
    workers: list[int | None]
    loss: list[float | None]
    samples_per_second: list[float | None]
    metrics: dict[str, list[float | None]]
    total: int
    """How many points the curve has in all."""
    validation: ValidationMetrics
    """The validations, in columns of their own: each has a step, an epoch and a time."""


class LogFile(Output):
    """One file of a job's log."""

    stream: str
    """``training``, ``elog``, ``out``, ``err``, or that of a process: ``engine-12.out`` of an engine, ``rank-0.out`` of
    a gang's.
    """
    bytes: int


class LogFilePage(Page[LogFile]):
    """The files of a job's log: first the log of the training, the loggers' lines and the driver's output, then those
    of engines or ranks.
    """
