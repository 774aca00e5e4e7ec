"""Whom to wake: nodes whose list of what they should run has changed. Room: scheduler. Rings nothing: it writes the
outbox, and moves the versions, in the transaction that changes the list."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from edt_scheduler.store import attempts, nodes, outbox


def wake_nodes(tx: Connection, node_ids: Iterable[int], now: float, resize_id: int | None = None) -> None:
    """What these nodes should run has changed: move their versions and write their doorbells."""
    names = {row.id: row.name for row in nodes.every(tx)}
    for node_id in sorted(set(node_ids)):
        outbox.put_node(tx, names[node_id], nodes.touch(tx, node_id), resize_id, now)


def wake_attempt(tx: Connection, job_id: int, fence: int, now: float, but: int | None = None) -> None:
    """Wake every node on which something of the attempt may run, ``but`` one."""
    concerned = attempts.supervisors_of(tx, job_id, fence)
    wake_nodes(tx, (row.node_id for row in concerned if row.ended_at is None and row.node_id != but), now)
