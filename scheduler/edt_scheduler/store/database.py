"""One database, two dialects, the same rules. Room: scheduler, store.

Write transactions run one at a time on both: SQLite by BEGIN IMMEDIATE, PostgreSQL by an advisory lock taken
first. So every use case reads what it decides on under the lock under which it writes; nothing it has read can
change before it commits, no two can deadlock, and what was tested on one database holds on the other. Writes
are a few rows and one fsync each; the lock is never held while anything but the database is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text

WRITER_LOCK = 0x454454
"""Key of PostgreSQL's advisory lock for write transactions."""
BUSY_TIMEOUT_SECONDS = 30


def database_url(url: str) -> URL:
    """The URL with the driver that we ship: ``postgresql://`` means psycopg 3."""
    parsed = make_url(url)
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


class Database:
    """Opens nothing until it is first used; may be shared by threads."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(database_url(url))

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back by an exception."""
        with self.engine.connect() as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITER_LOCK})
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One consistent picture, for reading; it waits for no writer and none waits for it."""
        with self.engine.connect() as fresh:
            if fresh.dialect.name == "postgresql":
                connection = fresh.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            else:
                connection = fresh.execution_options(edt_begin="BEGIN")
            with connection.begin():
                yield connection

    def close(self) -> None:
        self.engine.dispose()


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(url, pool_pre_ping=True)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Durable commits, readers beside the writer, foreign keys; and BEGIN is ours to send."""
    connection.isolation_level = None
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("edt_begin", "BEGIN IMMEDIATE"))
