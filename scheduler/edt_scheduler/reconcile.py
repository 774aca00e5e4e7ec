"""From snapshot to doorbells: look, plan, raise fence files, apply in one guarded transaction, ring. Room: scheduler.

``look`` may be called at any time, by whoever believes to be the scheduler, as often as like. It reads a snapshot
and plans. Only if there is something to do it takes the writer's lock and reads again: where that is what it has seen,
it applies its plan, else it makes a new one. What it writes fits the state it writes to, so a stale leader does no
harm. A plan already applied is its own fix-point: the next look does nothing.

Fence files are raised before the lock is taken, for what the snapshot shows: what is over in it stays over. What the
second plan wants to start without its file having been raised waits for the next look.

Thousands of jobs may wait, and whoever holds the lock keeps every node waiting. So nothing is computed under it that
was computed before, and what is said of each job (it has been seen; why it waits) is written a few jobs at a time.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.contract import ExitKind
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.storage import Outage, reason
from edt_scheduler import bells, fences, homes, lifecycle, parts
from edt_scheduler.errors import EnvironmentLocked
from edt_scheduler.house import House
from edt_scheduler.jobs import JobState, exec_id
from edt_scheduler.operations.batches import in_batches
from edt_scheduler.picture import Picture, Rows, read
from edt_scheduler.plan import Action, Explanation, Plan, Verb, plan
from edt_scheduler.secret_key import Keys
from edt_scheduler.settings import Settings
from edt_scheduler.store import allocations, attempts, environs, jobs, nodes, resizes
from edt_scheduler.views import ResizeCause, Waiting

log = logging.getLogger("edt.scheduler")
_News = tuple[Row[Any], dict[str, Any] | None]
"""A job, and why it waits; None: it does not."""
_AT_ONCE, _RANKS_AT_ONCE = 10, 200
"""Of so many jobs something is said in one transaction: with an event of each, and without."""
_TELL_SECONDS = 1.0
"""So long may a look have jobs wait, and so long say why they do, before the next one decides."""
_fence_files = Outage("the jobs' fence files", lambda news: log.error("%s", news))


def look(house: House, lost: Mapping[int, int] | None = None) -> bool:
    """Bring what is decided up to what is the case; True: something was written.

    ``lost``: nodes whose lease has run out, each with the counter at which it was last heard from.
    """
    seen = 0 if lost else _see(house)
    keys = house.secret_key.keys()
    with house.database.snapshot() as tx:
        rows = read(tx, keys)
        shut_out = jobs.fences_due(tx)
    foreseen = _Decision.of(rows, house.clock())
    acted = bool(lost or shut_out or foreseen.plan.actions)
    decided, done = _act(house, keys, foreseen, lost or {}, shut_out) if acted else (foreseen, set())
    told = _tell(house, decided, done)
    if not (seen or acted or told):
        return False
    house.doorbells.ring()
    return True


@dataclass(frozen=True)
class _Decision:
    """A plan, and what it was made of."""

    rows: Rows
    picture: Picture
    plan: Plan

    @classmethod
    def of(cls, rows: Rows, now: float) -> _Decision:
        picture = Picture.of(rows, now)
        return cls(rows, picture, plan(picture.state))


def _see(house: House) -> int:
    """Have jobs wait that were submitted since the last look; how many. What comes meanwhile the next look sees."""

    def some() -> int:
        with house.database.transaction() as tx:
            found = jobs.submitted(tx, _AT_ONCE)
            for number in found:
                jobs.move(tx, number, JobState.PENDING, "waits for slots", house.clock())
        return len(found)

    with house.database.snapshot() as tx:
        any_at_all = jobs.submitted(tx, 1)
    return in_batches(some, _TELL_SECONDS) if any_at_all else 0


def _act(
    house: House, keys: Keys, foreseen: _Decision, lost: Mapping[int, int], shut_out: Sequence[Row[Any]]
) -> tuple[_Decision, set[str]]:
    """Apply what was foreseen, or where it does not fit any more, what is decided then: that, and on which jobs."""
    crash_point(CrashPoint.SCHEDULER_PLAN)
    raised = {row.id: row.fence_due for row in shut_out if _raise(house.settings, row, row.fence_due)}
    opening = [foreseen.picture.jobs[action.job] for action in foreseen.plan.actions if action.verb is Verb.START]
    open_to = {row.id: row.fence + 1 for row in opening if _raise(house.settings, row, row.fence + 1)}
    crash_point(CrashPoint.SCHEDULER_RAISED)
    with house.database.transaction() as tx:
        now = house.clock()
        _note_raised(tx, raised, open_to, now)
        for node_id, counter in lost.items():
            parts.lose(tx, node_id, counter, now)
        rows = read(tx, keys)
        decided = foreseen if rows == foreseen.rows else _Decision.of(rows, now)
        done = set()
        for action in decided.plan.actions:
            job = decided.picture.jobs[action.job]
            if action.verb is not Verb.START or _may_open(job, open_to):
                _apply(tx, keys, decided.picture, action, decided.plan, now)
                _explain(tx, [(job, _waiting(decided.plan.explain[action.job]))], now)
                done.add(action.job)
        crash_point(CrashPoint.SCHEDULER_WRITE)
    crash_point(CrashPoint.SCHEDULER_COMMITTED)
    house.doorbells.ring()
    for action in decided.plan.actions:
        log.info("%s: %s, %d → %d slots, %s", action.job, action.verb, action.before, action.after, action.reason)
    return decided, done


def _tell(house: House, decided: _Decision, done: Collection[str]) -> bool:
    """Store with each job why it waits, where that is not what is stored; False: it is.

    New obstacles come first, and after a while the next look goes on. ``done``: of these it was said already.
    """
    obstacles: list[_News] = []
    ranks: list[_News] = []
    for name, explanation in decided.plan.explain.items():
        job, waiting = decided.picture.jobs[name], _waiting(explanation)
        if name not in done and job.waiting != waiting:
            (ranks if _obstacle(waiting) == _obstacle(job.waiting) else obstacles).append((job, waiting))
    ends = time.monotonic() + _TELL_SECONDS

    def told(news: list[_News], most: int) -> int:
        left = iter(news)

        def some() -> int:
            found = list(islice(left, most))
            if found:
                with house.database.transaction(durable=False) as tx:
                    _explain(tx, found, house.clock())
            return len(found)

        return in_batches(some, ends - time.monotonic()) if news else 0

    return told(obstacles, _AT_ONCE) + told(ranks, _RANKS_AT_ONCE) > 0


def _raise(settings: Settings, job: Row[Any], fence: int) -> bool:
    """Raise a job's fence file; whether that could be done. All attempts below are over, as was committed."""
    name = exec_id(job.id)
    try:
        fences.raise_to(settings.checkpoint_directory(name), fence)
    except OSError as error:
        _fence_files.failed(f"{reason(error)} (that of {name}, of which nothing starts before)")
        return False
    _fence_files.worked()
    return True


def _note_raised(tx: Connection, raised: Mapping[int, int], open_to: Mapping[int, int], now: float) -> None:
    """Of jobs whose file was due and has been raised: their next attempt may start a while from now.

    Where another number is due by now, or none, another scheduler was here meanwhile, and this one may have slept with
    an older number in its hand: the file is then raised once more, to where it belongs.
    """
    due = {row.id: row.fence_due for row in jobs.fences_due(tx)}
    for number, fence in raised.items():
        job = jobs.get(tx, number)
        if due.get(number) == fence:
            jobs.change(tx, number, fence_due=None, not_before=max(job.not_before or 0.0, now + fences.FENCE_SECONDS))
        elif number not in due:
            _raise_again(tx, job)
    for number, fence in open_to.items():
        job = jobs.get(tx, number)
        if job.fence + 1 != fence and number not in due:
            _raise_again(tx, job)


def _raise_again(tx: Connection, job: Row[Any]) -> None:
    jobs.change(tx, job.id, fence_due=job.fence if attempts.live(tx, job.id) else job.fence + 1)


def _may_open(job: Row[Any], open_to: Mapping[int, int]) -> bool:
    """Whether the file stands where the attempt that is about to open needs it."""
    return bool(open_to.get(job.id) == job.fence + 1)


def _apply(tx: Connection, keys: Keys, picture: Picture, action: Action, decided: Plan, now: float) -> None:
    """Carry out one action: name the home, take back, then give."""
    job, held = picture.jobs[action.job], picture.held[action.job]
    if action.verb is Verb.START and not _is_readable(tx, keys, job, now):
        return
    if held and action.job in decided.homes:
        homes.move(tx, job.id, job.fence, picture.nodes[decided.homes[action.job]].id, action.reason, now)
    here = Counter(row.node_id for row in held)
    there = {picture.nodes[name].id: number for name, number in decided.alloc[action.job].items()}
    asked = [row for node in here for row in _leavers(held, node, here[node] - there.get(node, 0), picture.slots[node])]
    if asked:
        drained = any(row.node_id in picture.draining for row in asked)
        cause = ResizeCause.DRAIN if drained else ResizeCause.ROOM
        lifecycle.take_back(tx, job.id, job.fence, asked, cause, action.reason, now)
        lifecycle.settle(tx, job.id, now)
    given = {node: number - here[node] for node, number in there.items() if number > here[node]}
    if given:
        _give(tx, picture, action, decided, given, len(held) - len(asked), now)


def _is_readable(tx: Connection, keys: Keys, job: Row[Any], now: float) -> bool:
    """Whether a job's environment can be opened; a damaged one ends it. What only lacks its key was never planned."""
    try:
        environs.get(tx, job.id, keys)
    except EnvironmentLocked as error:
        lifecycle.conclude(tx, jobs.get(tx, job.id), JobState.ERROR, str(error), str(error), now)
        return False
    return True


def _leavers(held: list[Row[Any]], node_id: int, number: int, slots: list[Row[Any]]) -> list[Row[Any]]:
    """Which engines leave a node: those on slots it no longer has, then the youngest."""
    present = {slot.slot for slot in slots}
    rows = [row for row in held if row.node_id == node_id]
    return sorted(rows, key=lambda row: (row.slot in present, -row.id))[: max(0, number)]


def _give(
    tx: Connection,
    picture: Picture,
    action: Action,
    decided: Plan,
    given: Mapping[int, int],
    before: int,
    now: float,
) -> None:
    """Book slots for a job, in a new attempt if it has none."""
    job = picture.jobs[action.job]
    booked = [
        (node_id, slot.slot)
        for node_id, number in given.items()
        for slot in [s for s in nodes.slot_rows(tx, [node_id]) if s.present and s.allocation is None][:number]
    ]
    if action.verb is Verb.START:
        home = picture.nodes[decided.homes[action.job]].id
        fence = attempts.add(tx, job.id, home, secrets.token_hex(16), now)
        cause, detail = (
            (ResizeCause.SUBMIT, "first attempt") if fence == 1 else (ResizeCause.RESTART, f"attempt {fence}")
        )
    else:
        fence = job.fence
        cause, detail = _cause_of_growth(tx, picture, action, booked)
    sizes = (before, before + len(booked))
    resize_id = resizes.add(tx, job.id, fence, cause, detail, sizes, given, now)
    for node_id in given:
        attempts.open_supervisor(tx, job.id, fence, node_id)
    for node_id, slot in booked:
        allocations.add(tx, job.id, fence, node_id, slot, resize_id, now)
    message = f"{sizes[0]} → {sizes[1]} slots: {detail}"
    jobs.record(tx, job.id, "resize", message, {"cause": cause, "from": sizes[0], "to": sizes[1]}, now)
    bells.wake_nodes(tx, given, now, resize_id)


def _cause_of_growth(
    tx: Connection, picture: Picture, action: Action, booked: list[tuple[int, str]]
) -> tuple[ResizeCause, str]:
    """Why a running job can grow now: whoever gave the slots back last, or else because E is known."""
    job = picture.jobs[action.job]
    known = job.engines_at or 0.0
    resized = next(item.last_resize for item in picture.state.jobs if item.id == action.job) or 0.0
    holder = allocations.last_holder(tx, booked)
    if holder is not None and holder.released_at >= max(known, resized):
        if holder.job_id == job.id and holder.kind in {ExitKind.LOST, ExitKind.SCRIPT_ERROR}:
            return ResizeCause.SLOTS_FREE, "in place of an engine that was lost"
        name = exec_id(holder.job_id)
        if JobState(holder.state).terminal:
            return ResizeCause.JOB_ENDED, f"{name} is {holder.state}"
        if holder.kind == ExitKind.FINISHED:
            return ResizeCause.JOB_ENDED, f"{name} has finished training"
        return ResizeCause.SLOTS_FREE, f"{name} gave slots back"
    if resized <= known:
        return ResizeCause.ENGINES_KNOWN, f"its script works with up to {job.engines} engines"
    return ResizeCause.SLOTS_FREE, action.reason


def _waiting(explanation: Explanation) -> dict[str, Any] | None:
    """The explanation as it is stored with the job; None for one that does not wait."""
    if explanation.blocking is None:
        return None
    return asdict(
        Waiting(explanation.blocking, explanation.reason, explanation.rank, explanation.need, explanation.free)
    )


def _obstacle(waiting: Mapping[str, Any] | None) -> str | None:
    return waiting["blocking"] if waiting else None


def _explain(tx: Connection, news: Sequence[_News], now: float) -> None:
    """Store why jobs wait that still do; a new kind of obstacle is an event of a job's history."""
    explained = jobs.explain(tx, {job.id: (job.waiting, waiting) for job, waiting in news})
    for job, waiting in news:
        if waiting and job.id in explained and _obstacle(waiting) != _obstacle(job.waiting):
            jobs.record(tx, job.id, "waiting", waiting["reason"], waiting, now)
