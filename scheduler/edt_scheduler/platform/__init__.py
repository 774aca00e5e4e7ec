"""The open platform: the database, the notifier and the settings in one object.

Every operation takes this object as its first argument. The API opens the platform in its lifespan, and the scheduler's
process opens it at its start. Both close it at their end.
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
    """What an operation needs.

    ``clock`` gives the wall-clock time in seconds since the epoch that operations write into rows. Tests pass their
    own.
    """

    database: Database
    notifier: Notifier
    settings: Settings
    clock: Callable[[], float] = time.time

    @cached_property
    def secret_key(self) -> KeyFile:
        """The file with the keys under which environments of jobs are sealed."""
        return KeyFile(self.settings)

    def close(self) -> None:
        """Send the notifications that can be sent without waiting, and close every connection."""
        self.notifier.close()
        self.database.close()


def open_platform(settings: Settings) -> Platform:
    """Call ``prepare``, open the database, and read the keys now, so that no later request waits for their file.

    Raises:
        HomeUnusable, DatabaseUnavailable, DatabaseTooNew: As ``prepare``.
    """
    prepare(settings)
    platform = opened_platform(settings)
    platform.secret_key.keys()
    return platform


CANNOT_OPEN = (ValidationError, HomeUnusable, DatabaseTooNew, Unavailable, ArgumentError, DBAPIError)
"""What is raised when the settings, the home or the database cannot be used."""


def why_not_open(error: Exception) -> str:
    """Explain an error of a type in CANNOT_OPEN in one sentence for people."""
    if isinstance(error, ValidationError):
        return complaint(error)
    if isinstance(error, ArgumentError | DBAPIError):
        return f"the database cannot be opened: {str(error).splitlines()[0]}"
    return str(error)


def opened_platform(settings: Settings) -> Platform:
    """Open the platform in a child of a process that has called ``open_platform``.

    The child connects to nothing before it first uses a connection.
    """
    database = Database(settings.database)
    return Platform(database, Notifier(database, settings.broker_url), settings)


def prepare(settings: Settings) -> None:
    """Make the folders, migrate the database to the newest schema, and check that the home and the database belong
    together.

    Environments that an earlier release stored in plain text are sealed. If no key opens the environments of some jobs,
    the log names these jobs, and they wait. Several processes may call this at once: one of them migrates.

    Raises:
        HomeUnusable: The home cannot be written.
        SecretKeyUnusable: The key file cannot be read.
        HomeForeign: The home and the database do not belong together. The database is left as it was.
        DatabaseUnavailable: The database does not answer.
        edt_migrations.DatabaseTooNew: A newer version has migrated the database.
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
