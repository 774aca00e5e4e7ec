"""Transactions on one database, with the same rules on SQLite and PostgreSQL.

Write transactions run one at a time on both. SQLite uses BEGIN IMMEDIATE. PostgreSQL uses an advisory lock that each
write transaction takes first. So every use case reads and writes under the same lock: nothing that it has read can
change before it commits, and no two use cases can deadlock. What was tested on one database holds on the other, too. A
write is a few rows and one fsync. While the lock is held, the process waits for nothing but the database. A write
transaction touches no file, because the home may be on another machine (decision 0022, checked by a test).

The threads of a process that want to write wait in one queue (``WriteQueue``). Only the first of them waits at the
database, with the only connection for writing. Readers use other connections, so they wait for no writer.

A database may be unreachable for some time. Its errors leave this package as DatabaseUnavailable (nothing was written)
or as OutcomeUnknown (the connection was lost during COMMIT). Only ``retried`` tries again.
"""

from __future__ import annotations

import functools
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from edt_migrations import database_url
from edt_scheduler.errors import DatabaseUnavailable, OutcomeUnknown, Unavailable
from edt_scheduler.store.outages import after_commit, is_locked, outage

WRITER_LOCK = 0x454454
"""Key of PostgreSQL's advisory lock for write transactions."""
BUSY_TIMEOUT_SECONDS = 10
"""How long a transaction waits for the transactions before it, and how long a request waits for a connection."""
READING = {"pool_size": 10, "max_overflow": 50}
"""Connections of one process for reading: how many stay open, and how many more are opened while they are needed."""
WRITING = {"pool_size": 1, "max_overflow": 0}
STUCK_SECONDS = 30
"""How long the server waits for a writer that stops in the middle of a transaction (SIGSTOP, swap)
before it ends it.
"""
CONNECT_SECONDS = 5
_LOOK_AGAIN_SECONDS = 0.002
"""How often a thread that waits for SQLite's lock tries to take it.

SQLite itself soon tries only every 100 ms. Beside a process whose threads pass the lock on at once it would hardly ever
find the lock free.
"""
RETRY_PAUSES_SECONDS = (0.05, 0.2, 0.5)
TROUBLE_SECONDS = 15
"""How long a failed write is reported to callers that ask for the database's health, unless a later write succeeds."""
MOST_URGENT_IN_A_ROW = 4

PAUSE_SECONDS = 0.01
"""Pause between two batches, so that a process that waits for the writer's lock finds it free."""

TASK_SECONDS = 20.0
"""How long a periodic task may begin further batches. Its next run does the rest."""
BATCH_ROWS = 5000
"""The most rows that are written in one transaction, for which other writers wait."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WriteQueue:
    """A queue that lets one thread at a time write.

    The first thread to come is the first to be served. Urgent threads go before all others, but only a few times in a
    row.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._urgent: deque[threading.Event] = deque()
        self._taken = False
        self._urgent_in_a_row = 0
        """Number of the last turns in a row that were urgent. After MOST_URGENT_IN_A_ROW, a thread that is not urgent
        is next.
        """

    @property
    def waiting(self) -> int:
        """Number of waiting threads."""
        return len(self._waiting) + len(self._urgent)

    @contextmanager
    def turn(self, seconds: float, *, urgent: bool = False) -> Iterator[float]:
        """Wait for this thread's turn, and keep the turn until the block ends.

        Args:
            seconds: How long to wait at most.
            urgent: Whether to go before threads that are not urgent.

        Yields:
            How many of the ``seconds`` are left.

        Raises:
            DatabaseUnavailable: The turn did not come within ``seconds``.
        """
        until = time.monotonic() + seconds
        mine, line = threading.Event(), self._urgent if urgent else self._waiting
        with self._guard:
            line.append(mine)
            if not self._taken:
                self._hand_on()
        try:
            if not mine.wait(seconds):
                raise DatabaseUnavailable("is asked too much at once", passing=False)
            yield max(0.0, until - time.monotonic())
        finally:
            with self._guard:
                if mine.is_set():
                    self._hand_on()
                else:
                    line.remove(mine)

    def _hand_on(self) -> None:
        """Give the turn to the next waiting thread, if there is one. The caller holds the guard."""
        patient = self._urgent_in_a_row >= MOST_URGENT_IN_A_ROW
        lines = (self._waiting, self._urgent) if patient else (self._urgent, self._waiting)
        line = next((each for each in lines if each), None)
        self._taken = line is not None
        if line is not None:
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if line is self._urgent else 0
            line.popleft().set()


class Database:
    """The connections of one process to the database. Nothing is opened before the first use. Threads may share it."""

    def __init__(self, url: str) -> None:
        self.reading = _engine(database_url(url), READING)
        self.writing = _engine(database_url(url), WRITING)
        if self.writing.dialect.name == "sqlite":
            event.listen(self.reading, "begin", _begin_reading)
            event.listen(self.writing, "begin", _begin_writing)
        self.write_queue = WriteQueue()
        self._trouble: tuple[float, Unavailable] | None = None

    @property
    def trouble(self) -> Unavailable | None:
        """Why the newest write failed, if that was less than TROUBLE_SECONDS ago; None: it did not fail.

        Reading may still work when the disk is full or another process holds the lock.
        """
        since, error = self._trouble or (0.0, None)
        return error if time.monotonic() < since + TROUBLE_SECONDS else None

    @contextmanager
    def transaction(self, *, durable: bool = True, urgent: bool = False) -> Iterator[Connection]:
        """One write transaction. It commits at the end of the block, and an exception rolls it back. The block touches
        no file.

        Args:
            durable: Whether the change is on disk when the block has ended. False does not wait for the disk: a loss of
                power may undo the change, and then also everything that was committed after it.
            urgent: Whether to go before this process's transactions that are not urgent. Use it for what nodes report:
                a node that is not heard from is lost.

        Raises:
            DatabaseUnavailable: The transaction was surely not committed.
            OutcomeUnknown: The transaction may be committed or not.
        """
        try:
            with (
                translated_errors(),
                self.write_queue.turn(BUSY_TIMEOUT_SECONDS, urgent=urgent) as patience,
                self._write(patience, durable) as tx,
            ):
                yield tx
        except Unavailable as error:
            self._trouble = time.monotonic(), error
            raise
        self._trouble = None

    @contextmanager
    def _write(self, patience: float, durable: bool) -> Iterator[Connection]:
        """``patience``: how many seconds are left to wait for the lock."""
        with self.writing.connect().execution_options(edt_patience=patience, edt_durable=durable) as connection:
            begun = connection.begin()
            try:
                if connection.dialect.name == "postgresql":
                    values = {"patience": f"{max(1, round(patience * 1000))}ms", "key": WRITER_LOCK}
                    connection.execute(_TAKE_THE_LOCK if durable else _TAKE_THE_LOCK_LIGHTLY, values)
                yield connection
            except BaseException:
                begun.rollback()
                raise
            try:
                begun.commit()
            except DBAPIError as error:
                connection.invalidate()  # after a refused COMMIT, SQLite leaves the transaction open
                unavailable = after_commit(error)
                if unavailable is None:
                    raise
                raise unavailable from error

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One consistent read. It waits for no writer, and no writer waits for it.

        Raises:
            DatabaseUnavailable: The database cannot be read now.
        """
        with translated_errors(), self.reading.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close every connection that is not in use. A later use opens new connections."""
        self.reading.dispose()
        self.writing.dispose()


_TAKE_THE_LOCK = text("SELECT set_config('lock_timeout', :patience, true), pg_advisory_xact_lock(:key)")
_TAKE_THE_LOCK_LIGHTLY = text(
    "SELECT set_config('lock_timeout', :patience, true), set_config('synchronous_commit', 'off', true), "
    "pg_advisory_xact_lock(:key)"
)


def retried(*, if_done: bool) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make a use case of one write transaction start again if the database was lost before its COMMIT.

    A writer whose connection was lost still holds the writer's lock until the server has ended it. So the second try
    sees the outcome of the first.

    Args:
        if_done: Whether to start again also after a COMMIT with unknown outcome. Legal only if doing the use case twice
            has the same effect as doing it once: either it sets a wanted state (stop, delete, drain), or it finds that
            it was done before (numbered reports, a job under its Idempotency-Key).

    Raises:
        DatabaseUnavailable: All tries failed, and nothing was written.
        OutcomeUnknown: The change may be written or not.
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
                        if doubtful:  # this try wrote nothing, but an earlier try may have written
                            raise OutcomeUnknown from error
                        raise
                time.sleep(pause)
            raise AssertionError("the last try returns or raises")

        return persistent

    return decorate


def in_batches(
    batch: Callable[[], int], seconds: float = TASK_SECONDS, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Call ``batch`` until it finds nothing to do or ``seconds`` have passed.

    ``batch`` is one transaction, or works on a few files, and returns how many things it did.

    Returns:
        How many things all batches did.
    """
    ends, done = monotonic() + seconds, 0
    while True:
        found = batch()
        done += found
        if not found or monotonic() >= ends:
            return done
        time.sleep(PAUSE_SECONDS)


def in_transactions(
    database: Database,
    wanted: Callable[[Connection], object],
    work: Callable[[Connection], int],
    seconds: float = TASK_SECONDS,
) -> int:
    """``in_batches`` with one transaction for each batch.

    Before each batch a snapshot is asked whether anything is ``wanted``. So a task that has nothing to write takes no
    writer's lock.
    """

    def batch() -> int:
        with database.snapshot() as tx:
            if not wanted(tx):
                return 0
        with database.transaction() as tx:
            return work(tx)

    return in_batches(batch, seconds)


def in_time(
    things: Iterable[_T], seconds: float = TASK_SECONDS, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[_T]:
    """Yield the ``things`` one after another until ``seconds`` have passed. The first one is always yielded."""
    ends = monotonic() + seconds
    for thing in things:
        yield thing
        if monotonic() >= ends:
            return


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the error of a database that cannot serve now into DatabaseUnavailable."""
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        unavailable = outage(error)
        if unavailable is None:
            raise
        raise unavailable from error


def _engine(url: URL, connections: Mapping[str, int]) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    patience = {"timeout": BUSY_TIMEOUT_SECONDS} if sqlite else keepalive(url)
    engine = create_engine(
        url, pool_pre_ping=not sqlite, pool_timeout=BUSY_TIMEOUT_SECONDS, connect_args=patience, **connections
    )
    event.listen(engine, "connect", _prepare_sqlite if sqlite else _prepare_postgresql)
    return engine


def keepalive(url: URL) -> dict[str, int]:
    """Connection options with which a PostgreSQL server that disappeared silently is noticed. Options of
    the URL win.
    """
    ours = {
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    return {name: value for name, value in ours.items() if name not in url.query}


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    """Make commits durable, whatever the server's default is, and limit all waits.

    No transaction waits for ever for the writer's lock, or for a writer that stopped while it held the lock.
    """
    connection.autocommit = True  # a session keeps its settings only once they are committed
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_SECONDS}s'")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STUCK_SECONDS}s'")
    connection.autocommit = False


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """Make commits durable, let readers work beside the writer, check foreign keys, and overwrite deleted rows.

    BEGIN is sent by this module and not by the driver.
    """
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}")
    _keep_a_log(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _keep_a_log(connection: Any) -> None:
    """Turn on write-ahead logging. The first process that opens a new database does this.

    SQLite does not wait for a lock here. While another process opens or migrates the database, SQLite answers at once
    that the database is locked. So this function tries again.
    """
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
    """Wait for the lock and take it. The durability of the commit can be set only before the transaction begins."""
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
