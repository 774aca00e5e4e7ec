"""One database, two dialects, the same rules. Room: scheduler, store.

Write transactions run one at a time on both: SQLite by BEGIN IMMEDIATE, PostgreSQL by an advisory lock taken
first. So every use case reads what it decides on under the lock under which it writes; nothing it has read can
change before it commits, no two can deadlock, and what was tested on one database holds on the other. Writes
are a few rows and one fsync each; the lock is never held while anything but the database is waited for: no file is
touched in a write transaction, since the home may lie on another machine (decision 0022, and a test of it).

The threads of a process that want to write wait in one line (``turns``), and only the first of them waits at the
database, with the one connection there is for writing. Reading has connections of its own, so it waits for no writer.

A database goes away and comes back. What it then raises leaves this room as DatabaseUnavailable: nothing was
written; or as OutcomeUnknown: the connection was lost during COMMIT. ``retried`` is the one place that tries again.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from edt_scheduler.errors import DatabaseUnavailable, OutcomeUnknown, Unavailable
from edt_scheduler.store.outages import after_commit, is_locked, outage
from edt_scheduler.store.turns import Turns

WRITER_LOCK = 0x454454
"""Key of PostgreSQL's advisory lock for write transactions."""
BUSY_TIMEOUT_SECONDS = 10
"""So long a transaction waits for those before it, and a request for a connection."""
READING = {"pool_size": 10, "max_overflow": 50}
"""Connections of one process for reading: so many stay open, and so many more are opened while they are needed."""
WRITING = {"pool_size": 1, "max_overflow": 0}
STUCK_SECONDS = 30
"""A writer that was stopped (SIGSTOP, swap) in the middle of a transaction is put out by the server after this."""
CONNECT_SECONDS = 5
_LOOK_AGAIN_SECONDS = 0.002
"""Who waits for SQLite's lock looks so often. SQLite itself soon looks every 100 ms only, and would hardly ever find
it free beside a process whose threads hand it on at once."""
RETRY_PAUSES_SECONDS = (0.05, 0.2, 0.5)
TROUBLE_SECONDS = 15
"""So long is a write that failed told to those who ask how the database is, unless a later one succeeds."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def database_url(url: str) -> URL:
    """The URL with the driver that we ship: ``postgresql://`` means psycopg 3."""
    parsed = make_url(url)
    if parsed.drivername in {"postgresql", "postgres"}:
        return parsed.set(drivername="postgresql+psycopg")
    return parsed


class Database:
    """Opens nothing until it is first used; may be shared by threads."""

    def __init__(self, url: str) -> None:
        self.reading = _engine(database_url(url), READING)
        self.writing = _engine(database_url(url), WRITING)
        if self.writing.dialect.name == "sqlite":
            event.listen(self.reading, "begin", _begin_reading)
            event.listen(self.writing, "begin", _begin_writing)
        self.turns = Turns()
        self._trouble: tuple[float, Unavailable] | None = None

    @property
    def trouble(self) -> Unavailable | None:
        """Why the newest write failed, a moment ago: reading may go on where a disk is full or a lock is held."""
        since, error = self._trouble or (0.0, None)
        return error if time.monotonic() < since + TROUBLE_SECONDS else None

    @contextmanager
    def transaction(self, *, durable: bool = True, urgent: bool = False) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back by an exception. No file is touched
        in it.

        ``durable``: it is on disk when the block has ended. False, for what may be lost with the machine's power (and
        with it nothing that came after it is kept): the disk is not waited for.
        ``urgent``: before those of this process that are not, for what nodes say: one that is not heard is lost.
        Raises DatabaseUnavailable where it was surely not committed, OutcomeUnknown where nobody knows.
        """
        try:
            with (
                _told(),
                self.turns.turn(BUSY_TIMEOUT_SECONDS, urgent=urgent) as patience,
                self._write(patience, durable) as tx,
            ):
                yield tx
        except Unavailable as error:
            self._trouble = time.monotonic(), error
            raise
        self._trouble = None

    @contextmanager
    def _write(self, patience: float, durable: bool) -> Iterator[Connection]:
        """``patience``: seconds that are left to wait for the lock."""
        with self.writing.connect().execution_options(edt_patience=patience, edt_durable=durable) as connection:
            begun = connection.begin()
            try:
                if connection.dialect.name == "postgresql":
                    told = {"patience": f"{max(1, round(patience * 1000))}ms", "key": WRITER_LOCK}
                    connection.execute(_TAKE_THE_LOCK if durable else _TAKE_THE_LOCK_LIGHTLY, told)
                yield connection
            except BaseException:
                begun.rollback()
                raise
            try:
                begun.commit()
            except DBAPIError as error:
                connection.invalidate()  # SQLite leaves a transaction open whose COMMIT it has refused
                unavailable = after_commit(error)
                if unavailable is None:
                    raise
                raise unavailable from error

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One consistent picture, for reading; it waits for no writer and none waits for it.

        Raises DatabaseUnavailable.
        """
        with _told(), self.reading.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close every connection that is not in use; what is asked next opens others."""
        self.reading.dispose()
        self.writing.dispose()


_TAKE_THE_LOCK = text("SELECT set_config('lock_timeout', :patience, true), pg_advisory_xact_lock(:key)")
_TAKE_THE_LOCK_LIGHTLY = text(
    "SELECT set_config('lock_timeout', :patience, true), set_config('synchronous_commit', 'off', true), "
    "pg_advisory_xact_lock(:key)"
)


def retried(*, if_done: bool) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """A use case of one write transaction that is begun again where the database went away before its COMMIT.

    ``if_done``: also after a COMMIT of which nobody knows. Legal only where doing it twice is as good as once: the
    use case sets what is wanted (stop, delete, drain), or finds that it has been done (numbered reports, a job
    under its Idempotency-Key). A lost writer still holds the writer's lock until the server has ended it, so the
    second try sees what became of the first.
    """

    def decorate(use_case: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(use_case)
        def persistent(*given: _P.args, **named: _P.kwargs) -> _T:
            doubtful = False
            for pause in (*RETRY_PAUSES_SECONDS, None):
                try:
                    return use_case(*given, **named)
                except OutcomeUnknown:
                    if not if_done or pause is None:
                        raise
                    doubtful = True
                except DatabaseUnavailable as error:
                    if pause is None or not error.passing:
                        if doubtful:  # this try wrote nothing, but an earlier one may have
                            raise OutcomeUnknown from error
                        raise
                time.sleep(pause)
            raise AssertionError("the last try returns or raises")

        return persistent

    return decorate


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        unavailable = outage(error)
        if unavailable is None:
            raise
        raise unavailable from error


def _engine(url: URL, connections: Mapping[str, int]) -> Engine:
    if url.get_backend_name() == "sqlite":
        patience = {"timeout": BUSY_TIMEOUT_SECONDS}
        engine = create_engine(url, connect_args=patience, pool_timeout=BUSY_TIMEOUT_SECONDS, **connections)
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    engine = create_engine(
        url, pool_pre_ping=True, pool_timeout=BUSY_TIMEOUT_SECONDS, connect_args=keepalive(url), **connections
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def keepalive(url: URL) -> dict[str, int]:
    """How a PostgreSQL server is noticed that is there no more and never said goodbye; what the URL says wins."""
    ours = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    return {name: value for name, value in ours.items() if name not in url.query}


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    """Durable commits, whatever the server's own setting is; and nobody waits for ever, neither for the writer's lock
    nor for a writer that was stopped while it held it."""
    connection.autocommit = True  # settings of a session outlive its transactions, once they are committed
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_SECONDS}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STUCK_SECONDS}s'")
    connection.autocommit = False


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Durable commits, readers beside the writer, foreign keys, nothing left of what is deleted; and BEGIN is ours to
    send."""
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}")
    _keep_a_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _keep_a_log(connection: Any) -> None:
    """The first process that opens a new database has it write its changes ahead. For that SQLite itself waits for
    nobody: where another process migrates just then, or opens it too, it says at once that the database is locked."""
    until = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() > until:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: Connection) -> None:
    """Wait for the lock and take it; how durable a commit is can only be said before."""
    options = connection.get_execution_options()
    until = time.monotonic() + options.get("edt_patience", BUSY_TIMEOUT_SECONDS)
    connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if options.get('edt_durable', True) else 'NORMAL'}")
    connection.exec_driver_sql("PRAGMA busy_timeout=0")
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            break
        except OperationalError as error:
            if not (isinstance(error.orig, sqlite3.Error) and is_locked(error.orig)) or time.monotonic() > until:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)
    connection.exec_driver_sql(f"PRAGMA busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}")
