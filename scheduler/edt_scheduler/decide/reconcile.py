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
or why a job waits. A leader keeps a ``Scheduler`` between looks, which reads again only what has changed.

Each decision that has changed something is recorded (``recorded``), after it was applied: a record that a crash loses
is missed by nobody but a reader of records.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import Outage, reason
from edt_scheduler.attempts import head_node, lifecycle, supervisors
from edt_scheduler.decide import limits
from edt_scheduler.decide.explaining import AT_ONCE, REASONS_SECONDS, explain, reason_of, store_reasons
from edt_scheduler.decide.reading import Facts, Rows, read
from edt_scheduler.decide.recorded import Recorder
from edt_scheduler.decide.snapshot import Known, Snapshot, reader_of
from edt_scheduler.errors import EnvironmentLocked, Unavailable
from edt_scheduler.home import fence_files
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.states import JobState
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Action, Plan, Verb
from edt_scheduler.platform import Platform
from edt_scheduler.settings import Settings
from edt_scheduler.store import allocations, attempts, decisions, environs, jobs, outbox, pools, resizes
from edt_scheduler.store.database import in_transactions

log = logging.getLogger("edt.scheduler")
_fence_files = Outage("the jobs' fence files", lambda reasons: log.error("%s", reasons))


@dataclass(frozen=True)
class Decision:
    """A plan, with the rows, the facts and the snapshot from which it was made."""

    rows: Rows
    facts: Facts
    snapshot: Snapshot
    plan: Plan


class Scheduler:
    """Looks, and keeps what the next look need not read or convert again.

    Args:
        platform: database, notifications and settings.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._reader = reader_of(platform)
        self._known = Known()
        self._recorder = Recorder()

    def look(self, lost: Mapping[int, int] | None = None) -> bool:
        """Plan once and apply what the plan changes.

        Args:
            lost: nodes whose lease has run out: node id to the counter at which the node was last heard from.

        Returns:
            Whether something was written.

        Raises:
            Unavailable: if the database cannot be used now.
            SecretKeyUnusable: if the secret keys cannot be read and were never read before.
        """
        platform = self._platform
        seen = 0 if lost else _see(platform)
        keys = platform.secret_key.keys()
        with platform.database.snapshot() as tx:
            now = platform.clock()
            rows = self._reader.rows(tx, keys)
            facts = self._reader.facts(tx, rows, now)
            shut_out = jobs.fences_due(tx)
        foreseen = self._decide(rows, facts, now)
        due = limits.due(foreseen.snapshot, rows, now)
        asked = foreseen.plan.asks or foreseen.plan.give_ups
        acted = bool(lost or shut_out or due or foreseen.plan.actions or asked)
        decided, done = self._act(keys, foreseen, lost or {}, shut_out, due) if acted else (foreseen, set())
        explained = store_reasons(platform, decided.snapshot, decided.plan, done)
        if done or decided.plan.asks or decided.plan.give_ups:
            self._record(decided)
        if not (seen or acted or explained):
            return False
        platform.notifier.notify()
        return True

    def _decide(self, rows: Rows, facts: Facts, now: float) -> Decision:
        snapshot = Snapshot.of(rows, facts, now, self._known)
        return Decision(rows, facts, snapshot, plan(snapshot.state))

    def _act(
        self,
        keys: Keys,
        foreseen: Decision,
        lost: Mapping[int, int],
        shut_out: Sequence[Row[Any]],
        due: Sequence[limits.Due],
    ) -> tuple[Decision, set[str]]:
        """Apply ``foreseen``, or a new plan if the rows have changed.

        Returns the applied decision, and the jobs on which it acted.
        """
        platform = self._platform
        crash_point(CrashPoint.SCHEDULER_PLAN)
        raised = {row.id: row.fence_due for row in shut_out if _raise(platform.settings, row, row.fence_due)}
        opening = [foreseen.snapshot.jobs[action.job] for action in foreseen.plan.actions if action.verb is Verb.START]
        open_to = {row.id: row.fence + 1 for row in opening if _raise(platform.settings, row, row.fence + 1)}
        crash_point(CrashPoint.SCHEDULER_RAISED)
        with platform.database.transaction() as tx:
            now = platform.clock()
            rows = self._reader.rows(tx, keys)
            noted = _note_raised(tx, raised, open_to, now)
            for node_id, counter in lost.items():
                supervisors.lose(tx, node_id, counter, now)
            for each in due:
                limits.end(tx, each, now)
            if noted or lost or due:
                rows = read(tx, keys)  # with what this transaction has written
            decided = foreseen if foreseen.rows.same(rows) else self._decide(rows, foreseen.facts, now)
            done = set()
            for action in decided.plan.actions:
                job = decided.snapshot.jobs[action.job]
                # An attempt opens only if its fence file holds its number.
                if action.verb is not Verb.START or open_to.get(job.id) == job.fence + 1:
                    _apply(tx, keys, decided.snapshot, action, decided.plan, now)
                    explain(tx, [(job, reason_of(decided.plan.explain[action.job]))], now)
                    done.add(action.job)
            _ask(tx, decided, now)
            crash_point(CrashPoint.SCHEDULER_WRITE)
        crash_point(CrashPoint.SCHEDULER_COMMITTED)
        platform.notifier.notify()
        for action in decided.plan.actions:
            log.info("%s: %s, %d → %d slots, %s", action.job, action.verb, action.before, action.after, action.reason)
        return decided, done

    def _record(self, decided: Decision) -> None:
        """Record what was decided. A record that cannot be written stops nobody."""
        state, plan_, actions = self._recorder.packed(decided.snapshot.state, decided.plan)
        try:
            with self._platform.database.transaction(durable=False) as tx:
                decisions.add(tx, decided.snapshot.state.now, state, plan_, actions)
        except Unavailable as error:
            log.warning("the decision is not recorded: %s", error)


def look(platform: Platform, lost: Mapping[int, int] | None = None) -> bool:
    """``Scheduler.look`` of a scheduler that keeps nothing."""
    return Scheduler(platform).look(lost)


def _see(platform: Platform) -> int:
    """Move newly submitted jobs to PENDING; return how many. The next look moves jobs that are submitted meanwhile."""

    def some(tx: Connection) -> int:
        found = jobs.submitted(tx, AT_ONCE)
        for number in found:
            jobs.move(tx, number, JobState.PENDING, "waits for slots", platform.clock())
        return len(found)

    return in_transactions(platform.database, lambda tx: jobs.submitted(tx, 1), some, REASONS_SECONDS)


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


def _note_raised(tx: Connection, raised: Mapping[int, int], open_to: Mapping[int, int], now: float) -> bool:
    """Note whose fence file was raised; return whether this changed anything. The next attempt of such a job may start
    FENCE_SECONDS from now.

    If another number is due by now, or none, another scheduler has raised the file in between. This scheduler may have
    slept and then written an older number. In that case the file is marked to be raised once more, to its right number.
    """
    due, again = {row.id: row.fence_due for row in jobs.fences_due(tx)}, False
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
            again = True
    return bool(raised) or again


def _raise_again(tx: Connection, job: Row[Any]) -> None:
    jobs.change(tx, job.id, fence_due=job.fence if attempts.live(tx, job.id) else job.fence + 1)


def _apply(tx: Connection, keys: Keys, snapshot: Snapshot, action: Action, decided: Plan, now: float) -> None:
    """Carry out one action: choose the head node, take slots back, then give slots."""
    job, held = snapshot.jobs[action.job], snapshot.held.get(action.job, ())
    if action.verb is Verb.START and not _is_readable(tx, keys, job, now):
        return
    if held and action.job in decided.head_nodes:
        head_node.move(tx, job.id, job.fence, snapshot.nodes[decided.head_nodes[action.job]].id, action.reason, now)
    taken = {
        (snapshot.nodes[node].id, slot) for node, slots in decided.takes.get(action.job, {}).items() for slot in slots
    }
    asked = [row for row in held if (row.node_id, row.slot) in taken]
    _note_kept(tx, snapshot, [row for row in held if row not in asked], decided.until_joined.get(action.job, {}))
    if asked:
        lifecycle.take_back(tx, job.id, job.fence, asked, action.cause, action.reason, now, action.numbers)
        lifecycle.settle(tx, job.id, now)
    given = {snapshot.nodes[node].id: slots for node, slots in decided.gives.get(action.job, {}).items() if slots}
    if given:
        _give(tx, snapshot, action, decided, given, len(held) - len(asked), now)


def _ask(tx: Connection, decided: Decision, now: float) -> None:
    """Note which nodes other cluster managers are asked for, and which are given up."""
    numbers = {row.name: row.id for row in decided.rows.pools}
    for each in decided.plan.give_ups:
        log.info("%s is given up: %s", each.node, each.why)
        pools.give_up(tx, each.node, each.why, each.refused, now)
    for ask in decided.plan.asks:
        job = decided.snapshot.jobs[ask.job].id if ask.job is not None else None
        names = pools.ask(tx, numbers[ask.pool], job, ask.nodes, ask.first, ask.group, now)
        log.info("%s is asked for %s, for %s", ask.pool, ", ".join(names), ask.job or "any job")


def _note_kept(tx: Connection, snapshot: Snapshot, kept: Sequence[Row[Any]], until_joined: Mapping[str, int]) -> None:
    """Note which of its slots a job keeps only until an engine elsewhere has joined."""
    nodes = {snapshot.nodes[name].id for name in until_joined}
    for so in (False, True):
        changed = [row.id for row in kept if (row.node_id in nodes) is so and row.until_joined is not so]
        allocations.keep_until_joined(tx, changed, until_joined=so)


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


def _give(
    tx: Connection,
    snapshot: Snapshot,
    action: Action,
    decided: Plan,
    given: Mapping[int, Sequence[str]],
    before: int,
    now: float,
) -> None:
    """Book slots for a job, in a new attempt if the job starts. ``given``: node to the names of its slots, in the
    node's order, so that the order of the allocations' numbers is that of the slots.
    """
    job, number = snapshot.jobs[action.job], sum(map(len, given.values()))
    fence = job.fence
    if action.verb is Verb.START:
        head_id = snapshot.nodes[decided.head_nodes[action.job]].id
        fence = attempts.add(tx, job.id, head_id, secrets.token_hex(16), now)
    sizes = (before, before + number)
    resize_id = resizes.add(tx, job.id, fence, action.cause, action.reason, sizes, given, now, action.numbers)
    for node_id in given:
        attempts.open_supervisor(tx, job.id, fence, node_id)
    for node_id, slots in given.items():
        for slot in slots:
            allocations.add(tx, job.id, fence, node_id, slot, resize_id, now)
    outbox.put_nodes(tx, given, now, resize_id)
