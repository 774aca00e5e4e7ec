"""An attempt's head node: the node on which its coordinator and driver run.

Call these functions inside a write transaction. When the head node is drained or lost and engines of the attempt are
left on other nodes, one of those nodes becomes the head node. If the old coordinator still lives, it and the training
go on until the new head node reports its coordinator's address (``attempts.coordinator_node_id``).
"""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection

from edt_scheduler.plan.placement import head_node_of
from edt_scheduler.store import allocations, attempts, jobs, nodes, outbox


def keep(tx: Connection, job_id: int, fence: int, why: str, now: float) -> bool:
    """Make sure that the attempt can go on, and move its head node if needed.

    The new head node must hold an engine that has the weights, because an engine without weights would have no source.
    Once an engine has finished, the head node does not move any more, since the driver has the trained weights.

    Args:
        tx: the write transaction.
        job_id: number of the job.
        fence: number of the attempt.
        why: the reason for a move, for the job's history.
        now: the current time, in seconds since the epoch.

    Returns:
        Whether the attempt can go on; False: it is lost.
    """
    attempt = attempts.get(tx, job_id, fence)
    if attempt.ended_at is not None or attempt.kind is not None:
        return True
    living = {
        row.node_id
        for row in attempts.supervisors_of(tx, job_id, fence)
        if row.ended_at is None and row.lost_at is None
    }
    kept = [
        row
        for row in allocations.open_of(tx, job_id, fence)
        if row.release_asked_at is None and row.shrunk_by is None and row.node_id in living
    ]
    able = {row.node_id for row in kept if row.joined_at is not None}
    at_head_node = any(row.node_id == attempt.head_node_id for row in kept)
    if at_head_node or attempt.trained_at is not None or not able:
        # A living head node goes on even without an engine and without a successor, and reports the end.
        return attempt.head_node_id in living
    names = {row.id: row.name for row in nodes.every(tx)}
    successor = head_node_of(Counter(names[row.node_id] for row in kept if row.node_id in able))
    move(tx, job_id, fence, next(number for number, name in names.items() if name == successor), why, now)
    return True


def move(tx: Connection, job_id: int, fence: int, node_id: int, why: str, now: float) -> None:
    """Make another node the head node, record why, and notify all nodes of the attempt."""
    attempt = attempts.get(tx, job_id, fence)
    if attempt.head_node_id == node_id:
        return
    attempts.change(tx, job_id, fence, head_node_id=node_id)
    before, after = nodes.name(tx, attempt.head_node_id), nodes.name(tx, node_id)
    message = f"coordinator and driver move from {before} to {after}: {why}"
    jobs.record(tx, job_id, "head-node", message, {"from": before, "to": after, "why": why}, now)
    outbox.put_nodes_of_attempt(tx, job_id, fence, now)


def listens(tx: Connection, job_id: int, fence: int, node_id: int, address: str, now: float) -> None:
    """Store the address at which a node of the attempt reported its coordinator.

    Only a report of the head node counts, or one of the node that runs the present coordinator.
    """
    attempt = attempts.get(tx, job_id, fence)
    if attempt is None or node_id not in {attempt.head_node_id, attempt.coordinator_node_id}:
        return
    if (attempt.coordinator, attempt.coordinator_node_id) == (address, node_id):
        return
    attempts.change(tx, job_id, fence, coordinator=address, coordinator_node_id=node_id)
    outbox.put_nodes_of_attempt(tx, job_id, fence, now, but=node_id)
