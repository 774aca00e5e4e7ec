"""Migrations of the database's schema. Changes the schema; imports nothing of the other packages.

``migrate(url)`` brings an empty or older database to the newest schema that this code knows. Every process that opens a
database calls it, also many processes at once. One process migrates under the writer's lock, and the others find the
work done. The migrations are in ``versions``. A new migration is written by hand and numbered. A test compares the
result with ``edt_scheduler.store.tables`` on both databases.
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
"""How many ms a process waits on SQLite while another one migrates. The driver's own 5 s are too few on a slow disk."""


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
    """Bring the database at ``url`` to the newest schema, with all migrations in one transaction.

    Args:
        url: URL of the database.
        check: called before the first migration, under the lock. If it raises, the database stays as it is. If the
            schema is the newest already, ``check`` is called without the lock, because it may read files of another
            machine.
        to: an older revision (``0003``) at which to stop, for tests of later migrations.

    Raises:
        DatabaseTooNew: if a newer version of this code has migrated the database; the database stays as it is.
        sqlalchemy.exc.DBAPIError: if the database does not answer or refuses a migration.
    """
    if to == "head" and _is_newest(url, check):
        return
    engine = _engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA busy_timeout={_WAIT_MS}"))
        # The driver itself would begin a transaction only at the first INSERT, and none before CREATE TABLE.
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        _upgrade(connection, check, to)


@cache
def revisions() -> tuple[str, ...]:
    """The numbers of all schemas, oldest first. The result is cached, since each schema is a module to import."""
    script = ScriptDirectory.from_config(_config())
    return tuple(step.revision for step in script.walk_revisions())[::-1]


def at_head(url: str) -> bool:
    """Whether the database at ``url`` has the newest schema. Changes nothing.

    Raises:
        DatabaseTooNew: if a newer version of this code has migrated the database.
    """
    with _engine(url).connect() as connection:
        return is_newest(connection)


def is_newest(connection: Connection) -> bool:
    """Whether the database of an open connection has the newest schema.

    Raises:
        DatabaseTooNew: if a newer version of this code has migrated the database.
    """
    return _found(connection) == revisions()[-1]


def _is_newest(url: str, check: Callable[[Connection], None] | None) -> bool:
    """Whether the schema is the newest already. If it is, ``check`` has been called."""
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
    """The database's revision, if this code knows it; None: the database has no schema yet. Raises DatabaseTooNew."""
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
