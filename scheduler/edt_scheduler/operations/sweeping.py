"""Folders that no row wants any more, rows that nobody reads any more. Room: scheduler, operations.

Called by the scheduler's process alone.
"""

from __future__ import annotations

import contextlib
import shutil
import time

from edt_runner.crash_points import CrashPoint, crash_point
from edt_scheduler.house import House
from edt_scheduler.jobs import exec_id, job_number
from edt_scheduler.store import changes, jobs, keys, metrics, usage

STAGED_SECONDS = 24 * 3600
"""No upload takes this long: what lies in ``staged`` for longer was left by an API that died."""


def sweep_deleted(house: House) -> None:
    """Remove the folders of deleted jobs that are over, and their courses."""
    with house.database.snapshot() as tx:
        deleted = jobs.deleted(tx)
        trained = metrics.of_deleted(tx)
    for number in deleted:
        shutil.rmtree(house.settings.job_directory(exec_id(number)), ignore_errors=True)
    if trained:
        with house.database.transaction() as tx:
            metrics.forget(tx, trained)


def sweep_keys(house: House) -> None:
    """Forget the Idempotency-Keys that are a day old."""
    with house.database.snapshot() as tx:
        if not keys.expired(tx, house.clock()):
            return
    with house.database.transaction() as tx:
        keys.sweep(tx, house.clock())


def sweep_changes(house: House) -> None:
    """Forget the changes that everybody who looks on has seen."""
    with house.database.snapshot() as tx:
        if not changes.old(tx):
            return
    with house.database.transaction() as tx:
        changes.prune(tx)


def sweep_usage(house: House) -> None:
    """Forget how busy slots were longer ago than is kept."""
    before = house.clock() - house.settings.usage_days * 24 * 3600
    with house.database.snapshot() as tx:
        oldest = usage.oldest(tx)
    if oldest is None or oldest >= before:
        return
    with house.database.transaction() as tx:
        usage.prune(tx, before)


def sweep_leftovers(house: House) -> None:
    """Remove what a crash left behind: job folders without a row, uploads that nobody will submit any more.

    The writer's lock is held meanwhile, since a folder without a row may be of a submit about to commit.
    """
    with house.database.transaction() as tx:
        known = jobs.numbers(tx)
        for folder in house.settings.jobs.iterdir():
            number = job_number(folder.name)
            if number is not None and number not in known:
                shutil.rmtree(folder, ignore_errors=True)
        crash_point(CrashPoint.SCHEDULER_SWEEP)
    for upload in house.settings.staged.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it is being taken just now
            if upload.stat().st_mtime < time.time() - STAGED_SECONDS:
                shutil.rmtree(upload, ignore_errors=True)
