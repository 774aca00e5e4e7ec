"""How long folders, metrics and rows of finished or deleted jobs are kept. Periodic tasks.

    a user deletes a job, or          results get old            a finished job gets old
    ``delete_old_jobs`` does          ``remove_old_results``     ``thin_old_metrics``
           │ deleted_at                      │ results_removed_at        metrics_thinned_at
           └───────────► ``remove_folders`` ◄┘
                               │ folder_gone_at
                          ``purge_deleted``: deletes all rows in one transaction. The points of the job's curves are
                                             deleted before, in several transactions, here or with the folder

A row records that results are removed before the first file goes, and that the folder is gone only after it is gone. So
after a crash at any point some work may be left, but no row says that files exist which are gone. Files are removed
outside of any transaction. Folders without a row belong to ``sweeping``.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Table

from edt_contract import durable
from edt_scheduler.errors import HomeUnusable
from edt_scheduler.home import lost_found
from edt_scheduler.model import progress
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.platform import Platform, pairing
from edt_scheduler.store import home, jobs, usage
from edt_scheduler.store import retention as store
from edt_scheduler.store.database import BATCH_ROWS, in_batches, in_time, in_transactions
from edt_scheduler.store.usage import DAY_SECONDS

JOBS_AT_ONCE = 200
"""The most jobs that one transaction writes."""
FOLDERS_AT_ONCE = 20
"""After so many folders were removed, their rows are written."""


def delete_old_jobs(platform: Platform) -> int:
    """Delete jobs that have been over for EDT_JOB_DAYS, as their users could; return how many."""
    days = platform.settings.job_days
    if days is None:
        return 0

    def old(tx: Connection, most: int) -> list[int]:
        return store.over(tx, platform.clock() - days * DAY_SECONDS, most)

    def delete_some(tx: Connection) -> int:
        numbers = old(tx, JOBS_AT_ONCE)
        jobs.take_off(tx, numbers, platform.clock())
        return len(numbers)

    return in_transactions(platform.database, lambda tx: old(tx, 1), delete_some)


def remove_old_results(platform: Platform) -> int:
    """Mark the folders of jobs that have been over for EDT_RESULT_DAYS for removal; return how many."""
    days = platform.settings.result_days
    if days is None:
        return 0

    def old(tx: Connection, most: int) -> list[int]:
        return store.with_results(tx, platform.clock() - days * DAY_SECONDS, most)

    def remove_some(tx: Connection) -> int:
        numbers, now = old(tx, JOBS_AT_ONCE), platform.clock()
        store.change(tx, numbers, results_removed_at=now, results_days=days)
        message = f"its results, checkpoints and logs are removed after {days:g} days, as the administrator set"
        for number in numbers:
            jobs.record(tx, number, "results-removed", message, {"days": days}, now)
        return len(numbers)

    return in_transactions(platform.database, lambda tx: old(tx, 1), remove_some)


def remove_folders(platform: Platform) -> int:
    """Remove the folders of finished jobs that were deleted or whose results were removed.

    Folders of jobs that were deleted before home and database were paired are left to ``sweeping``. If the home and the
    database do not belong together, nothing is removed.

    Args:
        platform: database, notifications and settings.

    Returns:
        How many folders were removed.

    Raises:
        HomeUnusable: if the home cannot be read, or if a folder cannot be removed. In the second case the other folders
            are removed.
    """
    with platform.database.snapshot() as tx:
        if not store.with_folder_to_go(tx, 0, 1) or not pairing.belong(tx, platform.settings):
            return 0
        since = home.since(tx)
    if not platform.settings.jobs.is_dir():
        raise HomeUnusable(str(platform.settings.home), "its folder jobs is not there")
    place = _place(platform)
    removed, gone, kept = 0, list[Row[Any, Any]](), list[str]()
    for row in in_time(_with_folder_to_go(platform, place.last)):
        place.last = row.id
        folder = platform.settings.job_directory(exec_id(row.id))
        ours = row.deleted_at is None or since is None or row.deleted_at >= since
        was_there = _is_there(folder)
        if was_there and ours:
            shutil.rmtree(folder, ignore_errors=True)
        if not was_there or (ours and not _is_there(folder)):
            removed += was_there
            gone.append(row)
        elif ours:
            kept.append(exec_id(row.id))
        if len(gone) >= FOLDERS_AT_ONCE:
            _record_gone(platform, gone)
    _record_gone(platform, gone)
    if kept:
        raise HomeUnusable(
            str(platform.settings.home), f"{lost_found.folders_in_words(len(kept))} cannot be removed, {kept[0]} say"
        )
    return removed


@dataclass
class _Place:
    """The job number behind which this process's next run goes on.

    So folders that cannot be removed, and take long to try, do not keep the others from being removed.
    """

    last: int = 0


@functools.lru_cache(maxsize=1)
def _place(_platform: Platform) -> _Place:
    return _Place()


def _with_folder_to_go(platform: Platform, begin: int) -> Iterator[Row[Any, Any]]:
    """Yield each job once: first those behind number ``begin``, then the others."""
    for after, until in ((begin, None), (0, begin)):
        last = after
        while until is None or last < until:
            with platform.database.snapshot() as tx:
                found = store.with_folder_to_go(tx, last, JOBS_AT_ONCE)
            if not found:
                break
            last = found[-1].id
            yield from (row for row in found if until is None or row.id <= until)


def _is_there(folder: Path) -> bool:
    """Whether the folder is there. A disk that answers with an error counts as having it."""
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _record_gone(platform: Platform, gone: list[Row[Any, Any]]) -> None:
    """Write down that folders are durably gone, and delete the curves of deleted jobs.

    After a crash before this, the next run looks once more at folders that are not there.
    """
    if gone:
        durable.sync(platform.settings.jobs)
        _forget_points(platform, [row.id for row in gone if row.deleted_at is not None])
        with platform.database.transaction() as tx:
            store.folders_gone(tx, [row.id for row in gone], platform.clock())
        gone.clear()


def _forget_points(platform: Platform, numbers: Collection[int]) -> None:
    """Delete the points of these jobs' curves. ``purge_deleted`` deletes what would take too long here."""

    def forget_some() -> int:
        with platform.database.snapshot() as tx:
            left = store.with_points(tx, numbers)
        if not left:
            return 0
        with platform.database.transaction() as tx:
            return store.forget_first_points(tx, left, BATCH_ROWS)

    in_batches(forget_some)


def thin_old_metrics(platform: Platform) -> int:
    """Thin the curves of jobs that have been over for EDT_METRICS_DAYS to EDT_METRICS_POINTS points.

    Returns:
        How many jobs were looked at.
    """
    days, most = platform.settings.metrics_days, platform.settings.metrics_points
    if days is None:
        return 0

    def thin_some() -> int:
        before = platform.clock() - days * DAY_SECONDS
        with platform.database.snapshot() as tx:
            old = store.with_all_metrics(tx, before, JOBS_AT_ONCE)
            looked_at: list[int] = []
            doomed: list[tuple[Table, int, list[int]]] = []
            for number in old:  # as many jobs at once as have BATCH_ROWS points to delete
                looked_at.append(number)
                for table in store.POINTS:
                    points = store.points_in_short(tx, table, number)
                    kept = {points[index].number for index in progress.indices_to_keep(points, most)}
                    doomed.append((table, number, [point.number for point in points if point.number not in kept]))
                if sum(len(numbers) for _, _, numbers in doomed) >= BATCH_ROWS:
                    break
        if not looked_at:
            return 0
        with platform.database.transaction() as tx:
            for table, number, numbers in doomed:
                store.forget_points(tx, table, number, numbers)
            store.change(tx, looked_at, metrics_thinned_at=platform.clock())
        return len(looked_at)

    return in_batches(thin_some)


def purge_deleted(platform: Platform) -> int:
    """Delete all rows of jobs that were deleted EDT_DELETED_DAYS ago; return how many jobs.

    A job's rows stay while its folder is there, while something of the job is open, or while the time of its slots has
    not been counted yet (``usage``).
    """

    def purge_some() -> int:
        before = platform.clock() - platform.settings.deleted_days * DAY_SECONDS
        with platform.database.snapshot() as tx:
            found = store.to_purge(tx, before, usage.counted_until(tx) or 0, JOBS_AT_ONCE)
        if not found:
            return 0
        _forget_points(platform, [row.id for row in found])
        with platform.database.transaction() as tx:
            counted = usage.counted_until(tx) or 0
            found = store.to_purge(tx, before, counted, JOBS_AT_ONCE)
            waiting = set(store.with_points(tx, [row.id for row in found]))
            numbers, rows = list[int](), 0
            for row in found:
                if row.id in waiting:
                    continue
                rows += row.events
                if numbers and rows > BATCH_ROWS:
                    break
                numbers.append(row.id)
            if numbers:
                store.purge(tx, numbers)
        return len(numbers)

    return in_batches(purge_some)
