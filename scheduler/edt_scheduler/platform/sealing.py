"""Seals environments that the database holds in plain text or under an older key, and wipes the plain text that is
left.

Every start calls this. Usually only the first start after an upgrade finds something to do. ``python -m
edt_scheduler.doctor --seal`` calls this after a new key was added to the file. A run may stop at any point, and the
next run continues: a row is sealed and its plain text removed in one transaction, and the database notes that its files
were wiped only after the wipe.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import cast

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from edt_scheduler.errors import EnvironmentLocked
from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import named
from edt_scheduler.store import environs, home
from edt_scheduler.store.database import Database

log = logging.getLogger("edt.scheduler")

CHUNK = 500
"""Number of rows that one transaction seals. This takes a few milliseconds under the writer's lock."""


def seal_all(database: Database, keys: Keys) -> int:
    """Seal with the newest key every environment that is not sealed with it, if one of the keys can open it.

    A damaged environment is reported in the log and stays as it is. Its job cannot start; all other jobs can.

    Returns:
        The number of environments that were sealed.
    """
    done = last = 0
    while True:
        with database.snapshot() as tx:
            if not environs.not_sealed_with(tx, keys.ids[0], keys.ids, last, 1):
                return done
        damaged: list[EnvironmentLocked] = []
        with database.transaction() as tx:
            rows = environs.not_sealed_with(tx, keys.ids[0], keys.ids, last, CHUNK)
            for row in rows:
                try:
                    environs.seal(tx, row.id, environs.opened(row, keys), keys)
                except EnvironmentLocked as error:
                    damaged.append(error)
                last = row.id
        done += len(rows) - len(damaged)
        for why in damaged:
            log.error("%s; it is left as it is", why)


def wipe(database: Database, now: float) -> bool:
    """Rewrite, once per database, the tables in which earlier releases kept environments.

    Afterwards no freed page, dead row or log of the database holds plain text.

    Returns:
        False: it could not be done, for example because the database is in use; the next start tries again.
    """
    with database.snapshot() as tx:
        if home.is_wiped(tx):
            return True
    try:
        why = _rewrite(database.writing)
    except (DBAPIError, sqlite3.Error) as error:
        why = str(error).splitlines()[0]
    if why:
        log.warning("the next start wipes the database of environments in plain text, this one could not: %s", why)
        return False
    with database.transaction() as tx:
        home.set_wiped(tx, now)
    return True


def _rewrite(engine: Engine) -> str:
    """Why the tables could not be rewritten; empty: they were rewritten."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (FULL) jobs")
            connection.exec_driver_sql("VACUUM (FULL) job_environs")
        return ""
    with closing(engine.raw_connection()) as pooled:
        raw = cast(sqlite3.Connection, pooled.driver_connection)
        raw.execute("VACUUM")
        busy = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return "its log is being read" if busy else ""


def locked_jobs(database: Database, keys: Keys) -> str | None:
    """A sentence that names the jobs whose environment no key of the file opens; None: there are no such jobs."""
    with database.snapshot() as tx:
        locked = environs.locked(tx, keys.ids)
    if not locked:
        return None
    missing = ", ".join(sorted(set(locked.values())))
    return f"{named(locked)} cannot start: the environment of each is sealed, and {keys.missing(missing)}"
