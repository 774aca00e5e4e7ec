"""The schema's history. Touches the database's schema; imports nothing of the other packages.

``migrate(url)`` brings a database, empty or old, to the newest schema that this code knows; called by every
process that opens one, by as many at once as like: one does it, under the writer's lock, the others find it done.
The steps lie in ``versions``. A new one is written by hand, numbered, and held against
``edt_scheduler.store.tables`` by a test on both databases.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.pool import NullPool

LOCK = 0x454455
"""Key of PostgreSQL's advisory lock for migrating."""
_WAIT_MS = 60_000
"""So long SQLite's users wait for who migrates already; the driver's own 5 s are too few on a slow disk."""


class DatabaseTooNew(RuntimeError):
    """A newer version of the platform has migrated this database."""

    code = "database-too-new"

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            f"the database is at schema {found}, this version of the platform knows up to {known}: "
            "start the newer version again, or restore a backup from before the upgrade"
        )
        self.found = found
        self.known = known


def migrate(url: str, check: Callable[[Connection], None] | None = None, *, to: str = "head") -> None:
    """Bring the database at ``url`` to the newest schema, all steps in one transaction.

    ``check`` is asked before the first step, under the lock; what it raises leaves the database as it is. Where the
    schema is the newest already, it is asked without the lock: it may look at files of another machine.
    ``to``: stop at this older revision (``0003``), as a test of what comes after it wants.

    Raises DatabaseTooNew, with the database untouched, where a newer version of this code has been at work.
    """
    if to == "head" and _is_newest(url, check):
        return
    engine = _engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}"))
        # The driver would begin only at the first INSERT, and not at all before CREATE TABLE.
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        _upgrade(connection, check, to)


@cache
def revisions() -> tuple[str, ...]:
    """The numbers of all schemas, oldest first. Read once: each is a module."""
    script = ScriptDirectory.from_config(_config())
    return tuple(step.revision for step in script.walk_revisions())[::-1]


def at_head(url: str) -> bool:
    """Whether the database at ``url`` has the newest schema; changes nothing. Raises DatabaseTooNew as ``migrate``."""
    with _engine(url).connect() as connection:
        return is_newest(connection)


def is_newest(connection: Connection) -> bool:
    """The same of an open database."""
    return _found(connection) == revisions()[-1]


def _is_newest(url: str, check: Callable[[Connection], None] | None) -> bool:
    """Whether nothing is to be migrated. Then ``check`` has been asked."""
    with _engine(url).connect() as connection:
        if not is_newest(connection):
            return False
        if check is not None:
            check(connection)
    return True


def database_url(url: str) -> URL:
    """The URL with the driver that we ship: ``postgresql://`` means psycopg 3."""
    parsed = make_url(url)
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


def _engine(url: str) -> Engine:
    return create_engine(database_url(url), poolclass=NullPool)


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _found(connection: Connection) -> str | None:
    """The database's revision, if this code knows it."""
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in revisions():
        raise DatabaseTooNew(found, revisions()[-1])
    return found


def _upgrade(connection: Connection, check: Callable[[Connection], None] | None, to: str) -> None:
    newest = is_newest(connection)
    if check is not None:
        check(connection)
    if not newest:
        command.upgrade(_config(connection), to)
