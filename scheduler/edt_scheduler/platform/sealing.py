"""Sealing what lies in the database in plain text or under an older key, and wiping what that leaves.

Called at every start, where it finds nothing to do but once, and by ``python -m edt_scheduler.doctor --seal`` after a
new key was put into the file. Ends anywhere and begins again: each row is sealed in one transaction with its plain text
gone, and that the files were wiped is remembered only when they were.
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
"""Rows that are sealed in one transaction: a few milliseconds under the writer's lock."""


def seal_all(database: Database, keys: Keys) -> int:
    """Seal with the newest key whatever is not, as far as a key opens it; how many were sealed.

    One that is damaged is told of in the log, and stays as it is: its job cannot start, and all others can.
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
    """Once for a database: write anew what earlier releases kept environments in, so that no freed page, dead row or
    log of it holds plain text any more. False: it is in use just now, and the next start tries again."""
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
    """Why it could not be done; empty: it was."""
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
    """Which jobs no key of the file opens, as a sentence; None: there are none."""
    with database.snapshot() as tx:
        locked = environs.locked(tx, keys.ids)
    if not locked:
        return None
    missing = ", ".join(sorted(set(locked.values())))
    return f"{named(locked)} cannot start: the environment of each is sealed, and {keys.missing(missing)}"
