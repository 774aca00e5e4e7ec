"""An attempt's part on one node: how it ends, and what follows for the rest of the attempt.

Call these functions inside a write transaction. When a part ends, the attempt ends only if no other part can go on.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.attempts import head_node, losses
from edt_scheduler.attempts.lifecycle import End, end_attempt, settle, take_back
from edt_scheduler.model.jobs import OOM_LIMIT, OUT_OF_MEMORY
from edt_scheduler.model.states import ResizeCause
from edt_scheduler.store import allocations, attempts, nodes, resizes

log = logging.getLogger("edt.scheduler")

START_LIMIT = 3
"""After so many engines that were lost before they started, the attempt starts no other supervisor on the node."""


def close(
    tx: Connection, attempt: Row[Any], node: Row[Any], end: End, now: float, gone_at: float, whole: bool = False
) -> None:
    """Close what the attempt has on a node.

    Call this when no process of the attempt is left there, even if its reports do not show that.

    Args:
        tx: the write transaction.
        attempt: the attempt's row.
        node: the node's row.
        end: how this part ended.
        now: the current time, in seconds since the epoch.
        gone_at: when the processes were gone, in seconds since the epoch.
        whole: whether the whole attempt is over; its engines then do not count as lost. Those of a gang never do,
            since its attempt does not shrink.
    """
    job_id, fence = attempt.job_id, attempt.fence
    if attempt.kind is None and not whole and not attempt.gang:
        how = "was lost" if end.kind is ExitKind.LOST else f"ended ({end.kind})"
        detail = f"its supervisor on {node.name} {how}" + (f": {end.message}" if end.message else "")
        losses.note(tx, allocations.open_of(tx, job_id, fence, node.id), detail, now, kind=end.kind)
    for row in allocations.open_of(tx, job_id, fence, node.id):
        allocations.close(tx, row.id, end.kind, now)
        resizes.mark(tx, row.shrunk_by, gone_at=gone_at)
    attempts.end_supervisor(tx, job_id, fence, node.id, end.kind, now)
    if attempt.coordinator_node_id == node.id:
        attempts.change(tx, job_id, fence, coordinator_node_id=None)


def complete_reports_of(tx: Connection, attempt: Row[Any], node: Row[Any], now: float) -> None:
    """Note that all reports of a supervisor have come. The attempt may then have another supervisor on this node.

    The reports of that next supervisor continue the same numbering. If START_LIMIT engines were lost before they
    started, and none has ever started, the attempt gets no other supervisor on this node.
    """
    rows = allocations.on_node(tx, attempt.job_id, attempt.fence, node.id)
    in_vain = [row for row in rows if row.started_at is None and row.kind == ExitKind.LOST]
    if len(in_vain) < START_LIMIT or any(row.started_at is not None for row in rows):
        attempts.change_supervisor(tx, attempt.job_id, attempt.fence, node.id, reports_complete_at=now)


def carry_on(tx: Connection, attempt: Row[Any], node: Row[Any], end: End, why: str, now: float) -> None:
    """A part of a live attempt has ended: let the rest go on.

    If no other part can go on, the attempt ends as this part did. The parts of a gang never go on.
    """
    if attempt.gang or not head_node.keep(tx, attempt.job_id, attempt.fence, why, now):
        end_attempt(tx, attempt.job_id, attempt.fence, end, now)
    elif end.kind in {ExitKind.LOST, ExitKind.SCRIPT_ERROR}:
        losses.hold_back(tx, attempt.job_id, now)


def lose(tx: Connection, node_id: int, counter: int, now: float) -> None:
    """Handle a node whose lease has run out.

    Its slots stay booked until the node comes back or its machine is started again.

    Attempts go on with the engines they have on other nodes. The node's engines are asked back, so that they leave if
    the node comes back with them. An attempt that has no engines elsewhere, or of a gang, is over and is fenced.

    Args:
        tx: the write transaction.
        node_id: number of the node.
        counter: the counter at which the node was last heard from; if it has changed since, nothing happens.
        now: the current time, in seconds since the epoch.
    """
    if not nodes.lose(tx, node_id, counter, now):
        return
    message = f"node {nodes.name(tx, node_id)} was not heard from"
    log.warning("%s", message)
    _let_go(tx, node_id, message, now)


def _let_go(tx: Connection, node_id: int, message: str, now: float) -> None:
    """Let live attempts go on without a node, or end."""
    for row in attempts.open_on(tx, node_id):
        attempt = attempts.get(tx, row.job_id, row.fence)
        if attempt.ended_at is not None:
            continue  # an older attempt, fenced when its job moved on
        if attempt.kind is None and attempt.gang:
            end_attempt(tx, row.job_id, row.fence, End(ExitKind.LOST, message), now)
        elif attempt.kind is None:
            held = allocations.open_of(tx, row.job_id, row.fence, node_id)
            take_back(tx, row.job_id, row.fence, held, ResizeCause.NODE_LOST, message, now)
            if not head_node.keep(tx, row.job_id, row.fence, message, now):
                end_attempt(tx, row.job_id, row.fence, End(ExitKind.LOST, message), now)
        settle(tx, row.job_id, now)


def end_node(tx: Connection, node: Row[Any], why: str, now: float, *, oom: bool = False) -> None:
    """Handle a node that is over: no process of any job is left there, and its slots are free.

    Args:
        tx: the write transaction.
        node: the node's row.
        why: what has become of it, in words.
        now: the current time, in seconds since the epoch.
        oom: whether it was ended because it used too much memory. If it had one job, that job counts as the cause.
    """
    if oom:
        _count_oom(tx, node, why, now)
    if attempts.open_on(tx, node.id):
        log.warning("%s", why)
    _let_go(tx, node.id, why, now)
    forget(tx, node, why, now)
    nodes.lose(tx, node.id, node.counter, now)  # only now: what is open on a lost node would have to be fenced


def _count_oom(tx: Connection, node: Row[Any], why: str, now: float) -> None:
    parts = attempts.open_on(tx, node.id)
    if len({part.job_id for part in parts}) != 1:
        return
    attempt = attempts.get(tx, parts[-1].job_id, parts[-1].fence)
    if attempt.kind is not None or attempt.ended_at is not None:
        return
    number = losses.count_oom(tx, attempt.job_id, attempt.fence)
    if attempt.gang:  # with as much memory it would be killed again
        end = End(ExitKind.SCRIPT_ERROR, why)
        end_attempt(tx, attempt.job_id, attempt.fence, end, now)
        close(tx, attempt, node, end, now, now)
        settle(tx, attempt.job_id, now)
    elif number >= OOM_LIMIT:
        end_attempt(tx, attempt.job_id, attempt.fence, End(ExitKind.SCRIPT_ERROR, OUT_OF_MEMORY), now)


def forget(tx: Connection, node: Row[Any], why: str, now: float) -> None:
    """Close everything that is open on a node.

    Args:
        tx: the write transaction.
        node: the node's row.
        why: the reason, in words. Either the machine was started again or the node is over, so no earlier process runs
            there, or the node was removed, and what is open there belongs to attempts that are over.
        now: the current time, in seconds since the epoch.
    """
    end = End(ExitKind.LOST, why)
    for row in attempts.open_on(tx, node.id):
        attempt = attempts.get(tx, row.job_id, row.fence)
        close(tx, attempt, node, end, now, now)
        if attempt.ended_at is None:
            if attempt.kind is None:
                carry_on(tx, attempt, node, end, end.message, now)
            settle(tx, row.job_id, now)
