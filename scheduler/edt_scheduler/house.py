"""The open house: database, doorbells and settings in one hand, first argument of every operation.

Room: scheduler. The API opens it in its lifespan, the scheduler's process at start; both close it at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from sqlalchemy.exc import DBAPIError

from edt_migrations import migrate
from edt_scheduler import pairing, sealing
from edt_scheduler.doorbell import Doorbells
from edt_scheduler.errors import HomeUnusable
from edt_scheduler.secret_key import KeyFile
from edt_scheduler.settings import Settings
from edt_scheduler.store.database import Database
from edt_scheduler.store.outages import outage

log = logging.getLogger("edt.scheduler")


@dataclass(frozen=True)
class House:
    """What an operation needs. ``clock`` is the wall clock written into rows; tests hand in their own."""

    database: Database
    doorbells: Doorbells
    settings: Settings
    clock: Callable[[], float] = time.time

    @cached_property
    def secret_key(self) -> KeyFile:
        """The file with the keys under which environments of jobs are sealed."""
        return KeyFile(self.settings)

    def close(self) -> None:
        """Rings what is still to ring, as far as that takes no waiting, and closes every connection."""
        self.doorbells.close()
        self.database.close()


def open_house(settings: Settings | None = None) -> House:
    """``prepare``, open the database, and read the keys, so that nobody has to wait for their file later. Raises as
    ``prepare``."""
    settings = settings or Settings()
    prepare(settings)
    house = opened_house(settings)
    house.secret_key.keys()
    return house


def opened_house(settings: Settings) -> House:
    """For a child of a process that has called ``open_house``. Nothing is connected before its first use."""
    database = Database(settings.database)
    return House(database, Doorbells(database, settings.broker_url), settings)


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
    try:
        migrate(settings.database, partial(pairing.check, settings=settings))
    except DBAPIError as error:
        unavailable = outage(error)
        if unavailable is None:
            raise
        raise unavailable from error
    database = Database(settings.database)
    try:
        pairing.pair(database, settings, time.time())
        keys = KeyFile(settings).keys()
        sealing.seal_all(database, keys)
        sealing.wipe(database, time.time())
        if locked := sealing.locked_jobs(database, keys):
            log.error("%s", locked)
    finally:
        database.close()
