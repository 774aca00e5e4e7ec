"""The frozen views of users, jobs, nodes and their history that operations return. Pure.

Times are seconds since the epoch, by the wall clock of the process that wrote the row. They are for people to read. A
field that is None has no value yet, unless its own docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edt_contract.attempt import Assignment
from edt_contract.gang import GangCommand, Processes
from edt_contract.reports import ExitKind
from edt_scheduler.model.catalogue import Framework
from edt_scheduler.model.exactness import Exactness
from edt_scheduler.model.jobs import DefaultLog
from edt_scheduler.model.progress import early_end, share_done
from edt_scheduler.model.states import Health, JobState, JobStatus, ResizeCause, Role, Scope, job_status
from edt_scheduler.model.step_times import efficiency
from edt_scheduler.model.validation import main_metric

_View = TypeVar("_View")


def view_of(view: type[_View], row: Mapping[Any, Any], /, **others: Any) -> _View:
    """Make a view from the row's columns that have the names of its fields, and from ``others``, which win."""
    return view(**{name: row[name] for name in view.__annotations__ if name in row} | others)


# ── one user, as others may see them, and API tokens ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class UserView:
    """One user. ``password_hash`` is the API's argon2 string, which operations only store and compare."""

    id: int
    """Jobs and tokens refer to this id, because a removed user's name may be given to another user."""
    name: str
    role: Role
    password_hash: str = field(repr=False)
    created_at: float
    scope: Scope = Scope.ADMIN
    """What the credential that the user shows allows at most. A password and a session allow all."""

    @property
    def is_admin(self) -> bool:
        """Whether the user may act as an admin: manage nodes and users, change other users' jobs."""
        return self.role is Role.ADMIN and self.scope is Scope.ADMIN

    @property
    def sees_all(self) -> bool:
        """Whether the user reads the jobs of all users."""
        return self.role is not Role.USER

    @property
    def may_change(self) -> bool:
        """Whether the user may change anything, for example submit a job."""
        return self.role is not Role.VIEWER and self.scope is not Scope.READ


@dataclass(frozen=True)
class ApiTokenView:
    """One API token of a user, without its secret."""

    number: int
    owner: str
    name: str
    """What the user calls it."""
    scope: Scope
    created_at: float
    expires_at: float | None
    """None: never."""
    last_used_at: float | None
    """When it was last used, to within some minutes; None: never."""


# ── a job, why it waits, its events, and lists of jobs ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Waiting:
    """Why a job holds no slot, with its place in the queue and the numbers of slots."""

    blocking: str
    """A ``plan.state.Blocking``."""
    reason: str
    rank: int
    """Place among the waiting jobs, by priority and then by number; 1 is next; 0: it is paused."""
    need: int
    """Number of slots with which the job would start."""
    free: int
    """Number of slots that are free now, on nodes that take work."""


@dataclass(frozen=True)
class JobView:
    """One job as its owner sees it. It has no environment, which may hold secrets."""

    exec_id: str
    number: int
    owner_id: int
    owner: str
    """The owner's name. If the owner was removed, another user may have this name now."""
    owner_removed: bool
    state: JobState
    framework: str
    app_name: str
    script: str
    """The main script's path in the submitted folder; empty if the job runs a command of its user."""
    folder: str
    """Name of the submitted folder; empty if files were submitted without a folder."""
    args_verbatim: str
    options: tuple[tuple[str, str], ...]
    """The platform's options as the user gave them: name and value. Secret values are masked."""
    remark: str | None
    """What the API remarked upon the submission."""
    num_worker: int
    worker_device_num: int
    max_restarts: int
    restarts: int
    """How often the job was started again after an exception of its script."""
    created_at: float
    started_at: float | None
    """First start of an attempt."""
    finished_at: float | None
    stop_requested_at: float | None
    fence: int
    """Number of attempts so far."""
    engines: int | None
    """E; None until the script has set it."""
    steps_total: int | None
    epochs: int | None
    slots: int
    """Number of slots that the job holds now, including those that it is leaving."""
    workers: int
    """W: the number of engines in the newest generation."""
    progress: Mapping[str, Any]
    """Body of the newest PROGRESS report: step, steps_total, epoch, epochs, workers, loss, samples_per_second, metrics.

    Empty before the first report. When the job is over, samples_per_second is the mean over the whole training.
    """
    mean_samples_per_second: float | None
    """Samples per second of all training steps so far, over all attempts; None: not known."""
    step_times: Mapping[str, Any] | None
    """Where the time of its steps goes, by the newest report that says so; see ``model.step_times``."""
    validation: Mapping[str, Any] | None
    """The newest validation: step, epoch, time, workers, samples, seconds, and metrics, named as in ``val_loss``."""
    best: Mapping[str, Mapping[str, Any]]
    """The best value of each metric of the job's validations: value, epoch, step."""
    best_model: Mapping[str, Any] | None
    """The model that is kept as the best: metric, mode (``min`` or ``max``), value, epoch, step, file."""
    message: str | None
    """Why the job ended. Before its end: why the last attempt ended, until another attempt runs."""
    digest: str | None
    """SHA-256 of the trained state, from the last ATTEMPT_ENDED report that had a digest."""
    exactness: Exactness
    """Whether the result has the bits of an undisturbed training, as far as this was checked."""
    checkpoint_step: int | None
    """The step of the newest recovery checkpoint; None: there is none."""
    seed: int
    threads: int
    image: str | None
    """The image of the job's containers, if the job has asked for its own."""
    eta_seconds: float | None
    """Seconds until the last step at the present speed; None: the job does not train, or the speed is not known yet."""
    waiting: Waiting | None
    directory: Path
    """EDT_HOME/jobs/<exec id>: also RESULT_DIR."""
    work_dir: Path
    paused_at: float | None = None
    """Since when its user has paused it; None: it is not paused."""
    paused_by: str | None = None
    """Name of the user who paused it."""
    pausing: bool = False
    """Whether it is paused and has an attempt that has not ended. Slots on a lost node say nothing of that."""
    wanted_epochs: int | None = None
    """The epochs that a user gave its training in all; None: those of its script."""
    resumed_from: str | None = None
    """Exec id of the job from whose checkpoint it began; None: it began anew. That job may be gone."""
    resumed_step: int | None = None
    """The step of that checkpoint."""
    gang: GangCommand | None = None
    """What the processes of a gang run; None: the job is elastic."""
    command: str = ""
    """The user's command, its words joined by spaces; empty: the job runs its main script."""
    default_log: DefaultLog = DefaultLog.STEPS
    queue: str = ""
    """Path of the queue that was asked for; empty: the root. The job belongs to the nearest queue that there is."""
    priority: int = 1
    min_slots: int = 1
    """The fewest slots with which it trains."""
    max_slots: int = 1
    """The most slots that it may hold."""
    sizes: tuple[int, ...] = ()
    """The only numbers of slots that it may have; empty: those that suit its steps."""
    gpu_models: tuple[str, ...] = ()
    """The only models of GPUs that it gets, in lower case; empty: any."""
    after: tuple[str, ...] = ()
    """Exec ids of the jobs that must have finished before it starts."""
    deadline: float | None = None
    """When its user wants it to be done."""
    time_limit: float | None = None
    """Seconds that its attempts may run in all; None: no limit."""
    results_removed_at: float | None = None
    """Since when the job's results, checkpoints and logs are removed because of their age."""
    results_days: float | None = None
    """For how many days they were kept."""

    @property
    def ranks(self) -> int | None:
        """How many processes run a gang's command; None: the job is elastic."""
        if self.gang is None:
            return None
        slots = self.num_worker * self.worker_device_num
        return {Processes.DEVICE: slots, Processes.WORKER: self.num_worker, Processes.JOB: 1}[self.gang.processes]

    @property
    def status(self) -> JobStatus:
        """The job's state as people see it."""
        return job_status(
            self.state,
            slots=self.slots,
            waits=self.waiting is not None,
            stop_requested=self.stop_requested_at is not None,
            paused=self.paused_at is not None,
            pausing=self.pausing,
        )

    @property
    def kept(self) -> str | None:
        """A sentence about the checkpoint from which a new job can go on when this one was stopped or has failed; None:
        the job is not over, has finished, or is a gang."""
        if self.state not in {JobState.KILLED, JobState.ERROR} or self.gang is not None:
            return None
        if self.results_removed_at is not None or self.checkpoint_step is None:
            return None
        of = f" of {self.steps_total}" if self.steps_total else ""
        return (
            f"its training is kept up to step {self.checkpoint_step}{of}: "
            f"`edt submit … --resume-from {self.exec_id}` goes on from there"
        )

    @property
    def share_done(self) -> float | None:
        """The share of its steps that the job has done, 0 to 1; None: unknown."""
        return share_done(self.progress, self.steps_total, finished=self.state is JobState.FINISHED)

    @property
    def efficiency(self) -> float | None:
        """The share of its engines' time that is forward and backward pass, 0 to 1; None: it was not reported."""
        return efficiency(self.step_times)

    @property
    def ended_early(self) -> str | None:
        """Where the job's training ended before its last step, in words; None: it did not, or it goes on."""
        finished = self.state is JobState.FINISHED
        return early_end(self.progress, self.steps_total, self.epochs, finished=finished)

    @property
    def main_metric(self) -> tuple[str, float | None] | None:
        """Name and newest value of the metric that a list shows of the job; None: it has reported none."""
        return main_metric(self.validation, self.progress)

    @property
    def model_dir(self) -> Path:
        """The folder that GET /result sends as a zip."""
        return self.directory / "model"

    @property
    def log_dir(self) -> Path:
        """LOG_DIR: ``stdout`` (ELog lines), ``driver.out``, ``driver.err``, ``engine-<allocation>.out/.err``.

        A gang has ``rank-<rank>.out/.err`` in place of the last four, and ELog lines only if its script writes them.
        """
        return self.directory / "log"


@dataclass(frozen=True)
class EventView:
    """One event of a job's history. ``seq`` runs 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    """The kind of a report, or one of ``state``, ``remark``, ``attempt``, ``head-node``, ``resize``, ``capped``,
    ``stop-requested``, ``paused``, ``resumed``, ``extended``, ``bounds`` (of its size), ``priority``, ``resumed-from``,
    ``waiting``, ``results-removed``.
    """
    fence: int
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class JobPage:
    """A part of the list of jobs, newest first."""

    jobs: tuple[JobView, ...]
    before: int | None
    """The next page has the jobs with numbers below this one; None: this page is the last."""
    total: int
    """How many jobs match the filter."""


@dataclass(frozen=True)
class RemovedJob:
    """A job that is on no list any more."""

    exec_id: str
    owner_id: int


# ── nodes and their slots, how busy these are, what a node should be running, and container images ───────────────────


@dataclass(frozen=True)
class ForeignProcess:
    """A process that computes on a GPU and belongs to no job of its node."""

    pid: int
    name: str


@dataclass(frozen=True)
class SlotUse:
    """How busy one slot was between two samples of its agent. None in a field means unknown."""

    slot: str
    utilisation: float | None = None
    """0 to 1."""
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    ecc_errors: int | None = None
    """Errors in the GPU's memory that could not be corrected, since the driver was loaded."""
    problem: str | None = None
    """Why the GPU does not answer, as its agent says it; it is shown by ``SlotView.problem``."""
    foreign_processes: tuple[ForeignProcess, ...] = ()


@dataclass(frozen=True)
class SlotView:
    """One slot of a node, and the job that holds it."""

    slot: str
    device: str
    label: str
    exec_id: str | None
    leaving: bool
    """Whether the slot was asked back while its process is not yet seen gone."""
    owner_id: int | None = None
    """Id of the user whose job holds the slot."""
    owner: str | None = None
    """Name of that user."""
    is_gang: bool = False
    """Whether the job that holds the slot is a gang."""
    model: str | None = None
    """Of this and the next three see ``model.nodes.SlotSpec``."""
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    mig_profile: str | None = None
    problem: str | None = None
    """Why the GPU does not answer, so that no engine starts there; None: it does."""
    use: SlotUse | None = None
    """How busy the slot is; None: there is no recent sample."""


@dataclass(frozen=True)
class UseOverTime:
    """One interval of a slot's use: mean utilisation, power and temperature, and the largest memory use."""

    slot: str
    time: float
    """The mean time of the interval's samples."""
    utilisation: float | None
    memory_bytes: int | None
    power_watts: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class SlotTime:
    """For how many seconds a user's jobs have held slots in one day."""

    day: int
    """Begin of the day in UTC, in seconds since the epoch."""
    user_id: int
    user: str
    slot_seconds: float


@dataclass(frozen=True)
class SlotTimePage:
    """A part of the list of SlotTime, newest day first."""

    items: tuple[SlotTime, ...]
    before: tuple[int, int] | None
    """Day and user id of the page's last item, behind which the next page begins; None: this page is the last."""


@dataclass(frozen=True)
class NodeView:
    """One node."""

    number: int
    name: str
    host: str
    cores: int
    health: Health
    boot_id: str
    incarnation: str
    registered_at: float
    seen_at: float
    lease_age_seconds: float
    """Seconds since the node was last heard from."""
    lost_at: float | None
    launcher: str
    """In what the node's jobs run: ``process``, ``docker`` or ``docker-fixed``."""
    slots: tuple[SlotView, ...]
    pool: str | None = None
    """The pool from whose cluster manager it comes; None: it is not from one."""
    only_for: str | None = None
    """Exec id of the only job that may use it; None: any job."""
    leaving_why: str | None = None
    """Why it is being emptied; None: it is not, or an administrator has asked for it."""


@dataclass(frozen=True)
class Registration:
    """What a node gets when it registers: its own view, and the secret with which it identifies itself from now on."""

    node: NodeView
    token: str = field(repr=False)


@dataclass(frozen=True)
class NodeAssignments:
    """What a node should be running. ``version`` changes whenever the list changes."""

    version: int
    assignments: tuple[Assignment, ...]
    locked: tuple[tuple[str, int], ...] = ()
    """Exec id and fence of each attempt whose environment this process cannot open. Its running processes stay."""
    images: tuple[str, ...] = ()
    """Container images that the node should have ready and has not answered for."""


@dataclass(frozen=True)
class ImageOnNode:
    """The state of one image on one node: asked for, ready or failed. Times are seconds since the epoch."""

    node: str
    asked_at: float
    done_at: float | None
    """When the node answered."""
    error: str | None
    """Why the node could not get the image."""


@dataclass(frozen=True)
class ImageView:
    """An image that every job may name."""

    number: int
    name: str
    allowed_by: str
    allowed_at: float
    everywhere: bool
    """Whether nodes that start containers should have the image ready before a job needs it."""
    nodes: tuple[ImageOnNode, ...]


@dataclass(frozen=True)
class FrameworkView:
    """An entry of the framework catalogue."""

    entry: Framework
    added_by: str | None = None
    """Name of the admin who added it; None: it is built in."""
    added_at: float | None = None


# ── slots over time: who held them, how jobs were resized, what failed, what has changed ─────────────────────────────


@dataclass(frozen=True)
class AllocationView:
    """One slot that one job holds or held."""

    allocation: int
    exec_id: str
    fence: int
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    """When the engine's process started."""
    joined_at: float | None
    """When the engine had the weights."""
    counted_at: float | None
    """When its first micro-batch was in a committed step."""
    release_asked_at: float | None
    released_at: float | None
    """When its process was seen gone."""
    kind: ExitKind | None
    """How the engine ended."""


@dataclass(frozen=True)
class EngineView:
    """One engine that a job has or had, or one process of a gang's newest attempt: it was started."""

    number: int
    """Place among the job's engines, from 1 on, in the order in which they started. Of a gang's process: its rank + 1.
    """
    held: AllocationView
    """The slot that the engine trained on, with the times of its steps. Of a gang's process with several slots: the
    first one.
    """
    host: str
    """Address of its node."""
    use: SlotUse | None
    """How busy its slot is; None: the engine is gone, or there is no recent sample. Of a gang's process with several
    slots: their sums.
    """
    rank: int | None = None
    """Rank of a gang's process; None: it is an engine."""
    others: tuple[str, ...] = ()
    """Names of the further slots of a gang's process."""

    @property
    def slots(self) -> int:
        """How many slots the process has."""
        return 1 + len(self.others)

    @property
    def gone(self) -> bool:
        """Whether its process was seen gone."""
        return self.held.released_at is not None


@dataclass(frozen=True)
class ProcessesView:
    """The processes that a job has or had."""

    head: str | None = None
    """Name of the node on which the driver of the newest attempt runs or ran; None: the job never had an attempt."""
    head_host: str | None = None
    """Address of that node."""
    engines: tuple[EngineView, ...] = ()
    """All engines of all attempts, in the order in which they started. Of a gang: the processes of the newest attempt,
    by rank.
    """

    @property
    def present(self) -> tuple[EngineView, ...]:
        """The engines whose processes were not seen gone."""
        return tuple(engine for engine in self.engines if not engine.gone)


@dataclass(frozen=True)
class ResizeView:
    """One change of a job's size: what was decided, what woke the agent, and when each part happened.

    Times after ``woken_at`` are of the node's wall clock. If several engines are concerned, each time is the last
    engine's.
    """

    number: int
    exec_id: str
    owner: str
    fence: int
    cause: ResizeCause
    detail: str
    from_slots: int
    to_slots: int
    decided_at: float
    """Time of the transaction that decided it."""
    notified_at: float | None
    """When the notification was handed to the broker."""
    woken_by: str | None
    """What made the agent fetch the change first: ``notification``, ``timer`` or ``start``."""
    woken_at: float | None
    started_at: float | None
    joined_at: float | None
    first_step_at: float | None
    gone_at: float | None
    """When shrinking: when the process was seen gone."""
    generation: int | None
    step: int | None
    workers: int | None
    pause_seconds: float | None
    recomputed: int | None
    """Number of micro-batches that were computed again, because an engine was lost with their results."""


@dataclass(frozen=True)
class FailureView:
    """A failure: one lost engine, all engines of a job on a lost node (then ``slot`` is None), or a whole attempt."""

    exec_id: str
    owner_id: int
    node: str | None
    slot: str | None
    time: float
    kind: ExitKind
    message: str | None


class TimelineAllocation(NamedTuple):
    """One slot that one job holds or held, with fewer fields than AllocationView: a timeline has tens of thousands."""

    allocation: int
    exec_id: str
    fence: int
    node: str
    slot: str
    decided_at: float
    started_at: float | None
    counted_at: float | None
    released_at: float | None
    kind: str | None


class TimelineResize(NamedTuple):
    """One change of a job's size, with fewer fields than ResizeView."""

    number: int
    exec_id: str
    owner_id: int
    cause: str
    detail: str
    decided_at: float
    from_slots: int
    to_slots: int
    pause_seconds: float | None
    recomputed: int | None


@dataclass(frozen=True)
class TimelineJob:
    """The facts about a job that a timeline shows."""

    owner_id: int
    owner: str
    state: JobState
    framework: str
    app_name: str
    script: str
    folder: str
    command: str
    is_gang: bool
    removed: bool
    """Whether the job was deleted. It can no longer be read, but it did hold its slots."""


@dataclass(frozen=True)
class Timeline:
    """Slots over time, as the demo and the dashboard draw them: everything that overlaps ``since`` to ``until``."""

    now: float
    since: float
    until: float
    earliest: float | None
    """When the first slot was ever given to a job."""
    nodes: tuple[NodeView, ...]
    jobs: Mapping[str, TimelineJob]
    """The jobs that the other fields name, by exec id."""
    allocations: tuple[TimelineAllocation, ...]
    resizes: tuple[TimelineResize, ...]
    failures: tuple[FailureView, ...]


@dataclass(frozen=True)
class Changes:
    """What has changed since a cursor: each thing once, in its present state.

    The API removes what its viewer may not see.
    """

    cursor: str
    """Where these changes end: the cursor for the next call."""
    jobs: tuple[JobView, ...] = ()
    removed: tuple[RemovedJob, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    removed_nodes: tuple[str, ...] = ()
    """Names of nodes that are on no list any more."""
    allocations: tuple[TimelineAllocation, ...] = ()
    resizes: tuple[TimelineResize, ...] = ()
    failures: tuple[FailureView, ...] = ()
