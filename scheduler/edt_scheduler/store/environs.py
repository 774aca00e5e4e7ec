"""What jobs were given as their environment, sealed.

A row is there as long as its job may still start: it goes with the transaction in which the job is stopped or over. A
row of an earlier release is in plain text (``plain``) until the first start has sealed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from edt_scheduler.home.secret_key import Keys, Sealed
from edt_scheduler.store.tables import job_environs as environs


def put(tx: Connection, job_id: int, environ: Mapping[str, str], keys: Keys) -> None:
    """Keep a new job's environment, if it has one."""
    if environ:
        sealed = keys.seal(job_id, environ)
        tx.execute(insert(environs).values(job_id=job_id, key_id=sealed.key_id, sealed=sealed.text))


def erase(tx: Connection, job_id: int) -> None:
    """Nothing of the job will start again."""
    tx.execute(delete(environs).where(environs.c.job_id == job_id))


def opened(row: Row[Any], keys: Keys) -> dict[str, str]:
    """The environment of a row with a job's ``id`` and these columns, all None where it has none.

    Raises EnvironmentLocked.
    """
    if row.key_id is not None:
        return keys.open(row.id, Sealed(row.key_id, row.sealed))
    return dict(row.plain or {})


def get(tx: Connection, job_id: int, keys: Keys) -> dict[str, str]:
    """A job's environment. Raises EnvironmentLocked."""
    row = tx.execute(select(environs, environs.c.job_id.label("id")).where(environs.c.job_id == job_id)).one_or_none()
    return opened(row, keys) if row is not None else {}


def locked(tx: Connection, known: Collection[str]) -> dict[int, str]:
    """Job to the id of the key that it was sealed with, of those sealed with none of ``known``."""
    query = select(environs.c.job_id, environs.c.key_id).where(environs.c.key_id.not_in(list(known)))
    return {row.job_id: row.key_id for row in tx.execute(query)}


def not_sealed_with(tx: Connection, key_id: str, others: Collection[str], after: int, most: int) -> list[Row[Any]]:
    """At most so many rows in plain text, or sealed with one of the ``others``, of jobs behind number ``after``."""
    wanted = environs.c.key_id.is_(None) | environs.c.key_id.in_([other for other in others if other != key_id])
    query = select(environs, environs.c.job_id.label("id")).where(wanted, environs.c.job_id > after)
    query = query.order_by(environs.c.job_id)
    return list(tx.execute(query.limit(most)))


def seal(tx: Connection, job_id: int, environ: Mapping[str, str], keys: Keys) -> None:
    """Seal what is there already, with the newest key."""
    sealed = keys.seal(job_id, environ)
    values = {"key_id": sealed.key_id, "sealed": sealed.text, "plain": None}
    tx.execute(update(environs).where(environs.c.job_id == job_id).values(**values))


def by_key(tx: Connection) -> dict[str | None, int]:
    """Id of a key to how many environments are sealed with it; None: in plain text."""
    query = select(environs.c.key_id, func.count()).group_by(environs.c.key_id)
    return {key_id: int(number) for key_id, number in tx.execute(query)}
