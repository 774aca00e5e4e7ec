"""One look of the scheduler: read a snapshot, plan, raise fence files, apply the plan in one transaction, notify.

Any scheduler may call ``look`` at any time and as often as it likes, also one that wrongly believes it is the leader.
``look`` reads a snapshot and plans. If there is something to do, it takes the writer's lock and reads again. If the
rows are the same, it applies its plan. If not, it makes a new plan and applies that. So every write fits the state of
the database, and a stale leader does no harm. After a plan was applied, the next look does nothing.

The fence files are raised before the lock is taken, for the attempts that the snapshot shows as over. An attempt that
is over stays over. If the second plan wants to start a job whose fence file was not raised, the job waits for the next
look.

Thousands of jobs may wait, and every node waits while a scheduler holds the lock. So nothing that was computed before
the lock is computed again under the lock. The scheduler writes a few jobs at a time when it records that a job was seen
or why a job waits.
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

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import Outage, reason
from edt_contract.reports import ExitKind
from edt_scheduler.attempts import head_node, lifecycle, supervisors
from edt_scheduler.decide.snapshot import Rows, Snapshot, is_free, read
from edt_scheduler.errors import EnvironmentLocked
from edt_scheduler.home import fence_files
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Action, Blocking, Explanation, Plan, Verb
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store import allocations, attempts, environs, jobs, nodes, outbox, resizes
from edt_scheduler.store.database import in_batches, in_transactions
from edt_scheduler.views import Waiting

log = logging.getLogger("edt.scheduler")
_Reason = tuple[Row[Any], dict[str, Any] | None]
"""A job's row, and why the job waits; None: it does not wait."""
_AT_ONCE, _RANKS_AT_ONCE = 10, 200
"""The most jobs that one transaction writes, if it writes an event for each job, and if it writes none."""
_REASONS_SECONDS = 1.0
"""How many seconds one look may move jobs to PENDING, and store reasons for waiting. The next look does the rest."""
_fence_files = Outage("the jobs' fence files", lambda reasons: log.error("%s", reasons))


def look(platform: Platform, lost: Mapping[int, int] | None = None) -> bool:
    """Plan once and apply what the plan changes.

    Args:
        platform: database, notifications and settings.
        lost: nodes whose lease has run out: node id to the counter at which the node was last heard from.

    Returns:
        Whether something was written.

    Raises:
        Unavailable: if the database cannot be used now.
        SecretKeyUnusable: if the secret keys cannot be read and were never read before.
    """
    seen = 0 if lost else _see(platform)
    keys = platform.secret_key.keys()
    with platform.database.snapshot() as tx:
        rows = read(tx, keys)
        shut_out = jobs.fences_due(tx)
    foreseen = _Decision.of(rows, platform.clock())
    acted = bool(lost or shut_out or foreseen.plan.actions)
    decided, done = _act(platform, keys, foreseen, lost or {}, shut_out) if acted else (foreseen, set())
    explained = _store_reasons(platform, decided, done)
    if not (seen or acted or explained):
        return False
    platform.notifier.notify()
    return True


@dataclass(frozen=True)
class _Decision:
    """A plan, with the rows and the snapshot from which it was made."""

    rows: Rows
    snapshot: Snapshot
    plan: Plan

    @classmethod
    def of(cls, rows: Rows, now: float) -> _Decision:
        snapshot = Snapshot.of(rows, now)
        return cls(rows, snapshot, plan(snapshot.state))


def _see(platform: Platform) -> int:
    """Move newly submitted jobs to PENDING; return how many. The next look moves jobs that are submitted meanwhile."""

    def some(tx: Connection) -> int:
        found = jobs.submitted(tx, _AT_ONCE)
        for number in found:
            jobs.move(tx, number, JobState.PENDING, "waits for slots", platform.clock())
        return len(found)

    return in_transactions(platform.database, lambda tx: jobs.submitted(tx, 1), some, _REASONS_SECONDS)


def _act(
    platform: Platform, keys: Keys, foreseen: _Decision, lost: Mapping[int, int], shut_out: Sequence[Row[Any]]
) -> tuple[_Decision, set[str]]:
    """Apply ``foreseen``, or a new plan if the rows have changed.

    Returns the applied decision, and the jobs on which it acted.
    """
    crash_point(CrashPoint.SCHEDULER_PLAN)
    raised = {row.id: row.fence_due for row in shut_out if _raise(platform.settings, row, row.fence_due)}
    opening = [foreseen.snapshot.jobs[action.job] for action in foreseen.plan.actions if action.verb is Verb.START]
    open_to = {row.id: row.fence + 1 for row in opening if _raise(platform.settings, row, row.fence + 1)}
    crash_point(CrashPoint.SCHEDULER_RAISED)
    with platform.database.transaction() as tx:
        now = platform.clock()
        _note_raised(tx, raised, open_to, now)
        for node_id, counter in lost.items():
            supervisors.lose(tx, node_id, counter, now)
        rows = read(tx, keys)
        decided = foreseen if rows == foreseen.rows else _Decision.of(rows, now)
        done = set()
        for action in decided.plan.actions:
            job = decided.snapshot.jobs[action.job]
            # An attempt opens only if its fence file holds its number.
            if action.verb is not Verb.START or open_to.get(job.id) == job.fence + 1:
                _apply(tx, keys, decided.snapshot, action, decided.plan, now)
                _explain(tx, [(job, _waiting(decided.plan.explain[action.job]))], now)
                done.add(action.job)
        crash_point(CrashPoint.SCHEDULER_WRITE)
    crash_point(CrashPoint.SCHEDULER_COMMITTED)
    platform.notifier.notify()
    for action in decided.plan.actions:
        log.info("%s: %s, %d → %d slots, %s", action.job, action.verb, action.before, action.after, action.reason)
    return decided, done


def _store_reasons(platform: Platform, decided: _Decision, done: Collection[str]) -> bool:
    """Store with each job why it waits, if the stored reason is another one; return whether anything was stored.

    Jobs with a new kind of obstacle come first. After _REASONS_SECONDS the next look does the rest. ``done``: jobs
    whose reason is stored already.
    """
    obstacles: list[_Reason] = []
    ranks: list[_Reason] = []
    for name, explanation in decided.plan.explain.items():
        job, waiting = decided.snapshot.jobs[name], _waiting(explanation)
        if name not in done and job.waiting != waiting:
            (ranks if _obstacle(waiting) == _obstacle(job.waiting) else obstacles).append((job, waiting))
    ends = time.monotonic() + _REASONS_SECONDS

    def store(reasons: list[_Reason], most: int) -> int:
        left = iter(reasons)

        def some() -> int:
            found = list(islice(left, most))
            if found:
                with platform.database.transaction(durable=False) as tx:
                    _explain(tx, found, platform.clock())
            return len(found)

        return in_batches(some, ends - time.monotonic()) if reasons else 0

    return store(obstacles, _AT_ONCE) + store(ranks, _RANKS_AT_ONCE) > 0


def _raise(settings: Settings, job: Row[Any], fence: int) -> bool:
    """Raise a job's fence file; return whether that worked.

    In the database all attempts below ``fence`` are over already.
    """
    name = exec_id(job.id)
    try:
        fence_files.raise_to(settings.checkpoint_directory(name), fence)
    except OSError as error:
        _fence_files.failed(f"{reason(error)} (that of {name}, of which nothing starts before)")
        return False
    _fence_files.worked()
    return True


def _note_raised(tx: Connection, raised: Mapping[int, int], open_to: Mapping[int, int], now: float) -> None:
    """Note whose fence file was raised. The next attempt of such a job may start FENCE_SECONDS from now.

    If another number is due by now, or none, another scheduler has raised the file in between. This scheduler may have
    slept and then written an older number. In that case the file is marked to be raised once more, to its right number.
    """
    due = {row.id: row.fence_due for row in jobs.fences_due(tx)}
    for number, fence in raised.items():
        job = jobs.get(tx, number)
        if due.get(number) == fence:
            jobs.change(
                tx, number, fence_due=None, not_before=max(job.not_before or 0.0, now + fence_files.FENCE_SECONDS)
            )
        elif number not in due:
            _raise_again(tx, job)
    for number, fence in open_to.items():
        job = jobs.get(tx, number)
        if job.fence + 1 != fence and number not in due:
            _raise_again(tx, job)


def _raise_again(tx: Connection, job: Row[Any]) -> None:
    jobs.change(tx, job.id, fence_due=job.fence if attempts.live(tx, job.id) else job.fence + 1)


def _apply(tx: Connection, keys: Keys, snapshot: Snapshot, action: Action, decided: Plan, now: float) -> None:
    """Carry out one action: choose the head node, take slots back, then give slots."""
    job, held = snapshot.jobs[action.job], snapshot.held[action.job]
    if action.verb is Verb.START and not _is_readable(tx, keys, job, now):
        return
    if held and action.job in decided.head_nodes:
        head_node.move(tx, job.id, job.fence, snapshot.nodes[decided.head_nodes[action.job]].id, action.reason, now)
    here = Counter(row.node_id for row in held)
    there = {snapshot.nodes[name].id: number for name, number in decided.alloc[action.job].items()}
    asked = [
        row for node in here for row in _leavers(held, node, here[node] - there.get(node, 0), snapshot.slots[node])
    ]
    if asked:
        drained = any(row.node_id in snapshot.draining for row in asked)
        cause = ResizeCause.PAUSE if action.verb is Verb.PAUSE else ResizeCause.DRAIN if drained else ResizeCause.ROOM
        lifecycle.take_back(tx, job.id, job.fence, asked, cause, action.reason, now)
        lifecycle.settle(tx, job.id, now)
    given = {node: number - here[node] for node, number in there.items() if number > here[node]}
    if given:
        _give(tx, snapshot, action, decided, given, len(held) - len(asked), now)


def _is_readable(tx: Connection, keys: Keys, job: Row[Any], now: float) -> bool:
    """Whether a job's environment can be opened. A damaged environment ends the job.

    The planner never starts a job whose key is only missing.
    """
    try:
        environs.get(tx, job.id, keys)
    except EnvironmentLocked as error:
        lifecycle.conclude(tx, jobs.get(tx, job.id), JobState.ERROR, str(error), str(error), now)
        return False
    return True


def _leavers(held: list[Row[Any]], node_id: int, number: int, slots: list[Row[Any]]) -> list[Row[Any]]:
    """The ``number`` engines that leave a node: first those on slots that the node no longer has, then the youngest."""
    present = {slot.slot for slot in slots}
    rows = [row for row in held if row.node_id == node_id]
    return sorted(rows, key=lambda row: (row.slot in present, -row.id))[: max(0, number)]


def _give(
    tx: Connection,
    snapshot: Snapshot,
    action: Action,
    decided: Plan,
    given: Mapping[int, int],
    before: int,
    now: float,
) -> None:
    """Book slots for a job, in a new attempt if the job starts. A gang gets all its slots, or it goes on waiting.

    The slots of a node are booked in their order, so the order of the allocations' numbers is that of the slots.
    """
    job = snapshot.jobs[action.job]
    booked = [
        (node_id, slot.slot)
        for node_id, number in given.items()
        for slot in [s for s in nodes.slot_rows(tx, [node_id]) if s.present and is_free(s)][:number]
    ]
    if job.is_gang and len(booked) < action.after:
        return
    if action.verb is Verb.START:
        head_id = snapshot.nodes[decided.head_nodes[action.job]].id
        fence = attempts.add(tx, job.id, head_id, secrets.token_hex(16), now)
        cause = ResizeCause.SUBMIT if fence == 1 else ResizeCause.RESTART
        detail = "first attempt" if fence == 1 else f"attempt {fence}"
    else:
        fence = job.fence
        cause, detail = _cause_of_growth(tx, snapshot, action, booked)
    sizes = (before, before + len(booked))
    resize_id = resizes.add(tx, job.id, fence, cause, detail, sizes, given, now)
    for node_id in given:
        attempts.open_supervisor(tx, job.id, fence, node_id)
    for node_id, slot in booked:
        allocations.add(tx, job.id, fence, node_id, slot, resize_id, now)
    outbox.put_nodes(tx, given, now, resize_id)


def _cause_of_growth(
    tx: Connection, snapshot: Snapshot, action: Action, booked: list[tuple[int, str]]
) -> tuple[ResizeCause, str]:
    """Why a running job can grow now: another job or engine gave its slots back, or E has become known."""
    job = snapshot.jobs[action.job]
    known = job.engines_at or 0.0
    resized = next(item.last_resize for item in snapshot.state.jobs if item.id == action.job) or 0.0
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
    """The explanation as it is stored with the job; None if the job does not wait."""
    if explanation.blocking is None:
        return None
    return asdict(
        Waiting(explanation.blocking, explanation.reason, explanation.rank, explanation.need, explanation.free)
    )


def _obstacle(waiting: Mapping[str, Any] | None) -> str | None:
    return waiting["blocking"] if waiting else None


def _explain(tx: Connection, reasons: Sequence[_Reason], now: float) -> None:
    """Store why jobs wait, if they still wait. A new kind of obstacle becomes an event of the job's history. That a job
    is paused is in its history already.
    """
    explained = jobs.explain(tx, {job.id: (job.waiting, waiting) for job, waiting in reasons})
    for job, waiting in reasons:
        obstacle = _obstacle(waiting)
        if waiting and obstacle not in {_obstacle(job.waiting), Blocking.PAUSED} and job.id in explained:
            jobs.record(tx, job.id, "waiting", waiting["reason"], waiting, now)
