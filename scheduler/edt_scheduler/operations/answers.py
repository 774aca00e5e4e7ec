"""Use cases of asking: why a job waits or has as many slots, what would become of a submission, and what if.

Each use case reads the state in one snapshot and returns an ``Asked``. ``answered`` computes its answer from that
alone. This may take some seconds of a processor, so the API does it in another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sqlalchemy import Connection

from edt_scheduler.answers.changes import NEW, Change, JobResumed, JobStopped, JobWith, NewJob, QueueWith, changed
from edt_scheduler.answers.expected import PastError
from edt_scheduler.answers.forecast import forecast
from edt_scheduler.answers.sight import Sight
from edt_scheduler.answers.whatif import MOST_JOBS, JobEffect, WhatIf, compared, what_if
from edt_scheduler.answers.why import Explained, explained, over
from edt_scheduler.decide.snapshot import present
from edt_scheduler.errors import ChangeInvalid, SubmissionInvalid
from edt_scheduler.model.jobs import MOST_SLOTS, JobFilter, JobOrder, JobSpec, exec_id, job_number
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.queues import canonical, fault
from edt_scheduler.model.states import ACTIVE, JobState
from edt_scheduler.operations.execs import visible
from edt_scheduler.operations.images import check_image
from edt_scheduler.plan.carrying import bare
from edt_scheduler.plan.state import Phase, State
from edt_scheduler.platform import Platform
from edt_scheduler.store import estimates
from edt_scheduler.store import jobs as store
from edt_scheduler.views import UserView

ANSWER_SECONDS = 3.0
"""How long an answer may be computed. What takes longer is left out, and the answer says so."""
_FORECAST_SHARE = 0.4
"""The share of this time that a forecast may take where changes are tried as well."""
ESTIMATE_SECONDS = 2.0
"""How long the forecast for the jobs that have begun to wait may be computed."""
_FEW = 10
"""From so many past estimates of jobs that waited by the same rule on, only these count."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Asked(Generic[_Answer]):
    """A question with all that its answer needs."""

    answer: Callable[[], _Answer]
    """A function of a module with its arguments, so that another process can call it."""


def answered(asked: Asked[_Answer]) -> _Answer:
    """The answer to a question. Reads a clock, and nothing else."""
    return asked.answer()


def explain(platform: Platform, name: str, *, viewer: UserView) -> Asked[Explained]:
    """Why a job waits, or has as many slots as it has. Raises NoSuchJob."""
    with platform.database.snapshot() as tx:
        row = visible(tx, name, viewer)
        sight = _sight(tx, viewer)
        estimate = estimates.of_job(tx, row.id)
        rule = row.waiting["blocking"] if row.waiting else None
        error = _past_error(tx, rule)
    state = present(platform).state
    if all(job.id != name for job in state.jobs):
        return Asked(_Elsewhere(name, state.now, JobState(row.state)))
    first = estimate.expected_at if estimate is not None else None
    return Asked(_Explain(state, name, sight, first, error))


def dry_run(platform: Platform, spec: JobSpec, *, owner: UserView) -> Asked[DryRun]:
    """What would become of a submission now.

    Raises:
        SubmissionInvalid: the submission would be refused.
    """
    check_image(platform, spec.image, owner)
    _check(spec)
    with platform.database.snapshot() as tx:
        sight = _sight(tx, owner)
        error = _past_error(tx, None)
    return Asked(_DryRun(present(platform).state, _as_change(spec, owner), sight, error, spec.remark))


def ask_what_if(platform: Platform, changes: Sequence[Change], *, viewer: UserView) -> Asked[WhatIf]:
    """What changes would do, all of them together.

    Raises:
        NoSuchJob: a change names a job that the viewer may not see.
        ChangeInvalid: a change names something else that is not there, or asks for what cannot be.
    """
    with platform.database.snapshot() as tx:
        for change in changes:
            if isinstance(change, JobWith | JobStopped | JobResumed):
                visible(tx, change.job, viewer)
        sight = _sight(tx, viewer)
    state = present(platform).state
    owned = [_in_place(change, viewer) for change in changes]
    changed(bare(state), *owned)  # refuses what cannot be
    return Asked(_WhatIf(state, tuple(owned), sight))


def estimate_starts(platform: Platform) -> int:
    """Store when the jobs that have begun to wait are expected to start; return how many.

    One forecast serves for all of them. A periodic task.
    """
    with platform.database.snapshot() as tx:
        known = estimates.known(tx)
    state = present(platform).state
    waiting = [
        job.id
        for job in state.jobs
        if job.phase is Phase.WAITING and not job.attempts and job.paused is None and job_number(job.id) not in known
    ]
    if not waiting:
        return 0
    found = forecast(state, wanted=waiting, enough=_after(ESTIMATE_SECONDS))
    rules = found.settled.first.explain
    made = [
        (job_number(name) or 0, start, blocking.value if (blocking := rules[name].blocking) else "")
        for name in waiting
        if (start := found.start_of(name)[0]) is not None or found.whole
    ]
    with platform.database.transaction(durable=False) as tx:
        return estimates.add(tx, made, state.now)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sight(tx: Connection, viewer: UserView) -> Sight:
    if viewer.sees_all:
        return Sight()
    wanted = JobFilter(owner_id=viewer.id, states=frozenset(ACTIVE))
    return Sight(frozenset(exec_id(number) for number in store.sorted_numbers(tx, wanted, JobOrder())))


def _past_error(tx: Connection, rule: str | None) -> PastError | None:
    """How far past estimates were off: those of jobs that waited by the same rule if there are enough, or all."""
    same = estimates.errors(tx, rule) if rule is not None else []
    return PastError.of(same if len(same) >= _FEW else estimates.errors(tx))


def _in_place(change: Change, viewer: UserView) -> Change:
    """A change with the path of its queue as it is stored, and with its user."""
    match change:
        case NewJob():
            return replace(change, user=viewer.name, queue=_path(change.queue))
        case QueueWith():
            return replace(change, queue=_path(change.queue))
    return change


def _path(text: str) -> str:
    """Raises ChangeInvalid: there can be no queue of this path."""
    path = canonical(text)
    if (wrong := fault(path)) is not None:
        raise ChangeInvalid("queue", wrong)
    return path


def _check(spec: JobSpec) -> None:
    """Raises SubmissionInvalid: the job asks for more than any job may."""
    if spec.max_engines > MOST_SLOTS:
        asked = f"{spec.num_worker} x {spec.worker_device_num}"
        raise SubmissionInvalid("--numWorker", f"x --workerDeviceNum: got {asked} slots, takes at most {MOST_SLOTS}")


def _as_change(spec: JobSpec, owner: UserView) -> NewJob:
    return NewJob(
        max=spec.max_engines,
        min=spec.min_slots,
        gang=spec.gang is not None,
        unit=spec.worker_device_num if spec.gang is not None else 1,
        priority=spec.priority,
        queue=spec.queue,
        user=owner.name,
        device=Device(spec.device) if spec.device is not None else None,
        models=spec.gpu_models,
        image=spec.image is not None,
        after=spec.after,
        deadline=spec.deadline,
        time_limit=spec.time_limit,
        sizes=spec.sizes,
    )


# ── computing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _after(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed since now."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


@dataclass(frozen=True)
class _Elsewhere:
    """A job that no plan is made for: it is over, or the scheduler has not seen it yet."""

    name: str
    at: float
    state: JobState

    def __call__(self) -> Explained:
        if self.state.terminal:
            return over(self.name, self.at, self.state.value)
        unseen = f"{self.name} was submitted, and the scheduler has not looked at it yet."
        return Explained(self.name, self.at, Phase.WAITING, unseen)


@dataclass(frozen=True)
class _Explain:
    state: State
    name: str
    sight: Sight
    first: float | None
    error: PastError | None

    def __call__(self) -> Explained:
        return explained(
            self.state,
            self.name,
            sight=self.sight,
            enough=_after(ANSWER_SECONDS),
            soon=_after(_FORECAST_SHARE * ANSWER_SECONDS),
            first=self.first,
            error=self.error,
        )


@dataclass(frozen=True)
class _WhatIf:
    state: State
    changes: tuple[Change, ...]
    sight: Sight

    def __call__(self) -> WhatIf:
        until = _after(ANSWER_SECONDS / 2), _after(ANSWER_SECONDS)
        return what_if(self.state, self.changes, sight=self.sight, until=until)


@dataclass(frozen=True)
class DryRun:
    """What would become of a submission."""

    kind: str
    max: int
    min: int
    starts: bool
    """Whether it would start at once, or as soon as slots are vacated for it."""
    slots: int
    nodes: dict[str, int]
    explained: Explained
    others: tuple[JobEffect, ...]
    """Whose slots it would take, and who would start later."""
    hidden: dict[str, int]
    """Effect to the number of jobs with it that are not among ``others``."""
    remark: str | None


@dataclass(frozen=True)
class _DryRun:
    state: State
    job: NewJob
    sight: Sight
    error: PastError | None
    remark: str | None

    def __call__(self) -> DryRun:
        state = bare(self.state)
        then = changed(state, self.job)
        sight = Sight(self.sight.only | {NEW}) if self.sight.only is not None else self.sight
        first, second, whole = (_after(share * ANSWER_SECONDS) for share in (0.25, 0.5, 1.0))
        before, after = forecast(state, enough=first), forecast(then, enough=second)
        effects = compared(state, before, then, after)
        told = explained(then, NEW, sight=sight, enough=whole, come=after, error=self.error)
        present = after.settled
        others = [each for each in effects if each.job != NEW]
        seen = tuple(each for each in others if sight.sees(each.job))[:MOST_JOBS]
        named = {each.job for each in seen}
        hidden: dict[str, int] = {}
        for each in others:
            if each.job not in named:
                hidden[each.effect.value] = hidden.get(each.effect.value, 0) + 1
        slots = present.held(NEW)
        nodes = {node: number for node, number in sorted(present.last.alloc.get(NEW, {}).items()) if number}
        kind = "gang" if self.job.gang else "elastic"
        least = self.job.max if self.job.gang else self.job.min
        return DryRun(kind, self.job.max, least, slots > 0, slots, nodes, told, seen, hidden, self.remark)
