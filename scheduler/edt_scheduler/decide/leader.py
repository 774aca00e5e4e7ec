"""The leader lock: only one scheduler decides for a home or database. Uses a lock file and a database session.

The lock saves work; it does not guard data. Two schedulers at once would do no harm (``reconcile``), they would only do
the same work twice. The lock is released when its process ends, in whatever way it ends.

On SQLite the lock is the file ``run/scheduler.lock`` of the home. On PostgreSQL the lock belongs to a session of the
database, and the scheduler holds only a shared lock on the file. A machine that vanished may leave a lock on a network
file system, and the shared lock lets the next scheduler decide all the same. The shared lock keeps out an
administrator's command that needs the home for itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from edt_migrations import database_url
from edt_scheduler.errors import AlreadyLeading
from edt_scheduler.platform.pairing import database_place
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import keepalive, translated_errors

log = logging.getLogger("edt.scheduler")

LEADER_LOCK = 0x454456
"""Key of PostgreSQL's advisory lock of the leader's session."""


@contextmanager
def lead(settings: Settings, *, home_alone: bool = False) -> Iterator[Callable[[], bool]]:
    """Hold the leader lock for the length of the block.

    Args:
        settings: the platform's settings.
        home_alone: also keep out a scheduler that uses this home with another database.

    Yields:
        A function that returns whether this process still holds the lock. A database session can be lost.

    Raises:
        AlreadyLeading: if another scheduler, or an administrator's command, holds the lock.
        DatabaseUnavailable: if the lock lies in a database that does not answer.
        OSError: if the home cannot be locked. On PostgreSQL this is only logged, unless ``home_alone``.
    """
    if make_url(settings.database).get_backend_name() == "sqlite":
        with _lock_file(settings, fcntl.LOCK_EX):
            yield lambda: True
    elif home_alone:
        with _lock_file(settings, fcntl.LOCK_EX), _lock_session(settings) as leads:
            yield leads
    else:
        with _lock_session(settings) as leads, ExitStack() as held:
            try:
                held.enter_context(_lock_file(settings, fcntl.LOCK_SH))
            except OSError as error:  # a full disk, or a file system without locks: the session's lock is enough
                log.warning("%s is not locked: %s", settings.home, error)
            yield leads


@contextmanager
def _lock_file(settings: Settings, how: int) -> Iterator[None]:
    path = settings.home / "run" / "scheduler.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyLeading(str(settings.home)) from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _lock_session(settings: Settings) -> Iterator[Callable[[], bool]]:
    url = database_url(settings.database)
    patience = keepalive(url)
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=patience)
    with translated_errors():
        session = engine.connect()
    with session:
        if not session.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": LEADER_LOCK}).scalar():
            raise AlreadyLeading(database_place(settings))

        def alive() -> bool:
            try:
                return session.execute(text("SELECT 1")).scalar() == 1
            except DBAPIError:
                return False  # this is final: a new session would not have the lock

        try:
            yield alive
        finally:
            # The server ends a closed session a moment later, and would still refuse the next holder until then.
            if not session.invalidated:  # a lost session has lost its lock, too
                with suppress(DBAPIError):
                    session.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LEADER_LOCK})
