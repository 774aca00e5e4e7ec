"""The open platform: database, notifications and settings in one hand, first argument of every operation.

The API opens it in its lifespan, the scheduler's process at start; both close it at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial

from pydantic import ValidationError
from sqlalchemy.exc import ArgumentError, DBAPIError

from edt_migrations import DatabaseTooNew, migrate
from edt_scheduler.errors import HomeUnusable, Unavailable
from edt_scheduler.home.secret_key import KeyFile
from edt_scheduler.notify.notifier import Notifier
from edt_scheduler.platform import pairing, sealing
from edt_scheduler.settings import Settings, complaint
from edt_scheduler.store.database import Database, translated_errors

log = logging.getLogger("edt.scheduler")


@dataclass(frozen=True)
class Platform:
    """What an operation needs. ``clock`` is the wall clock written into rows; tests hand in their own."""

    database: Database
    notifier: Notifier
    settings: Settings
    clock: Callable[[], float] = time.time

    @cached_property
    def secret_key(self) -> KeyFile:
        """The file with the keys under which environments of jobs are sealed."""
        return KeyFile(self.settings)

    def close(self) -> None:
        """Sends what is still to send, as far as that takes no waiting, and closes every connection."""
        self.notifier.close()
        self.database.close()


def open_platform(settings: Settings) -> Platform:
    """``prepare``, open the database, and read the keys, so that nobody has to wait for their file later. Raises as
    ``prepare``."""
    prepare(settings)
    platform = opened_platform(settings)
    platform.secret_key.keys()
    return platform


CANNOT_OPEN = (ValidationError, HomeUnusable, DatabaseTooNew, Unavailable, ArgumentError, DBAPIError)
"""What settings, home and database raise that cannot be used."""


def why_not_open(error: Exception) -> str:
    """One of CANNOT_OPEN in one sentence for people."""
    if isinstance(error, ValidationError):
        return complaint(error)
    if isinstance(error, ArgumentError | DBAPIError):
        return f"the database cannot be opened: {str(error).splitlines()[0]}"
    return str(error)


def opened_platform(settings: Settings) -> Platform:
    """For a child of a process that has called ``open_platform``. Nothing is connected before its first use."""
    database = Database(settings.database)
    return Platform(database, Notifier(database, settings.broker_url), settings)


def prepare(settings: Settings) -> None:
    """Make the folders, migrate the database to the newest schema, see that home and database belong together.

    Whatever an earlier release left in plain text is sealed. A job whose environment no key opens is told of, and
    waits. Raises HomeUnusable for a home that cannot be written, SecretKeyUnusable for a key that cannot be read,
    HomeForeign where the two do not belong together (the database is then as it was), DatabaseUnavailable for a
    database that does not answer, ``edt_migrations.DatabaseTooNew`` for one that a newer version has migrated. May be
    called by several processes at once: one of them migrates.
    """
    try:
        for folder in (settings.home, settings.jobs, settings.staged, settings.data, settings.home / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        settings.home.chmod(0o700)
    except OSError as error:
        raise HomeUnusable(str(settings.home), error.strerror or str(error)) from None
    with translated_errors():
        migrate(settings.database, partial(pairing.check, settings=settings))
    with closing(Database(settings.database)) as database:
        pairing.pair(database, settings, time.time())
        keys = KeyFile(settings).keys()
        sealing.seal_all(database, keys)
        sealing.wipe(database, time.time())
        if locked := sealing.locked_jobs(database, keys):
            log.error("%s", locked)
