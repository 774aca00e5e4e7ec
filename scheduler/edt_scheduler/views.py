"""What the scheduler shows of users, jobs, nodes and their history: frozen views, handed out by operations. Pure.

Times are seconds since the epoch (wall clock of whoever wrote the row, for people to read). None: not yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edt_contract.attempt import Assignment
from edt_contract.reports import ExitKind
from edt_scheduler.model.exactness import Exactness
from edt_scheduler.model.progress import share_done
from edt_scheduler.model.states import Health, JobState, JobStatus, ResizeCause, Role, job_status

_View = TypeVar("_View")


def view_of(view: type[_View], row: Mapping[Any, Any], /, **others: Any) -> _View:
    """A view whose fields are the row's columns of the same names, but for the ``others``."""
    return view(**{name: row[name] for name in view.__annotations__ if name in row} | others)


# ── one user, as others may see them ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class UserView:
    """One user. ``password_hash`` is the API's argon2 string; the scheduler never reads it."""

    id: int
    """Whose a job or a token is goes by this; a removed user's name may be given to another one."""
    name: str
    role: Role
    password_hash: str = field(repr=False)
    created_at: float

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN


# ── a job, why it waits, its events, and lists of jobs ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Waiting:
    """Why a job holds no slot, with numbers."""

    blocking: str
    """``capacity``, ``cooldown``, ``vacating``, ``nodes`` (none is up) or ``key`` (its environment stays sealed)."""
    reason: str
    rank: int
    """Place among the waiting jobs, 1 is next."""
    need: int
    """Slots that would let it start."""
    free: int


@dataclass(frozen=True)
class JobView:
    """One job as its owner sees it. Carries no environment: that may hold secrets."""

    exec_id: str
    number: int
    owner_id: int
    owner: str
    """The owner's name; a removed user had it once."""
    owner_removed: bool
    state: JobState
    framework: str
    app_name: str
    script: str
    """The main script's path in the folder that was sent."""
    folder: str
    """Name of that folder; empty where files were sent without one."""
    args_verbatim: str
    num_worker: int
    worker_device_num: int
    max_restarts: int
    restarts: int
    """How often it was started again after an exception of its script."""
    created_at: float
    started_at: float | None
    """First start of an attempt."""
    finished_at: float | None
    stop_requested_at: float | None
    fence: int
    """Attempts so far."""
    engines: int | None
    """E, once the script has told it."""
    steps_total: int | None
    epochs: int | None
    slots: int
    """Slots it holds now, those being vacated included."""
    workers: int
    """W: engines that count in the newest generation."""
    progress: Mapping[str, Any]
    """Body of the newest PROGRESS report: step, steps_total, epoch, epochs, workers, loss, samples_per_second,
    metrics; empty before the first. Of a job that is over samples_per_second is the training's median."""
    message: str | None
    """Why it ended, or, until another attempt runs, why the last one did."""
    digest: str | None
    """SHA-256 of the trained state, from the last ATTEMPT_ENDED that told one."""
    exactness: Exactness
    """Whether its result has the bits of an undisturbed training, as far as that was checked."""
    checkpoint_step: int | None
    seed: int
    threads: int
    image: str | None
    """What its containers are made of, where it has asked for its own."""
    eta_seconds: float | None
    """Until its last step, at the speed of late; None: it does not train, or nothing is known yet."""
    waiting: Waiting | None
    directory: Path
    """EDT_HOME/jobs/<exec id>: also RESULT_DIR."""
    work_dir: Path
    results_removed_at: float | None = None
    """Since when its results, checkpoints and logs are removed, because of their age."""
    results_days: float | None = None
    """For so many days they were kept."""

    @property
    def status(self) -> JobStatus:
        """Its state as people see it."""
        return job_status(
            self.state,
            slots=self.slots,
            waits=self.waiting is not None,
            stop_requested=self.stop_requested_at is not None,
        )

    @property
    def share_done(self) -> float | None:
        """The share of its steps that it has done, 0 to 1; None: nobody can say."""
        return share_done(self.progress, self.steps_total, finished=self.state is JobState.FINISHED)

    @property
    def model_dir(self) -> Path:
        """What GET /result zips."""
        return self.directory / "model"

    @property
    def log_dir(self) -> Path:
        """LOG_DIR: ``stdout`` (ELog lines), ``driver.out``, ``driver.err``, ``engine-<allocation>.out/.err``."""
        return self.directory / "log"


@dataclass(frozen=True)
class EventView:
    """One line of a job's history. ``seq`` runs 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    """``state``, ``attempt``, ``home``, ``resize``, ``capped``, ``stop-requested``, ``waiting``, or a report's kind."""
    fence: int
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class JobPage:
    """A part of the list of jobs, newest first."""

    jobs: tuple[JobView, ...]
    before: int | None
    """Number of the job that the next page comes before; None: this is the last."""
    total: int
    """How many the filter finds."""


@dataclass(frozen=True)
class RemovedJob:
    """A job that is on no list any more."""

    exec_id: str
    owner_id: int


# ── nodes and their slots, how busy these are, what a node should be running, and container images ───────────────────


@dataclass(frozen=True)
class SlotUse:
    """How busy one slot was between two looks of its agent."""

    slot: str
    utilisation: float
    """0 to 1."""
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True)
class SlotView:
    """One slot of a node, and who holds it."""

    slot: str
    device: str
    label: str
    exec_id: str | None
    leaving: bool
    """Asked back, its process not yet seen gone."""
    owner_id: int | None = None
    """Whose job that is."""
    owner: str | None = None
    """That user's name."""
    use: SlotUse | None = None
    """How busy it is; None: nobody has said so of late."""


@dataclass(frozen=True)
class UseOverTime:
    """One interval of a slot's use: mean utilisation, power and temperature, most memory."""

    slot: str
    time: float
    """Its middle."""
    utilisation: float
    memory_bytes: int | None
    power_watts: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class SlotTime:
    """For how long the jobs of a user have held slots in one day."""

    day: int
    """Its beginning, UTC."""
    user_id: int
    user: str
    slot_seconds: float


@dataclass(frozen=True)
class SlotTimePage:
    """A part of that list, newest day first."""

    items: tuple[SlotTime, ...]
    before: tuple[int, int] | None
    """Day and user that the next page comes before; None: this is the last."""


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
    """For how long it has not been heard from."""
    lost_at: float | None
    launcher: str
    """In what its jobs run: ``process`` or ``docker``."""
    slots: tuple[SlotView, ...]


@dataclass(frozen=True)
class Registration:
    """What a node gets for registering: itself, and the secret it shows from now on."""

    node: NodeView
    token: str = field(repr=False)


@dataclass(frozen=True)
class NodeAssignments:
    """What a node should be running. ``version`` changes whenever the list does."""

    version: int
    assignments: tuple[Assignment, ...]
    locked: tuple[tuple[str, int], ...] = ()
    """Exec id and fence of attempts whose environment this process cannot open: what runs of them is to stay."""
    images: tuple[str, ...] = ()
    """Container images that it should have ready, and has not answered for."""


@dataclass(frozen=True)
class ImageOnNode:
    """What became of having an image ready on one node. Times in seconds since the epoch."""

    node: str
    asked_at: float
    done_at: float | None
    """It has answered."""
    error: str | None
    """Why it could not get the image."""


@dataclass(frozen=True)
class ImageView:
    """An image that every job may name."""

    number: int
    name: str
    allowed_by: str
    allowed_at: float
    everywhere: bool
    """Nodes that start containers are to have it ready."""
    nodes: tuple[ImageOnNode, ...]


# ── slots over time: who held them, how jobs were resized, what failed, what has changed ─────────────────────────────


@dataclass(frozen=True)
class AllocationView:
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
    kind: ExitKind | None
    """How it ended."""


@dataclass(frozen=True)
class ResizeView:
    """One change of a job's size: what was decided, what woke the agent, when each thing happened.

    Times after ``woken_at`` are the node's wall clock; where several engines are concerned, the last one's.
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
    """Time of the transaction."""
    notified_at: float | None
    """The notification was handed to the broker."""
    woken_by: str | None
    """``notification``, ``timer`` or ``start``: what made the agent fetch it first."""
    woken_at: float | None
    started_at: float | None
    joined_at: float | None
    first_step_at: float | None
    gone_at: float | None
    """Shrinking: the process was seen gone."""
    generation: int | None
    step: int | None
    workers: int | None
    pause_seconds: float | None
    recomputed: int | None
    """Micro-batches that were done again, since an engine died with them."""


@dataclass(frozen=True)
class FailureView:
    """An engine that was lost, all engines of a job on a lost node (then without a slot), or a whole attempt."""

    exec_id: str
    owner_id: int
    node: str | None
    slot: str | None
    time: float
    kind: ExitKind
    message: str | None


class TimelineAllocation(NamedTuple):
    """One slot held by one job for a while, in short: a timeline has tens of thousands. As in AllocationView."""

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
    """One change of a job's size, in short. As in ResizeView."""

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
    """What a timeline says of a job."""

    owner_id: int
    owner: str
    state: JobState
    framework: str
    app_name: str
    script: str
    folder: str
    removed: bool
    """It can no longer be asked for; that it held slots stays true."""


@dataclass(frozen=True)
class Timeline:
    """Slots × time: what the demo and the dashboard draw. All that overlaps ``since`` to ``until``."""

    now: float
    since: float
    until: float
    earliest: float | None
    """When the first slot was ever given."""
    nodes: tuple[NodeView, ...]
    jobs: Mapping[str, TimelineJob]
    """Those that the rest names."""
    allocations: tuple[TimelineAllocation, ...]
    resizes: tuple[TimelineResize, ...]
    failures: tuple[FailureView, ...]


@dataclass(frozen=True)
class Changes:
    """What has changed since a cursor, each thing once and as it stands now. For the eyes of whom, the API knows."""

    cursor: str
    """Where these changes end; to be asked with next time."""
    jobs: tuple[JobView, ...] = ()
    removed: tuple[RemovedJob, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    removed_nodes: tuple[str, ...] = ()
    """Names of those that are on no list any more."""
    allocations: tuple[TimelineAllocation, ...] = ()
    resizes: tuple[TimelineResize, ...] = ()
    failures: tuple[FailureView, ...] = ()
