"""Folders that no row wants any more, rows that nobody reads any more.

Of a job's folder only a row can say that it may go (``retention``). One that no row knows is moved to
``lost+found``, never removed: perhaps it is the database that is wrong. So is one whose job was deleted before home
and database were paired: they may have been taken for a pair by mistake, and nobody has asked for this folder's end.

Periodic tasks (``edt_scheduler.periodic.tasks``).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

from sqlalchemy import Connection

from edt_contract.crash_points import CrashPoint, crash_point
from edt_scheduler.home import lost_found
from edt_scheduler.model.idempotency import KEPT_SECONDS
from edt_scheduler.model.jobs import exec_id, job_number
from edt_scheduler.platform import Platform, pairing
from edt_scheduler.store import changes, home, idempotency, jobs, reservations
from edt_scheduler.store.database import BATCH_ROWS, in_time, in_transactions
from edt_scheduler.store.queries import forget_until

log = logging.getLogger("edt.scheduler")

STAGED_SECONDS = 24 * 3600
"""No upload takes this long: what lies in ``staged`` for longer was left by an API that died."""


def sweep_keys(platform: Platform) -> int:
    """Forget the Idempotency-Keys that are a day old. Answers how many."""
    return forget_until(platform.database, idempotency.CREATED_AT, platform.clock() - KEPT_SECONDS)


def sweep_changes(platform: Platform) -> int:
    """Forget the changes that everybody who looks on has seen. Answers how many."""
    return in_transactions(platform.database, changes.old, lambda tx: changes.prune(tx, BATCH_ROWS))


_DELETED_BEFORE = "its job was deleted before home and database were told of each other, and it may be another job's"


class Leftovers:
    """Clears away what a crash left behind, and what a database does not know that was restored or replaced: job
    folders without a row go to lost+found, uploads that nobody will submit any more are removed. What a submit has made
    under a number that is still reserved for it is left alone until the reservation is too old.

    ``sweep`` is called again and again: a folder is shut out at the first look, and moved at the first
    at which no supervisor of it lives.
    """

    def __init__(self, platform: Platform, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._platform = platform
        self._quiet = lost_found.Quiet(platform.settings, monotonic)
        self._told: dict[str, str] = {}
        self._last = 0
        """The number of the folder that was looked at last: the next sweep goes on behind it."""

    def sweep(self) -> int:
        """Answers how many folders and uploads it has cleared away. Raises Unavailable, HomeUnusable and OSError."""
        moved = self._set_aside()
        crash_point(CrashPoint.SCHEDULER_SWEEP)
        return moved + _remove_old_uploads(self._platform.settings.staged)

    def _set_aside(self) -> int:
        settings = self._platform.settings
        folders = lost_found.job_folders(settings.jobs)
        unwanted = self._unwanted(folders)
        moved, waiting = [], {name: why for name, why in self._told.items() if job_number(name) in unwanted}
        for number in in_time(sorted(unwanted, key=lambda number: (number <= self._last, number))):
            self._last = number
            waiting.pop(exec_id(number), None)
            try:
                alive = self._move(folders[number], unwanted[number])
            except FileNotFoundError:  # a submit has given it up, or another scheduler has moved it
                continue
            except OSError as error:
                waiting[exec_id(number)] = f"{error.strerror or error}"
                continue
            if alive:
                waiting[exec_id(number)] = f"processes may live: {', '.join(alive)}"
            else:
                moved.append(exec_id(number))
        if moved:
            log.warning("%s of no known job moved to %s", lost_found.folders_in_words(len(moved)), settings.lost_found)
        if waiting and waiting != self._told:
            log.warning(
                "%s of no known job may not be moved yet: %s",
                lost_found.folders_in_words(len(waiting)),
                "; ".join(f"{name} ({why})" for name, why in list(waiting.items())[:5]),
            )
        self._told = waiting
        return len(moved)

    def _unwanted(self, folders: Collection[int]) -> dict[int, str]:
        """Which of these folders are no job's and never will be, each with why. ``folders`` were seen before.

        A submit makes its folder after its number is reserved, and is written as a job only in exchange for the
        reservation. So a folder that was seen and has neither a row nor a reservation afterwards can be no submit's,
        and after the highest of their numbers was skipped none is given to another. That stays so: what is done with
        the folders then needs no lock.
        """
        database, now = self._platform.database, self._platform.clock()
        home_id = pairing.read_id(self._platform.settings)
        with database.snapshot() as tx:
            expired = reservations.expired(tx, now)
            doubtful = _without_job(tx, folders, home_id).keys() | (expired & set(folders))
        if not doubtful and not expired:
            return {}
        with database.transaction() as tx:
            reservations.drop_expired(tx, now)
            found = _without_job(tx, doubtful, home_id)
            if found:
                jobs.skip_numbers(tx, max(found))
        return found

    def _move(self, folder: Path, why: str) -> list[str]:
        """Move it, if nothing of it lives; who may live. Raises OSError."""
        if not folder.is_dir():
            raise FileNotFoundError(folder)
        lost_found.shut_out(folder)
        crash_point(CrashPoint.SCHEDULER_FENCED)
        alive = self._quiet.alive(folder)
        if not alive:
            begun = lost_found.newest_attempt(folder)
            what = f"its newest attempt is {begun}" if begun else "nothing has run in it, only its upload is there"
            lost_found.move(self._platform.settings, folder, f"{why} ({what})", self._platform.clock())
        return alive


def _without_job(tx: Connection, folders: Collection[int], home_id: str | None) -> dict[int, str]:
    """None, where the database is not this home's: it was replaced meanwhile, and knows nothing of these folders."""
    if home.identity(tx) != home_id:
        return {}
    known = jobs.known(tx, folders)
    unknown = set(folders) - known - reservations.held(tx)
    deleted_before = known & jobs.deleted_before(tx, home.since(tx))
    return dict.fromkeys(unknown, "the database has no row of it") | dict.fromkeys(deleted_before, _DELETED_BEFORE)


@functools.lru_cache(maxsize=1)
def _leftovers(platform: Platform) -> Leftovers:
    return Leftovers(platform)


def sweep_leftovers(platform: Platform) -> int:
    """``Leftovers.sweep``, which remembers from one call of this process to the next what it has seen."""
    return _leftovers(platform).sweep()


def _remove_old_uploads(staged: Path) -> int:
    """What lies there for so long was of a submit that nobody was told had been taken. Answers how many went."""
    removed = 0
    for upload in in_time(list(staged.iterdir())):
        with contextlib.suppress(FileNotFoundError):  # it is being taken just now
            if upload.stat().st_mtime < time.time() - STAGED_SECONDS:
                if upload.is_dir():
                    shutil.rmtree(upload, ignore_errors=True)
                else:
                    upload.unlink()
                removed += not upload.exists()
    return removed
