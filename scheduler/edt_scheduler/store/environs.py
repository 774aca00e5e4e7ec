"""The environments of jobs, sealed.

A job's row exists while the job may still start. The transaction that stops or ends the job deletes the row. A row of
an earlier release is in plain text (``plain``) until the first start has sealed it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from edt_scheduler.home.secret_key import Keys, Sealed
from edt_scheduler.store.tables import job_environs as environs


def put(tx: Connection, job_id: int, environ: Mapping[str, str], keys: Keys) -> None:
    """Store a new job's environment, unless it is empty."""
    if environ:
        sealed = keys.seal(job_id, environ)
        tx.execute(insert(environs).values(job_id=job_id, key_id=sealed.key_id, sealed=sealed.text))


def erase(tx: Connection, job_id: int) -> None:
    """Delete a job's environment. Legal when nothing of the job will start again."""
    tx.execute(delete(environs).where(environs.c.job_id == job_id))


def opened(row: Row[Any], keys: Keys) -> dict[str, str]:
    """The environment in a row that has a job's ``id`` and these columns. All columns are None if the job has no
    environment.

    Raises:
        EnvironmentLocked: No key opens the environment, or it is damaged.
    """
    if row.key_id is not None:
        return keys.open(row.id, Sealed(row.key_id, row.sealed))
    return dict(row.plain or {})


def get(tx: Connection, job_id: int, keys: Keys) -> dict[str, str]:
    """A job's environment. Raises EnvironmentLocked."""
    row = tx.execute(select(environs, environs.c.job_id.label("id")).where(environs.c.job_id == job_id)).one_or_none()
    return opened(row, keys) if row is not None else {}


def locked(tx: Connection, known: Collection[str]) -> dict[int, str]:
    """Number of each job whose environment is sealed with none of the ``known`` keys, mapped to the id of its key."""
    query = select(environs.c.job_id, environs.c.key_id).where(environs.c.key_id.not_in(list(known)))
    return {row.job_id: row.key_id for row in tx.execute(query)}


def not_sealed_with(tx: Connection, key_id: str, others: Collection[str], after: int, most: int) -> list[Row[Any]]:
    """At most ``most`` rows in plain text or sealed with one of the ``others``, of jobs with a number
    above ``after``.
    """
    wanted = environs.c.key_id.is_(None) | environs.c.key_id.in_([other for other in others if other != key_id])
    query = select(environs, environs.c.job_id.label("id")).where(wanted, environs.c.job_id > after)
    query = query.order_by(environs.c.job_id)
    return list(tx.execute(query.limit(most)))


def seal(tx: Connection, job_id: int, environ: Mapping[str, str], keys: Keys) -> None:
    """Seal an environment that is stored already, with the newest key."""
    sealed = keys.seal(job_id, environ)
    values = {"key_id": sealed.key_id, "sealed": sealed.text, "plain": None}
    tx.execute(update(environs).where(environs.c.job_id == job_id).values(**values))


def by_key(tx: Connection) -> dict[str | None, int]:
    """Number of environments that are sealed with each key, by the key's id; None: in plain text."""
    query = select(environs.c.key_id, func.count()).group_by(environs.c.key_id)
    return {key_id: int(number) for key_id, number in tx.execute(query)}
