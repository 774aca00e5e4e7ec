"""How long what is over is kept: folders, metrics, rows. Room: scheduler, operations. Periodic tasks.

    a user deletes a job, or          results get old            a job that is over gets old
    ``delete_old_jobs`` does          ``remove_old_results``     ``thin_old_metrics``
           │ deleted_at                      │ results_removed_at        metrics_thinned_at
           └───────────► ``remove_folders`` ◄┘
                               │ folder_gone_at
                          ``purge_deleted``: all rows, in one transaction, but for the points of its course, which go
                                             before, some at a time, here or with the folder

A row says that results are gone before the first of them goes, and that the folder has gone only when it has. So a
crash at any place leaves something that is to be done, and never a row that promises what is no more. Files are removed
outside of any transaction. A folder that no row knows is none of this module's: ``sweeping``.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Row

from edt_scheduler import course, lost_found, pairing
from edt_scheduler.errors import HomeUnusable
from edt_scheduler.house import House
from edt_scheduler.jobs import exec_id
from edt_scheduler.operations.batches import BATCH_ROWS, in_batches, in_time
from edt_scheduler.store import home, jobs, rollups
from edt_scheduler.store import retention as store
from edt_scheduler.store.rollups import DAY_SECONDS

JOBS_AT_ONCE = 200
"""So many jobs at most are written in one transaction."""
FOLDERS_AT_ONCE = 20


def delete_old_jobs(house: House) -> int:
    """Delete jobs that have been over for EDT_JOB_DAYS, as their users could. Answers how many."""
    days = house.settings.job_days
    if days is None:
        return 0

    def delete_some() -> int:
        before = house.clock() - days * DAY_SECONDS
        with house.database.snapshot() as tx:
            if not store.over(tx, before, 1):
                return 0
        with house.database.transaction() as tx:
            old = store.over(tx, before, JOBS_AT_ONCE)
            jobs.take_off(tx, old, house.clock())
        return len(old)

    return in_batches(delete_some)


def remove_old_results(house: House) -> int:
    """Have the folders removed of jobs that have been over for EDT_RESULT_DAYS. Answers of how many."""
    days = house.settings.result_days
    if days is None:
        return 0

    def remove_some() -> int:
        before = house.clock() - days * DAY_SECONDS
        with house.database.snapshot() as tx:
            if not store.with_results(tx, before, 1):
                return 0
        with house.database.transaction() as tx:
            old, now = store.with_results(tx, before, JOBS_AT_ONCE), house.clock()
            store.change(tx, old, results_removed_at=now, results_days=days)
            said = f"its results, checkpoints and logs are removed after {days:g} days, as the administrator set"
            for number in old:
                jobs.record(tx, number, "results-removed", said, {"days": days}, now)
        return len(old)

    return in_batches(remove_some)


def remove_folders(house: House) -> int:
    """Remove the folders of jobs that were deleted, or whose results were removed, and that are over. Answers how many.

    What was deleted before home and database were paired is left to ``sweeping``. Raises HomeUnusable where the home
    cannot be read, or a folder cannot be removed; then the others are gone. With a home that is not the database's
    nothing is removed.
    """
    with house.database.snapshot() as tx:
        if not store.with_folder_to_go(tx, 0, 1) or not pairing.belong(tx, house.settings):
            return 0
        since = home.since(tx)
    if not house.settings.jobs.is_dir():
        raise HomeUnusable(str(house.settings.home), "its folder jobs is not there")
    place = _place(house)
    removed, gone, kept = 0, list[Row[Any, Any]](), list[str]()
    for row in in_time(_with_folder_to_go(house, place.last)):
        place.last = row.id
        folder = house.settings.job_directory(exec_id(row.id))
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
            _tell_gone(house, gone)
    _tell_gone(house, gone)
    if kept:
        raise HomeUnusable(str(house.settings.home), f"{lost_found.told(len(kept))} cannot be removed, {kept[0]} say")
    return removed


@dataclass
class _Place:
    """Where this process goes on at the next run: folders that cannot be removed, and take their time, keep no others
    from being looked at."""

    last: int = 0


@functools.lru_cache(maxsize=1)
def _place(_house: House) -> _Place:
    return _Place()


def _with_folder_to_go(house: House, begin: int) -> Iterator[Row[Any, Any]]:
    """Each once: those behind number ``begin``, then the others."""
    for after, until in ((begin, None), (0, begin)):
        last = after
        while until is None or last < until:
            with house.database.snapshot() as tx:
                found = store.with_folder_to_go(tx, last, JOBS_AT_ONCE)
            if not found:
                break
            last = found[-1].id
            yield from (row for row in found if until is None or row.id <= until)


def _is_there(folder: Path) -> bool:
    """Only a disk that says so has lost a folder: one that answers with an error has it still."""
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _tell_gone(house: House, gone: list[Row[Any, Any]]) -> None:
    """Write down what is durably gone; the courses of jobs that were deleted go, too. A crash before it costs a second
    look at folders that are not there."""
    if gone:
        lost_found.sync(house.settings.jobs)
        _forget_points(house, [row.id for row in gone if row.deleted_at is not None])
        with house.database.transaction() as tx:
            store.folders_gone(tx, [row.id for row in gone], house.clock())
        gone.clear()


def _forget_points(house: House, numbers: Collection[int]) -> None:
    """Delete the points of these jobs' courses; what takes too long is left to ``purge_deleted``."""

    def forget_some() -> int:
        with house.database.snapshot() as tx:
            left = store.with_points(tx, numbers)
        if not left:
            return 0
        with house.database.transaction() as tx:
            return store.forget_first_points(tx, left, BATCH_ROWS)

    in_batches(forget_some)


def thin_old_metrics(house: House) -> int:
    """Leave EDT_METRICS_POINTS points of the curves of jobs that have been over for EDT_METRICS_DAYS. Answers how many
    jobs were looked at."""
    days, most = house.settings.metrics_days, house.settings.metrics_points
    if days is None:
        return 0

    def thin_some() -> int:
        before = house.clock() - days * DAY_SECONDS
        with house.database.snapshot() as tx:
            old = store.with_all_metrics(tx, before, JOBS_AT_ONCE)
            doomed: dict[int, list[int]] = {}
            for number in old:  # as many at once as one transaction may delete points of
                points = store.points_in_short(tx, number)
                kept = {points[index].number for index in course.sparse(points, most)}
                doomed[number] = [point.number for point in points if point.number not in kept]
                if sum(map(len, doomed.values())) >= BATCH_ROWS:
                    break
        if not doomed:
            return 0
        with house.database.transaction() as tx:
            for number, numbers in doomed.items():
                store.forget_points(tx, number, numbers)
            store.change(tx, doomed, metrics_thinned_at=house.clock())
        return len(doomed)

    return in_batches(thin_some)


def purge_deleted(house: House) -> int:
    """Delete all rows of jobs that were deleted EDT_DELETED_DAYS ago. Answers of how many.

    A job waits whose folder is still there, of which something is still open, or whose slots' time is still to be
    counted (``rollups``).
    """

    def purge_some() -> int:
        before = house.clock() - house.settings.deleted_days * DAY_SECONDS
        with house.database.snapshot() as tx:
            found = store.to_purge(tx, before, rollups.until(tx, rollups.USER_DAYS) or 0, JOBS_AT_ONCE)
        if not found:
            return 0
        _forget_points(house, [row.id for row in found])
        with house.database.transaction() as tx:
            counted = rollups.until(tx, rollups.USER_DAYS) or 0
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
