"""One database, two dialects, the same rules.

Write transactions run one at a time on both: SQLite by BEGIN IMMEDIATE, PostgreSQL by an advisory lock taken
first. So every use case reads what it decides on under the lock under which it writes; nothing it has read can
change before it commits, no two can deadlock, and what was tested on one database holds on the other. Writes
are a few rows and one fsync each; the lock is never held while anything but the database is waited for: no file is
touched in a write transaction, since the home may lie on another machine (decision 0022, and a test of it).

The threads of a process that want to write wait in one line (``WriteQueue``), and only the first of them waits at the
database, with the one connection there is for writing. Reading has connections of its own, so it waits for no writer.

A database goes away and comes back. What it then raises leaves this package as DatabaseUnavailable: nothing was
written; or as OutcomeUnknown: the connection was lost during COMMIT. ``retried`` is the one place that tries again.
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
MOST_URGENT_IN_A_ROW = 4

PAUSE_SECONDS = 0.01
"""From one batch to the next, so that who waits for the writer's lock finds it free."""

TASK_SECONDS = 20.0
"""So long may a periodic task begin further batches; what is left waits for its next run."""
BATCH_ROWS = 5000
"""So many rows at most are written in one transaction, which others wait for."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WriteQueue:
    """One thread at a time, first come, first served; who is urgent goes before all others, some times in a row."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._urgent: deque[threading.Event] = deque()
        self._taken = False
        self._urgent_in_a_row = 0
        """Turns, up to the one that is or was last: after a few the next one is another's."""

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._waiting) + len(self._urgent)

    @contextmanager
    def turn(self, seconds: float, *, urgent: bool = False) -> Iterator[float]:
        """Wait for one's turn, at most so long, and have it for the length of the block; yields the seconds left.

        Raises DatabaseUnavailable where they are over.
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
        """Give the turn to the next that waits, if there is one. Called under the guard."""
        patient = self._urgent_in_a_row >= MOST_URGENT_IN_A_ROW
        lines = (self._waiting, self._urgent) if patient else (self._urgent, self._waiting)
        line = next((each for each in lines if each), None)
        self._taken = line is not None
        if line is not None:
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if line is self._urgent else 0
            line.popleft().set()


class Database:
    """Opens nothing until it is first used; may be shared by threads."""

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
        """``patience``: seconds that are left to wait for the lock."""
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
                connection.invalidate()  # SQLite leaves a transaction open whose COMMIT it has refused
                unavailable = after_commit(error)
                if unavailable is None:
                    raise
                raise unavailable from error

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """One consistent read; it waits for no writer and none waits for it.

        Raises DatabaseUnavailable.
        """
        with translated_errors(), self.reading.connect() as connection:
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


def in_batches(
    batch: Callable[[], int], seconds: float = TASK_SECONDS, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Call ``batch`` until it finds nothing to do or the ``seconds`` are over. Answers how many things it did in all.

    ``batch`` is one transaction, or a few files, and answers how many things it did.
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
    """``in_batches``, each batch a transaction. First a snapshot is asked whether anything is ``wanted``: who writes
    nothing takes no writer's lock."""

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
    """The ``things``, one after another, until the ``seconds`` are over; the first one always."""
    ends = monotonic() + seconds
    for thing in things:
        yield thing
        if monotonic() >= ends:
            return


@contextmanager
def translated_errors() -> Iterator[None]:
    """What a database that cannot serve just now raises in the block becomes DatabaseUnavailable."""
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
