"""A part of a gang ends: what follows for the whole attempt.

An elastic attempt goes on without a part. A gang's attempt does not: if one process fails, all others end. A part that
has finished gives its slots back, and the attempt goes on until the last part has finished.

Call these functions inside a write transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.attempts.lifecycle import End, end_attempt
from edt_scheduler.model.jobs import listed
from edt_scheduler.store import allocations, attempts, jobs, outbox


def runs_on(tx: Connection, job_id: int, fence: int) -> str:
    """The names of the attempt's nodes, as one text."""
    return listed(sorted(row.name for row in attempts.supervisors_of(tx, job_id, fence)))


def reserve(tx: Connection, attempt: Row[Any], node: Row[Any], ports: Sequence[int], now: float) -> None:
    """Store the ports that a supervisor has reserved. When all supervisors of the attempt have reserved theirs, their
    nodes are told to start the gang's processes.

    The first report of a supervisor counts, because other nodes may have the ports already. If the number of ports does
    not fit the slots, the attempt is lost, since its processes could never start.

    Args:
        tx: the write transaction.
        attempt: the attempt's row; the attempt is live.
        node: the row of the supervisor's node.
        ports: the ports.
        now: the current time, in seconds since the epoch.
    """
    job_id, fence = attempt.job_id, attempt.fence
    known = attempts.supervisor(tx, job_id, fence, node.id)
    if known is None or known.ports is not None:
        return
    needed = 1 + len(allocations.on_node(tx, job_id, fence, node.id))
    if len(ports) != needed:
        message = f"{node.name} reserved {len(ports)} ports for the gang instead of {needed}"
        end_attempt(tx, job_id, fence, End(ExitKind.LOST, message), now)
        return
    attempts.change_supervisor(tx, job_id, fence, node.id, ports=list(ports))
    if all(row.ports is not None for row in attempts.supervisors_of(tx, job_id, fence)):
        outbox.put_nodes_of_attempt(tx, job_id, fence, now)


def process_started(tx: Connection, allocation: Row[Any]) -> None:
    """Count a slot on which a process now runs."""
    if allocation.started_at is None and allocation.released_at is None:
        jobs.count_worker(tx, allocation.job_id, 1)


def process_gone(tx: Connection, attempt: Row[Any], allocation: Row[Any], end: End, now: float) -> None:
    """A process of a live attempt is gone from a slot. If it did not finish, the whole attempt ends.

    Args:
        tx: the write transaction.
        attempt: the attempt's row.
        allocation: the slot's allocation, as it was before.
        end: how the process ended.
        now: the current time, in seconds since the epoch.
    """
    if allocation.started_at is not None:
        jobs.count_worker(tx, attempt.job_id, -1)
    if end.kind is not ExitKind.FINISHED:
        _end(tx, attempt, end, now)


def part_ended(tx: Connection, attempt: Row[Any], end: End, now: float, whole: bool) -> None:
    """A supervisor of a live attempt has ended, and its part with it.

    Args:
        tx: the write transaction.
        attempt: the attempt's row.
        end: how the part ended.
        now: the current time, in seconds since the epoch.
        whole: whether a part that finished ends the others, too.
    """
    if end.kind is not ExitKind.FINISHED:
        _end(tx, attempt, end, now)
        return
    parts = attempts.supervisors_of(tx, attempt.job_id, attempt.fence)
    if whole or all(part.kind == ExitKind.FINISHED for part in parts):
        end_attempt(tx, attempt.job_id, attempt.fence, end, now)


def tell_why(tx: Connection, attempt: Row[Any], end: End) -> None:
    """Store why the attempt ended, if the report that ended it did not say so and this last report of a part does."""
    if attempt.kind == end.kind and not attempt.message and attempt.ended_at is None and end.message:
        attempts.change(tx, attempt.job_id, attempt.fence, message=end.message, code=end.code)


def blamed(end: End) -> End:
    """The end of a process or part that was killed for memory. The script counts as the cause: with as much memory it
    would be killed again."""
    message = end.message or "a process was killed for memory"
    return replace(end, kind=ExitKind.SCRIPT_ERROR, message=message) if end.kind is ExitKind.LOST else end


def _end(tx: Connection, attempt: Row[Any], end: End, now: float) -> None:
    """End the attempt, unless the platform has asked the gang to leave, or its user stops it: then all its parts end
    anyway, and how a single one does says nothing."""
    if not allocations.any_asked_back(tx, attempt.job_id, attempt.fence):
        end_attempt(tx, attempt.job_id, attempt.fence, end, now)
