"""The outbox: doorbells that were decided with a change and are rung after its commit. Room: scheduler, store.

A doorbell only says look, so of several for one queue the newest will do, and one that could not be rung for a
minute is dropped: by then every loop has looked by its own timer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from edt_runner.contract import DOORBELL_TASK, node_queue
from edt_scheduler.store.chunks import chunks
from edt_scheduler.store.tables import outbox

EXPIRES_SECONDS = 60
SCHEDULER_QUEUE = "scheduler"
TICK_TASK = "edt.tick"


def put_node(tx: Connection, name: str, version: int, resize_id: int | None, now: float) -> None:
    """Tell a node's agent to look."""
    _put(tx, node_queue(name), DOORBELL_TASK, [name, version], resize_id, now)


def put_scheduler(tx: Connection, now: float) -> None:
    """Tell the scheduler to look."""
    _put(tx, SCHEDULER_QUEUE, TICK_TASK, [], None, now)


def pending(tx: Connection) -> list[Row[Any]]:
    return list(tx.execute(select(outbox).order_by(outbox.c.id)))


def drop(tx: Connection, ids: Iterable[int]) -> None:
    for chunk in chunks(ids):
        tx.execute(delete(outbox).where(outbox.c.id.in_(chunk)))


def _put(tx: Connection, queue: str, task: str, arguments: list[Any], resize_id: int | None, now: float) -> None:
    tx.execute(insert(outbox).values(queue=queue, task=task, arguments=arguments, resize_id=resize_id, created_at=now))
