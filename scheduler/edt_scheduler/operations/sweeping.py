"""Folders that no row wants any more. Room: scheduler, operations. Called by the scheduler's process alone."""

from __future__ import annotations

import shutil
import time

from edt_scheduler.house import House
from edt_scheduler.jobs import exec_id, job_number
from edt_scheduler.store import jobs

STAGED_SECONDS = 24 * 3600
"""No upload takes this long: what lies in ``staged`` for longer was left by an API that died."""


def sweep_deleted(house: House) -> None:
    """Remove the folders of deleted jobs that are over."""
    with house.database.snapshot() as tx:
        deleted = jobs.deleted(tx)
    for number in deleted:
        shutil.rmtree(house.settings.job_directory(exec_id(number)), ignore_errors=True)


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
    for upload in house.settings.staged.iterdir():
        if upload.stat().st_mtime < time.time() - STAGED_SECONDS:
            shutil.rmtree(upload, ignore_errors=True)
