"""Use cases of a node's agent: what it should run, and what it reports."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.reports import Report, ReportKind, fit
from edt_scheduler.attempts import specs, supervisors
from edt_scheduler.errors import EnvironmentLocked, NoSuchNode, ReportForeign
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.ingest import dispatch
from edt_scheduler.model.jobs import exec_id, job_number
from edt_scheduler.model.states import Intent
from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations, attempts, images, nodes, outbox, pools, resizes, usage
from edt_scheduler.store.database import retried
from edt_scheduler.store.outages import outage
from edt_scheduler.views import NodeAssignments, SlotUse

log = logging.getLogger("edt.reports")

WOKEN_BY = ("notification", "timer", "start")


def assignments(platform: Platform, node: str, *, woken_by: str = "timer") -> NodeAssignments:
    """What this node should be running now. This call is also the node's heartbeat.

    From now on processes may exist for everything that is listed. The rows note that they were handed out. Each resize
    that concerns the node notes what woke the agent that fetched it first.

    No file is read, so that a home that does not answer makes no node silent. There is one exception: if a job was
    sealed with a key that is not known yet, the key file is read, after the heartbeat was written.

    Args:
        platform: The open platform.
        node: The node's name.
        woken_by: What made the agent ask: ``notification``, ``timer`` or ``start``. Other texts count as ``timer``.

    Raises:
        NoSuchNode: No node has this name.
        SecretKeyUnusable: The key file cannot be used, and no keys were read before.
    """
    if woken_by not in WOKEN_BY:
        woken_by = "timer"
    known = platform.secret_key.last_read()
    answer, why = _assignments(platform, node, woken_by, known)
    if any(error.unknown_key for error in why) and (read := platform.secret_key.keys()) is not known:
        answer, why = _assignments(platform, node, woken_by, read)
    for (_, fence), error in zip(answer.locked, why, strict=True):
        log.error("%s; what runs of its attempt %d on %s stays as it is", error, fence, node)
    return answer


@retried(if_done=True)
def _assignments(
    platform: Platform, node: str, woken_by: str, secret: Keys
) -> tuple[NodeAssignments, list[EnvironmentLocked]]:
    """``assignments`` with these keys, and for each locked attempt the error that says why it is locked."""
    with platform.database.transaction(urgent=True) as tx:
        now = platform.clock()
        row = nodes.get(tx, node)
        nodes.beat(tx, row.id, now)
        if row.lost_at is not None:
            outbox.put_scheduler(tx, now)
        slots = defaultdict(list)
        for slot in allocations.desired_on(tx, row.id):
            slots[slot.job_id, slot.fence].append(slot)
        listed, locked, why = [], [], []
        every = attempts.carried_on(tx, row.id)
        gangs = specs.placed(tx, row.id, every)
        for carried in every:
            guest = carried.head_node_id != row.id and carried.gang is None
            if guest and carried.coordinator is None and carried.supervisor_handed_at is None:
                continue  # it has no coordinator yet to which it could connect
            key = (carried.id, carried.attempt_fence)
            try:
                listed.append(specs.assignment(platform.settings, secret, row, carried, slots[key], gangs.get(key)))
            except EnvironmentLocked as error:  # this machine's key file differs from the scheduler's
                locked.append((exec_id(carried.id), carried.attempt_fence))
                why.append(error)
                continue
            attempts.hand(tx, *key, row.id, now)
            allocations.hand(tx, [slot.id for slot in slots[key]], now)
        resizes.woken(tx, row.id, woken_by, now)
        wanted = images.asked_of(tx, row.id)
    if row.lost_at is not None:
        platform.notifier.notify()
    return NodeAssignments(row.version, tuple(listed), tuple(locked), tuple(wanted)), why


def assignments_version(platform: Platform, node: str) -> int:
    """The version that ``assignments`` would return now. Writes nothing and waits for no lock.

    Raises:
        NoSuchNode: No node has this name.
    """
    with platform.database.snapshot() as tx:
        version = nodes.version(tx, node)
    if version is None:
        raise NoSuchNode(node)
    return version


@retried(if_done=True)
def record_reports(platform: Platform, node: str, reports: Sequence[Report]) -> dict[str, int]:
    """Take a node's reports: each number of a (job, fence) once and in order.

    A known report changes nothing. After a gap no report is taken, and the answer shows where the agent must continue.
    One report may cover several numbers that its agent left out. Reports of an attempt that this database does not know
    are acknowledged and dropped, so that the agent can forget them.

    Returns:
        For each ``<exec id>/<fence>`` the newest number that was taken.

    Raises:
        ReportForeign: A report names another node.
        NoSuchNode: No node has this name.
    """
    for report in reports:
        if report.node != node:
            raise ReportForeign("node", f"a report of {report.node!r} came from {node!r}")
    acked: dict[str, int] = {}
    with platform.database.transaction(durable=bool(reports), urgent=True) as tx:
        now = platform.clock()
        row = nodes.get(tx, node)
        nodes.beat(tx, row.id, now)
        if row.lost_at is not None:
            outbox.put_scheduler(tx, now)
        for (job, fence), numbered in _by_attempt(reports).items():
            number = job_number(job)
            cursor = attempts.supervisor(tx, number, fence, row.id) if number is not None else None
            if number is None or cursor is None:
                acked[f"{job}/{fence}"] = numbered[-1].seq
                continue
            seq = cursor.acked
            for report in numbered:
                if _first(report) <= seq + 1 <= report.seq:
                    if not _take(tx, row, number, report, now):
                        break
                    seq = report.seq
            attempts.change_supervisor(tx, number, fence, row.id, acked=seq)
            acked[f"{exec_id(number)}/{fence}"] = seq
        crash_point(CrashPoint.API_REPORTS)
    platform.notifier.notify()
    return acked


@retried(if_done=True)
def record_usage(platform: Platform, node: str, samples: Sequence[SlotUse]) -> None:
    """Store a node's sample of its slots with the present time. This call is no heartbeat.

    While a GPU does not answer, no engine starts there.

    Raises:
        NoSuchNode: No node has this name.
    """
    with platform.database.transaction(durable=False, urgent=True) as tx:
        row, now = nodes.get(tx, node), platform.clock()
        changed = usage.put(tx, row, samples, now)
        if changed:
            outbox.put_scheduler(tx, now)
    if changed:
        platform.notifier.notify()


@retried(if_done=True)
def leaving(platform: Platform, node: str, why: str, *, if_idle: bool = False, gone: bool = False) -> bool:
    """A node of a pool wants to leave, or has left.

    From the first call on, the node is being emptied: its jobs train on while their engines move to other nodes.

    Args:
        platform: The open platform.
        node: The node's name.
        why: Why it leaves, in words.
        if_idle: It leaves only if nothing of a job is on it and its pool keeps its least number of nodes.
        gone: No process of any job is left there. The node is over at once.

    Returns:
        Whether it may leave, or must.

    Raises:
        NoSuchNode: No node has this name.
    """
    why = why.replace("\0", " ")  # PostgreSQL takes no NUL
    with platform.database.transaction(urgent=True) as tx:
        now = platform.clock()
        row = nodes.get(tx, node)
        request = pools.request(tx, node)
        wanted = request is not None and request.ended_at is None and request.give_up_at is None
        if gone:
            supervisors.end_node(tx, row, f"node {node} has left: {why}", now)
            if request is not None and wanted:  # its cluster manager may start it again
                pools.change_request(tx, request.id, granted_at=None, asked_at=now)
        else:
            nodes.beat(tx, row.id, now)
            if if_idle and (request is None or not _may_leave(tx, row, request)):
                return False
            if if_idle:
                pools.give_up(tx, node, why, False, now)
            elif row.intent != Intent.DRAINING:
                nodes.intend(tx, row.id, Intent.DRAINING, why)
        outbox.put_scheduler(tx, now)
    platform.notifier.notify()
    return True


def _may_leave(tx: Connection, node: Row[Any], request: Row[Any]) -> bool:
    """Whether a node is idle and its pool keeps its least number of nodes without it."""
    if attempts.open_on(tx, node.id):
        return False
    if request.give_up_at is not None:
        return True
    if request.job_id is not None and attempts.live(tx, request.job_id) is None:
        return False  # its job has not begun: it may wait for other nodes. When it is over, the node is given up
    there = [row for row in pools.open_of(tx, request.pool_id) if row.granted_at is not None and row.give_up_at is None]
    pool = pools.of_number(tx, request.pool_id)
    return len(there) > int(min(pool.min_nodes, pool.max_nodes))


def _take(tx: Connection, node: Row[Any], number: int, report: Report, now: float) -> bool:
    """Take one report. False: the report waits, and the later reports of its attempt wait with it.

    A report that raises an exception here must not block the reports behind it, so it is skipped. A report that says
    that processes are gone is never skipped: its attempt waits, and other attempts continue.
    """
    try:
        with tx.begin_nested():
            dispatch.take(tx, node, number, report, now)
    except Exception as error:
        if isinstance(error, DBAPIError) and outage(error) is not None:
            raise  # the database fails, not the report
        log.exception("%s/%d: report %d (%s) could not be taken", report.job, report.fence, report.seq, report.kind)
        return report.kind not in dispatch.NEVER_SKIPPED
    return True


def _first(report: Report) -> int:
    """The lowest number that a report covers: its own, or the number of the first report that was left out.

    The answer is never higher than the report's own number, whatever the body says. A report with such a number would
    wait for ever, and all later reports with it.
    """
    if report.kind is not ReportKind.REPORTS_LEFT_OUT:
        return report.seq
    fitted = fit(report.kind, report.body).body
    return report.seq if fitted is None else min(int(fitted["first"]), report.seq)


def _by_attempt(reports: Sequence[Report]) -> dict[tuple[str, int], list[Report]]:
    grouped: dict[tuple[str, int], list[Report]] = defaultdict(list)
    for report in sorted(reports, key=lambda report: report.seq):
        grouped[report.job, report.fence].append(report)
    return grouped
