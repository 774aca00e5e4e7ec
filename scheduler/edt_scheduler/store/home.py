"""Which home the database belongs to: one row.

Most functions also work on an empty database, or on one that is not migrated yet. ``since``, ``is_wiped`` and the
functions that write need the newest schema.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, inspect, select, update

from edt_scheduler.store.queries import put
from edt_scheduler.store.tables import home, jobs, nodes, supervisors, users


def identity(tx: Connection) -> str | None:
    """The id that the database shares with its home; None: it has none yet."""
    return _column(tx, home.c.home_id)


def place(tx: Connection) -> str | None:
    """Where the home was when the two were paired; None: they were never paired."""
    return _column(tx, home.c.path)


def since(tx: Connection) -> float | None:
    """When the two were paired, in seconds since the epoch; None: never."""
    return tx.execute(select(home.c.since)).scalar_one_or_none()


def set_identity(tx: Connection, home_id: str, path: str, now: float) -> None:
    put(tx, home, {"id": 1}, {"home_id": home_id, "path": path, "since": now})


def is_wiped(tx: Connection) -> bool:
    """Whether the database's files were wiped of the plain text that earlier releases stored."""
    return bool(tx.execute(select(home.c.wiped_at)).scalar_one_or_none())


def set_wiped(tx: Connection, now: float) -> None:
    tx.execute(update(home).values(wiped_at=now))


def jobs_of_any_release(tx: Connection) -> Iterator[tuple[int, int, bool]]:
    """Number, number of attempts so far, and whether it was deleted, for every job."""
    if _has(tx, jobs.name):
        for row in tx.execute(select(jobs.c.id, jobs.c.fence, jobs.c.deleted_at)):
            yield row.id, row.fence, row.deleted_at is not None


def supervisors_of_any_release(tx: Connection) -> Iterator[tuple[int, str]]:
    """The job's number and the spool's name, such as ``2-n1``, for every supervisor."""
    if _has(tx, supervisors.name):
        named = select(supervisors.c.job_id, supervisors.c.fence, nodes.c.name).join(nodes)
        for row in tx.execute(named):
            yield row.job_id, f"{row.fence}-{row.name}"


def has_users(tx: Connection) -> bool:
    return _has(tx, users.name) and tx.execute(select(users.c.id).limit(1)).first() is not None


def _column(tx: Connection, column: object) -> str | None:
    if not _has(tx, home.name):
        return None
    found: str | None = tx.execute(select(column)).scalar_one_or_none()  # type: ignore[call-overload]
    return found


def _has(tx: Connection, table: str) -> bool:
    return inspect(tx).has_table(table)
