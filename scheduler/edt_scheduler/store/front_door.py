"""Whether any API serves: a counter that one of them moves every few seconds. Room: scheduler, store."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from edt_scheduler.store.tables import front_door


def beat(tx: Connection) -> None:
    if tx.execute(update(front_door).values(counter=front_door.c.counter + 1)).rowcount == 0:
        tx.execute(insert(front_door).values(id=1, counter=1))


def counter(tx: Connection) -> int | None:
    """None: no API of this database has ever served."""
    found: int | None = tx.execute(select(front_door.c.counter)).scalar_one_or_none()
    return found
