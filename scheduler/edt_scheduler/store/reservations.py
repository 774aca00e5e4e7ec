"""Numbers that were given to submits whose job is not written yet.

A submit reserves its number, makes the job's folder under it while it holds no lock, and gives the reservation up in
the transaction that writes the job. One that died in between leaves a reservation, which ``drop_expired`` takes away:
from then on the job can be written no more, and the folder is one that nobody knows.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from edt_scheduler.store import jobs
from edt_scheduler.store.tables import reservations

KEPT_SECONDS = 3600.0
"""Making a folder takes less than a second. Who was stopped for so long in the middle of it is told to try again."""


def add(tx: Connection, now: float) -> int:
    """A number that no job and no other reservation ever had."""
    highest = tx.execute(select(func.max(reservations.c.number))).scalar_one() or 0
    number = max(jobs.newest_number(tx), highest) + 1  # what was restored row by row may have forgotten its count
    jobs.skip_numbers(tx, number)
    tx.execute(insert(reservations).values(number=number, created_at=now))
    return number


def drop(tx: Connection, number: int) -> bool:
    """Give it up; False where it is not reserved, or no longer."""
    return tx.execute(delete(reservations).where(reservations.c.number == number)).rowcount == 1


def held(tx: Connection) -> set[int]:
    """The numbers that are reserved."""
    return set(tx.execute(select(reservations.c.number)).scalars())


def expired(tx: Connection, now: float) -> set[int]:
    """The numbers whose reservations are too old."""
    return set(tx.execute(select(reservations.c.number).where(_expired(now))).scalars())


def drop_expired(tx: Connection, now: float) -> None:
    """Take away those that are too old."""
    tx.execute(delete(reservations).where(_expired(now)))


def _expired(now: float) -> ColumnElement[bool]:
    return reservations.c.created_at <= now - KEPT_SECONDS
