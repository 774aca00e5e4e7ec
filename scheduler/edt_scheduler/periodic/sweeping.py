"""Moves folders without a row, and deletes rows that no process reads any more. Periodic tasks (``tasks``).

Only a row can say that a job's folder may be deleted (``retention``). A folder without a row is moved to ``lost+found``
and never deleted, because the database may be the wrong one. The same is done with a folder whose job was deleted
before home and database were paired. The two may have been paired by mistake, and then no user has asked to delete this
folder.
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
from edt_scheduler.store import api_tokens, changes, home, idempotency, jobs, reservations, users
from edt_scheduler.store.database import BATCH_ROWS, in_time, in_transactions
from edt_scheduler.store.queries import forget_until

log = logging.getLogger("edt.scheduler")

STAGED_SECONDS = 24 * 3600
"""No upload takes this many seconds. What lies in ``staged`` for longer was left by an API process that died."""


def sweep_keys(platform: Platform) -> int:
    """Delete Idempotency-Keys that are a day old; return how many."""
    return forget_until(platform.database, idempotency.CREATED_AT, platform.clock() - KEPT_SECONDS)


API_TOKENS_KEPT_SECONDS = 30 * 24 * 3600
"""How long an expired API token stays listed, so that its user sees why a program is refused."""


def sweep_tokens(platform: Platform) -> int:
    """Delete tokens that have expired, and API tokens that expired long ago; return how many."""
    now = platform.clock()
    done = forget_until(platform.database, users.EXPIRES_AT, now)
    return done + forget_until(platform.database, api_tokens.EXPIRES_AT, now - API_TOKENS_KEPT_SECONDS)


def sweep_changes(platform: Platform) -> int:
    """Delete changes that are older than ``store.changes.KEPT_SECONDS``; return how many."""
    return in_transactions(platform.database, changes.old, lambda tx: changes.prune(tx, BATCH_ROWS))


_DELETED_BEFORE = "its job was deleted before home and database were told of each other, and it may be another job's"


class Leftovers:
    """Clears away what a crash left behind, and what a restored or replaced database does not know.

    Job folders without a row go to lost+found. Uploads that no submit will use any more are deleted. A folder that a
    submit has made under a reserved number stays until the reservation is too old.

    ``sweep`` is called again and again. The first sweep that finds a folder fences its attempts. The first later sweep
    at which no supervisor of the folder lives moves it.

    Args:
        platform: database, notifications and settings.
        monotonic: a monotonic clock in seconds.
    """

    def __init__(self, platform: Platform, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._platform = platform
        self._quiet = lost_found.Quiet(platform.settings, monotonic)
        self._told: dict[str, str] = {}
        self._last = 0
        """The number of the folder that was looked at last; the next sweep goes on behind this number."""

    def sweep(self) -> int:
        """Clear away what can be cleared away now.

        Returns:
            How many folders and uploads were cleared away.

        Raises:
            Unavailable: if the database cannot be used now.
            HomeUnusable: if the home's id cannot be read.
            OSError: if the folder of jobs or of uploads cannot be read.
        """
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
            except FileNotFoundError:  # a submit has given the folder up, or another scheduler has moved it
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
        """Which of these folders belong to no job and never will: number to why.

        ``folders`` must have been listed before this call.

        A submit makes its folder after it has reserved a number, and its job's row replaces the reservation. So a
        folder that was seen, and afterwards has neither a row nor a reservation, belongs to no submit. The job numbers
        up to the highest of these folders are then skipped, so no new job gets one of them. This stays true, so the
        folders can be handled without a lock.
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
        """Move the folder if nothing of it lives; return the supervisors that may still live. Raises OSError."""
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
    """Which of these folders have no job, each with why; none if the database is not this home's.

    A database that was replaced meanwhile does not know these folders.
    """
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
    """``Leftovers.sweep`` with one ``Leftovers`` for this process, which remembers what earlier calls have seen."""
    return _leftovers(platform).sweep()


def _remove_old_uploads(staged: Path) -> int:
    """Delete uploads older than STAGED_SECONDS; return how many. No submit of such an upload was confirmed."""
    removed = 0
    for upload in in_time(list(staged.iterdir())):
        with contextlib.suppress(FileNotFoundError):  # a submit has just taken the upload
            if upload.stat().st_mtime < time.time() - STAGED_SECONDS:
                if upload.is_dir():
                    shutil.rmtree(upload, ignore_errors=True)
                else:
                    upload.unlink()
                removed += not upload.exists()
    return removed
