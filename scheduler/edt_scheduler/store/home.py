"""Which home the database belongs to: one row.

All but ``since``, ``is_wiped`` and what writes may also be asked of a database that is still to be migrated, an empty
one too.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, inspect, select, update

from edt_scheduler.store.queries import put
from edt_scheduler.store.tables import home, jobs, nodes, supervisors, users


def identity(tx: Connection) -> str | None:
    """The id that it shares with its home; None: it has none yet."""
    return _column(tx, home.c.home_id)


def place(tx: Connection) -> str | None:
    """Where that home lay when they were told of each other."""
    return _column(tx, home.c.path)


def since(tx: Connection) -> float | None:
    """When they were told of each other, seconds since the epoch; None: never."""
    return tx.execute(select(home.c.since)).scalar_one_or_none()


def set_identity(tx: Connection, home_id: str, path: str, now: float) -> None:
    put(tx, home, {"id": 1}, {"home_id": home_id, "path": path, "since": now})


def is_wiped(tx: Connection) -> bool:
    """Whether the database's files were wiped of what earlier releases kept in plain text."""
    return bool(tx.execute(select(home.c.wiped_at)).scalar_one_or_none())


def set_wiped(tx: Connection, now: float) -> None:
    tx.execute(update(home).values(wiped_at=now))


def jobs_of_any_release(tx: Connection) -> Iterator[tuple[int, int, bool]]:
    """Number, attempts so far, whether it was deleted: of every job."""
    if _has(tx, jobs.name):
        for row in tx.execute(select(jobs.c.id, jobs.c.fence, jobs.c.deleted_at)):
            yield row.id, row.fence, row.deleted_at is not None


def supervisors_of_any_release(tx: Connection) -> Iterator[tuple[int, str]]:
    """Number of the job and name of the spool, ``2-n1``: of every supervisor."""
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
