"""A part of an attempt: what it had on one node, and how it ended there.

Called inside somebody's write transaction. A part that ends takes the attempt along only if nobody is left to
carry it on.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.attempts import head_node, losses
from edt_scheduler.attempts.lifecycle import End, end_attempt, settle, take_back
from edt_scheduler.model.states import ResizeCause
from edt_scheduler.store import allocations, attempts, nodes, resizes

log = logging.getLogger("edt.scheduler")

START_LIMIT = 3


def close(
    tx: Connection, attempt: Row[Any], node: Row[Any], end: End, now: float, gone_at: float, whole: bool = False
) -> None:
    """No process of the attempt is left on this node, whatever its reports may not have said.

    ``whole``: the attempt as a whole is over, so nothing is a loss that it has survived.
    """
    job_id, fence = attempt.job_id, attempt.fence
    if attempt.kind is None and not whole:
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
    """All that a supervisor could tell was told, so another of the attempt may follow it on this node, whose reports
    go on from there. Where none has come to start an engine in START_LIMIT lives, none follows in this attempt."""
    rows = allocations.on_node(tx, attempt.job_id, attempt.fence, node.id)
    in_vain = [row for row in rows if row.started_at is None and row.kind == ExitKind.LOST]
    if len(in_vain) < START_LIMIT or any(row.started_at is not None for row in rows):
        attempts.change_supervisor(tx, attempt.job_id, attempt.fence, node.id, reports_complete_at=now)


def carry_on(tx: Connection, attempt: Row[Any], node: Row[Any], end: End, why: str, now: float) -> None:
    """A part of a live attempt has ended. The rest goes on; without a rest the attempt ends as that part did."""
    if not head_node.keep(tx, attempt.job_id, attempt.fence, why, now):
        end_attempt(tx, attempt.job_id, attempt.fence, end, now)
    elif end.kind in {ExitKind.LOST, ExitKind.SCRIPT_ERROR}:
        losses.hold_back(tx, attempt.job_id, now)


def lose(tx: Connection, node_id: int, counter: int, now: float) -> None:
    """A node's lease has run out. Its slots stay booked until it comes back, or has been started anew.

    Attempts go on with what they have elsewhere; they count the node's engines as gone, and ask for them back, so
    that they leave if the node comes back with them. An attempt that has nothing elsewhere is over, and fenced.
    """
    if not nodes.lose(tx, node_id, counter, now):
        return
    name = nodes.name(tx, node_id)
    message = f"node {name} was not heard from"
    log.warning("%s", message)
    for row in attempts.open_on(tx, node_id):
        attempt = attempts.get(tx, row.job_id, row.fence)
        if attempt.ended_at is not None:
            continue  # an older one, fenced when its job moved on
        if attempt.kind is None:
            held = allocations.open_of(tx, row.job_id, row.fence, node_id)
            take_back(tx, row.job_id, row.fence, held, ResizeCause.NODE_LOST, message, now)
            if not head_node.keep(tx, row.job_id, row.fence, message, now):
                end_attempt(tx, row.job_id, row.fence, End(ExitKind.LOST, message), now)
        settle(tx, row.job_id, now)


def forget(tx: Connection, node: Row[Any], why: str, now: float) -> None:
    """Close all that is open on a node. ``why``: the machine was started anew, so nothing of before runs there; or it
    was removed, and what is open there belongs to attempts that are over."""
    end = End(ExitKind.LOST, why)
    for row in attempts.open_on(tx, node.id):
        attempt = attempts.get(tx, row.job_id, row.fence)
        close(tx, attempt, node, end, now, now)
        if attempt.ended_at is None:
            if attempt.kind is None:
                carry_on(tx, attempt, node, end, end.message, now)
            settle(tx, row.job_id, now)
