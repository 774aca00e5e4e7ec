"""Who decides: one scheduler a home or database. Touches a lock file and a database session.

An optimisation, not a guard: two schedulers would do no harm (``reconcile``), only each other's work. The lock goes
with the process that holds it, however that ends.

On SQLite the lock is the file ``run/scheduler.lock`` of the home. On PostgreSQL it is a session of the database, and
the file's lock is a shared one: a machine that vanished may leave it on a network file system, and must not keep the
next scheduler from deciding. It keeps out an administrator's command that wants the home for itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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
    """Be the scheduler for the length of the block. What it gets answers whether it still is: a database session can be
    lost. Raises AlreadyLeading at once if another one is.

    ``home_alone``: no scheduler may decide for this home either, be it for another database.
    Raises DatabaseUnavailable where the lock lies in a database that does not answer, OSError where it lies in a home
    that cannot be locked.
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
            except OSError as error:  # a full disk, a file system without locks: the session decides
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
                return False  # and for good: this session is not opened anew, it would not have the lock

        yield alive
