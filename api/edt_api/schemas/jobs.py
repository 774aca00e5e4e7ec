"""Jobs, with all that we know of them, and their history. Room: api."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from edt_api.schemas.base import Page, Shown
from edt_api.schemas.wmla import ExecState


class Waiting(Shown):
    """Why a job holds no slot, with numbers."""

    blocking: str
    """``capacity``, ``cooldown``, ``vacating`` or ``nodes`` (none is up)."""
    reason: str
    rank: int
    """Place among the waiting jobs, 1 is next."""
    need: int
    free: int


class Exactness(Shown):
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


class Job(Shown):
    """One job with all that we know of it."""

    id: str
    owner: str
    owner_removed: bool = False
    """That user was removed; another one may have the name now."""
    state: ExecState
    standing: Literal["submitted", "waiting", "starting", "running", "stopping", "finished", "stopped", "failed"]
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
    """E, once the script has told it."""
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


class ResultState(Shown):
    """What a job has saved so far, for who wants to download it."""

    bytes: int | None
    """Size of the zip; None: there is nothing."""
    missing: str | None
    """Why there is nothing, in a sentence."""


class JobPage(Page[Job]):
    """Jobs, newest first."""

    total: int
    """How many the filter finds."""


class Resize(Shown):
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
    recomputed: int | None = None
    """Micro-batches that were done again, since an engine died with them."""


class ResizePage(Page[Resize]):
    """A job's resizes, oldest first."""


class Allocation(Shown):
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


class Event(Shown):
    """One line of a job's history; ``seq`` runs 1, 2, 3 … without a gap."""

    seq: int
    time: float
    kind: str
    fence: int
    message: str
    data: dict[str, Any]


class EventPage(Page[Event]):
    """A job's history, oldest first."""


class Metrics(Shown):
    """A training's course in columns of one length, oldest first; ``step`` only grows.

    Of many points these are the ones that keep the shape, the first and the last among them. What an attempt did
    beyond the checkpoint from which the next one went on was done again, and is shown once. None: not told.
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


class LogFile(Shown):
    """One file of a job's log."""

    stream: str
    """``elog``, ``out``, ``err``, or an engine's: ``engine-12.out``."""
    bytes: int


class LogFilePage(Page[LogFile]):
    """The files of a job's log, the driver's first."""
