"""The outbox: notifications that are written with a change and sent after its commit.

A notification only tells its reader to look. So only the newest one for each queue matters. A notification that could
not be sent for a minute is dropped, because by then every loop has looked by its own timer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from edt_contract.broker import NOTIFICATION_TASK, node_queue
from edt_scheduler.store import attempts, nodes
from edt_scheduler.store.queries import write_to
from edt_scheduler.store.tables import outbox

EXPIRES_SECONDS = 60
SCHEDULER_QUEUE = "scheduler"
LOOK_TASK = "edt.look"


def put_nodes(tx: Connection, node_ids: Iterable[int], now: float, resize_id: int | None = None) -> None:
    """Tell the agents of these nodes that their assignments have changed, and increase the nodes' versions."""
    concerned = sorted(set(node_ids))
    names = nodes.names(tx, concerned)
    for node_id in concerned:
        name, version = names[node_id], nodes.touch(tx, node_id)
        _put(tx, node_queue(name), NOTIFICATION_TASK, [name, version], resize_id, now)


def put_nodes_of_attempt(tx: Connection, job_id: int, fence: int, now: float, but: int | None = None) -> None:
    """``put_nodes`` for every node on which a process of the attempt may run, except the node ``but``."""
    concerned = attempts.supervisors_of(tx, job_id, fence)
    put_nodes(tx, (row.node_id for row in concerned if row.ended_at is None and row.node_id != but), now)


def put_scheduler(tx: Connection, now: float) -> None:
    """Tell the scheduler to look."""
    _put(tx, SCHEDULER_QUEUE, LOOK_TASK, [], None, now)


def pending(tx: Connection) -> list[Row[Any]]:
    """The notifications that are not sent yet, oldest first."""
    return list(tx.execute(select(outbox).order_by(outbox.c.id)))


def drop(tx: Connection, ids: Iterable[int]) -> None:
    write_to(tx, delete(outbox), outbox.c.id, ids)


def _put(tx: Connection, queue: str, task: str, arguments: list[Any], resize_id: int | None, now: float) -> None:
    tx.execute(insert(outbox).values(queue=queue, task=task, arguments=arguments, resize_id=resize_id, created_at=now))
