"""Which jobs are over and may be removed, and how their rows are deleted.

The schema refuses to delete a part of a job's history (``edt_migrations``, 0012). Only ``purge`` can delete a job.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, func, literal, or_, select, update
from sqlalchemy.sql.selectable import Exists

from edt_scheduler.store.queries import chunks, rows_of, write_to
from edt_scheduler.store.tables import (
    allocations,
    attempts,
    job_environs,
    job_events,
    jobs,
    metric_points,
    outbox,
    purges,
    resize_nodes,
    resizes,
    speed_points,
    start_estimates,
    supervisors,
    validations,
)

POINTS = (metric_points, validations)
"""The tables of points of curves."""

# The same words as in the partial indexes: with other words a query could not use them and would read all jobs.
_OVER = and_(jobs.c.finished_at.is_not(None), jobs.c.deleted_at.is_(None))
_WITHOUT_FOLDER_YET = (
    and_(jobs.c.deleted_at.is_not(None), jobs.c.folder_gone_at.is_(None)),
    and_(jobs.c.results_removed_at.is_not(None), jobs.c.folder_gone_at.is_(None)),
)


def over(tx: Connection, before: float, most: int) -> list[int]:
    """Jobs that were not deleted and were over at ``before``, oldest first."""
    return _first(tx, most, _OVER, jobs.c.finished_at <= before)


def with_results(tx: Connection, before: float, most: int) -> list[int]:
    """Those of ``over`` whose results were not removed. A job whose fence file must still be raised
    keeps its folder.
    """
    has = and_(_OVER, jobs.c.results_removed_at.is_(None))
    return _first(tx, most, has, jobs.c.finished_at <= before, jobs.c.fence_due.is_(None))


def with_all_metrics(tx: Connection, before: float, most: int) -> list[int]:
    """Those of ``over`` whose metrics were not thinned out."""
    return _first(tx, most, and_(_OVER, jobs.c.metrics_thinned_at.is_(None)), jobs.c.finished_at <= before)


def with_folder_to_go(tx: Connection, after: int, most: int) -> list[Row[Any, Any]]:
    """``id`` and ``deleted_at`` of jobs above number ``after`` that are over and whose folder should be removed."""
    number = jobs.c.id + 0  # with the bare column, SQLite would read all jobs and use no partial index
    found: dict[int, Row[Any, Any]] = {}
    for condition in _WITHOUT_FOLDER_YET:
        query = select(jobs.c.id, jobs.c.deleted_at).where(condition, jobs.c.finished_at.is_not(None), number > after)
        found |= {row.id: row for row in tx.execute(query.order_by(number).limit(most))}
    return [found[number] for number in sorted(found)][:most]


def to_purge(tx: Connection, deleted_before: float, counted_until: float, most: int) -> list[Row[Any, Any]]:
    """``id`` and ``events`` of jobs that can be purged, longest deleted first.

    Such a job was deleted by ``deleted_before``, its folder is gone, nothing of it is open, and the time of all its
    slots was counted by ``counted_until``. Its points (``with_points``) must be deleted before it is purged.
    """
    query = select(jobs.c.id, jobs.c.events).where(
        jobs.c.deleted_at.is_not(None),
        jobs.c.deleted_at <= deleted_before,
        jobs.c.finished_at.is_not(None),
        jobs.c.folder_gone_at.is_not(None),
        jobs.c.fence_due.is_(None),
        ~_has(attempts, attempts.c.ended_at.is_(None)),
        ~_has(supervisors, supervisors.c.ended_at.is_(None)),
        ~_has(allocations, or_(allocations.c.released_at.is_(None), allocations.c.released_at > counted_until)),
    )
    return list(tx.execute(query.order_by(jobs.c.deleted_at, jobs.c.id).limit(most)))


def _has(table: Any, condition: ColumnElement[bool]) -> Exists:
    return select(literal(1)).select_from(table).where(table.c.job_id == jobs.c.id, condition).exists()


def change(tx: Connection, numbers: Collection[int], **values: Any) -> None:
    """Set columns of these jobs, but never their state."""
    write_to(tx, update(jobs).values(**values), jobs.c.id, numbers)


def folders_gone(tx: Connection, numbers: Collection[int], now: float) -> None:
    """Note that the folders of these jobs were removed."""
    unknown = update(jobs).where(jobs.c.folder_gone_at.is_(None))
    write_to(tx, unknown.values(folder_gone_at=now), jobs.c.id, numbers)


def with_points(tx: Connection, numbers: Collection[int]) -> list[int]:
    """Those of these jobs that have points in a table of POINTS, ordered by number."""
    has = or_(*(select(literal(1)).where(table.c.job_id == jobs.c.id).exists() for table in POINTS))
    query = select(jobs.c.id).where(has).order_by(jobs.c.id)
    return [row.id for row in rows_of(tx, query, jobs.c.id, numbers)]


def forget_first_points(tx: Connection, numbers: Collection[int], most: int) -> int:
    """Delete at most ``most`` points of these jobs, the first ones first. Returns how many."""
    done = 0
    for number in numbers:
        for table in POINTS:
            mine = table.c.job_id == number
            first = select(table.c.number).where(mine).order_by(table.c.number).limit(most - done)
            last = tx.execute(select(func.max(first.subquery().c.number))).scalar_one()
            if last is not None:
                done += tx.execute(delete(table).where(mine, table.c.number <= last)).rowcount
            if done >= most:
                return done
    return done


def points_in_short(tx: Connection, table: Table, number: int) -> list[Row[Any, Any, Any, Any]]:
    """``number``, ``fence``, ``step`` and ``loss`` of a job's points in a table of POINTS, in order."""
    query = select(*table.c["number", "fence", "step", "loss"]).where(table.c.job_id == number)
    return list(tx.execute(query.order_by(table.c.number)))


def forget_points(tx: Connection, table: Table, number: int, points: Collection[int]) -> None:
    """Delete these points of a job in a table of POINTS."""
    write_to(tx, delete(table).where(table.c.job_id == number), table.c.number, points)


def purge(tx: Connection, numbers: Collection[int]) -> None:
    """Delete jobs with all their rows. Legal for jobs that ``to_purge`` found in the same transaction, once they have
    no points.
    """
    for chunk in chunks(numbers):
        tx.execute(purges.insert(), [{"job_id": number, "never": -number} for number in chunk])
        resized = select(resizes.c.id).where(resizes.c.job_id.in_(chunk))
        tx.execute(delete(outbox).where(outbox.c.resize_id.in_(resized)))
        tx.execute(delete(allocations).where(allocations.c.job_id.in_(chunk)))
        tx.execute(delete(resize_nodes).where(resize_nodes.c.resize_id.in_(resized)))
        for table in (resizes, supervisors, attempts, job_events, job_environs, speed_points, start_estimates):
            tx.execute(delete(table).where(table.c.job_id.in_(chunk)))
        tx.execute(delete(jobs).where(jobs.c.id.in_(chunk)))
        tx.execute(delete(purges).where(purges.c.job_id.in_(chunk)))


def _first(tx: Connection, most: int, *conditions: ColumnElement[bool]) -> list[int]:
    query = select(jobs.c.id).where(*conditions).order_by(jobs.c.finished_at, jobs.c.id).limit(most)
    return list(tx.execute(query).scalars())
