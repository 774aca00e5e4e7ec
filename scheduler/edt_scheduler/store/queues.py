"""Queues, and what users have used in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from edt_scheduler.model.queues import decayed
from edt_scheduler.store.queries import put as put_row
from edt_scheduler.store.tables import allocations, jobs, queue_usage, queues, rolled_up, users

_USAGE = {"what": "queue_usage"}
LEAST_SLOT_SECONDS = 1.0
"""Usage that has decayed to less than this is forgotten."""


def every(tx: Connection) -> list[Row[Any]]:
    """All queues, by path. The root has a row only if an administrator has changed it."""
    return list(tx.execute(select(queues).order_by(queues.c.path)))


def find(tx: Connection, path: str) -> Row[Any] | None:
    """The queue's row; None: there is none."""
    return tx.execute(select(queues).where(queues.c.path == path)).one_or_none()


def put(tx: Connection, path: str, now: float, **values: Any) -> None:
    """Write a queue's ``quota``, ``weight``, ``limit`` and ``policy``. A queue that is new gets a row."""
    put_row(tx, queues, {"path": path}, values, created_at=now)


def remove(tx: Connection, path: str, heir: str, half_life: float, now: float) -> None:
    """Delete a queue. What users have used in it counts in the queue ``heir`` from now on."""
    left = tx.execute(select(queue_usage).where(queue_usage.c.queue == path)).all()
    tx.execute(delete(queue_usage).where(queue_usage.c.queue == path))
    add_usage(
        tx, {(heir, row.user_id): decayed(row.slot_seconds, now - row.at, half_life) for row in left}, half_life, now
    )
    tx.execute(delete(queues).where(queues.c.path == path))


def usage(tx: Connection, half_life: float, now: float) -> dict[tuple[str, str], float]:
    """Queue and user's name to the decayed slot-seconds of all users who have ever had this name."""
    found: dict[tuple[str, str], float] = {}
    for row in tx.execute(select(queue_usage, users.c.name).join(users)):
        found[row.queue, row.name] = found.get((row.queue, row.name), 0.0) + decayed(
            row.slot_seconds, now - row.at, half_life
        )
    return found


def add_usage(tx: Connection, more: Mapping[tuple[str, int], float], half_life: float, now: float) -> None:
    """Add slot-seconds that were used just now to those of the past."""
    known = {(row.queue, row.user_id): row for row in tx.execute(select(queue_usage))}
    for (queue, user_id), seconds in more.items():
        key = {"queue": queue, "user_id": user_id}
        row = known.get((queue, user_id))
        if row is None:
            tx.execute(insert(queue_usage).values(**key, slot_seconds=seconds, at=now))
        else:
            left = decayed(row.slot_seconds, now - row.at, half_life)
            tx.execute(update(queue_usage).filter_by(**key).values(slot_seconds=left + seconds, at=now))


def forget_usage(tx: Connection, half_life: float, now: float) -> int:
    """Delete usage that has decayed to next to nothing; return how many rows."""
    gone = [
        row
        for row in tx.execute(select(queue_usage)).all()
        if decayed(row.slot_seconds, now - row.at, half_life) < LEAST_SLOT_SECONDS
    ]
    for row in gone:
        tx.execute(delete(queue_usage).filter_by(queue=row.queue, user_id=row.user_id))
    return len(gone)


def counted_until(tx: Connection) -> int | None:
    """The time before which all slot-seconds are counted, in seconds since the epoch; None: nothing was counted yet."""
    return tx.execute(select(rolled_up.c.until).filter_by(**_USAGE)).scalar_one_or_none()


def move(tx: Connection, before: int | None, after: int) -> bool:
    """Note that everything before ``after`` is counted. False: the old end is not ``before``; nothing was changed."""
    if counted_until(tx) != before:
        return False
    put_row(tx, rolled_up, _USAGE, {"until": after})
    return True


def held(tx: Connection, since: float, before: float) -> dict[tuple[str, int], float]:
    """The path that a job asked for and its user's id, to the seconds for which slots were held between two times."""
    given = allocations.c
    query = (
        select(jobs.c.queue, jobs.c.user_id, given.decided_at, given.released_at)
        .join(jobs, jobs.c.id == given.job_id)
        .where(given.decided_at < before)
    )
    found: dict[tuple[str, int], float] = {}
    # Two queries: for one query with OR, SQLite would read all allocations that were ever decided.
    for still_of_interest in (given.released_at > since, given.released_at.is_(None)):
        for queue, user, decided_at, released_at in tx.execute(query.where(still_of_interest)):
            begin, end = max(decided_at, since), min(before, released_at if released_at is not None else before)
            found[queue, user] = found.get((queue, user), 0.0) + max(0.0, end - begin)
    return found


def earliest(tx: Connection) -> float | None:
    """When the first slot was given that may still be counted."""
    return tx.execute(select(func.min(allocations.c.decided_at))).scalar()
