"""Measured step times: of each job, and of all jobs that are alike, by GPU model and numbers of workers and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from edt_scheduler.store.queries import chunks, rows_of
from edt_scheduler.store.tables import prior_points, speed_points

AT = prior_points.c.at
_POINT = ("model", "workers", "nodes", "step_seconds", "samples")


def find(tx: Connection, owner: Mapping[str, Any], point: Mapping[str, Any]) -> Row[Any] | None:
    """A point; None: there is none. For the arguments see ``put``."""
    table = speed_points if "job_id" in owner else prior_points
    return tx.execute(select(table).filter_by(**owner, **point)).one_or_none()


def of_jobs(tx: Connection, job_ids: Iterable[int]) -> list[Row[Any]]:
    """The points of these jobs, in the order of the table's key."""
    query = select(speed_points.c.job_id, *speed_points.c[*_POINT]).order_by(*speed_points.primary_key)
    return rows_of(tx, query, speed_points.c.job_id, job_ids)


def of_keys(tx: Connection, keys: Iterable[str], since: float = 0.0) -> list[Row[Any]]:
    """The points of these keys that were written from ``since`` on, in the order of the table's key."""
    query = select(prior_points.c.prior_key, *prior_points.c[*_POINT]).order_by(*prior_points.primary_key)
    if since:
        query = query.where(prior_points.c.at >= since)
    wanted = sorted(set(keys))
    found: list[Row[Any]] = []
    for part in chunks(range(len(wanted))):
        names = [wanted[index] for index in part]
        found += tx.execute(query.where(prior_points.c.prior_key.in_(names)))
    return found


def changed_keys(tx: Connection, since: float) -> set[str]:
    """The keys that have a point that was written from ``since`` on."""
    return set(tx.execute(select(prior_points.c.prior_key).distinct().where(prior_points.c.at >= since)).scalars())


def put(
    tx: Connection, owner: Mapping[str, Any], point: Mapping[str, Any], values: Mapping[str, Any], *, new: bool
) -> None:
    """Write a point.

    Args:
        tx: The open transaction.
        owner: ``job_id`` or ``prior_key``.
        point: ``model``, ``workers`` and ``nodes``.
        values: ``step_seconds``, ``samples`` and ``at``.
        new: Whether there is no such point yet.
    """
    table = speed_points if "job_id" in owner else prior_points
    if new:
        tx.execute(insert(table).values(**owner, **point, **values))
    else:
        tx.execute(update(table).filter_by(**owner, **point).values(**values))
