"""Numbers that are reserved for submits whose job is not written yet.

A submit reserves its number and makes the job's folder under it without a lock. The transaction that writes the job
removes the reservation. A submit that ends in between leaves a reservation, which ``drop_expired`` removes. After that
the job can no longer be written, and no row names the folder.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from edt_scheduler.store import jobs
from edt_scheduler.store.queries import rows_of
from edt_scheduler.store.tables import reservations

KEPT_SECONDS = 3600.0
"""How long a reservation is valid. Making a folder takes less than a second. A submit that was stopped for longer than
this is told to try again.
"""


def add(tx: Connection, now: float, count: int) -> list[int]:
    """Reserve numbers that no job and no other reservation ever had, one after the other."""
    highest = tx.execute(select(func.max(reservations.c.number))).scalar_one() or 0
    first = max(jobs.newest_number(tx), highest) + 1  # after a restore the counter may be too low
    numbers = list(range(first, first + count))
    jobs.skip_numbers(tx, numbers[-1])
    tx.execute(insert(reservations), [{"number": number, "created_at": now} for number in numbers])
    return numbers


def drop(tx: Connection, numbers: Collection[int]) -> set[int]:
    """Remove these reservations. Returns the numbers that were reserved."""
    dropping = delete(reservations).returning(reservations.c.number)
    return {row.number for row in rows_of(tx, dropping, reservations.c.number, numbers)}


def held(tx: Connection) -> set[int]:
    """The numbers that are reserved."""
    return set(tx.execute(select(reservations.c.number)).scalars())


def expired(tx: Connection, now: float) -> set[int]:
    """The numbers whose reservations have expired."""
    return set(tx.execute(select(reservations.c.number).where(_expired(now))).scalars())


def drop_expired(tx: Connection, now: float) -> None:
    """Remove the reservations that have expired."""
    tx.execute(delete(reservations).where(_expired(now)))


def _expired(now: float) -> ColumnElement[bool]:
    return reservations.c.created_at <= now - KEPT_SECONDS
