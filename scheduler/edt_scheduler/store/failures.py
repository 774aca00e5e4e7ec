"""Failures: engines that were lost, nodes that were lost with all that a job had there, and whole attempts.

They are read from the rows of allocations, resizes and attempts; there is no table of failures.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, and_, func, literal, null, select, union_all

from edt_contract.reports import ExitKind
from edt_scheduler.model.states import ResizeCause
from edt_scheduler.store import queries
from edt_scheduler.store.tables import allocations, attempts, jobs, nodes, resize_nodes, resizes

_FAILED = (ExitKind.LOST, ExitKind.SCRIPT_ERROR, ExitKind.PULL_FAILED)


def between(tx: Connection, since: float, until: float) -> list[Row[Any]]:
    """All failures from ``since`` to ``until``, in order: job_id, owner_id, node, slot, time, kind, message."""
    return _listed(tx, *_within(since, until))


def few_since(tx: Connection, since: float, until: float, most: int) -> float:
    """The earliest time from ``since`` on after which at most about ``most`` failures happened before ``until``."""
    return queries.few_since(tx, _found(*_within(since, until)).c.time, since, most)


def _within(since: float, until: float) -> tuple[ColumnElement[bool], ColumnElement[bool], ColumnElement[bool]]:
    """The conditions that engines, nodes and attempts failed in this time."""
    return (
        and_(allocations.c.released_at >= since, allocations.c.released_at <= until),
        and_(resizes.c.decided_at >= since, resizes.c.decided_at <= until),
        and_(attempts.c.ended_at >= since, attempts.c.ended_at <= until),
    )


def of_changed(tx: Connection, allocation_ids: list[int], resize_ids: list[int], job_ids: list[int]) -> list[Row[Any]]:
    """The failures in these allocations and resizes, and in the attempt of each job that ended last."""
    ended = attempts.alias()
    last = select(func.max(ended.c.fence)).where(ended.c.job_id == attempts.c.job_id, ended.c.ended_at.is_not(None))
    return _listed(
        tx,
        allocations.c.id.in_(allocation_ids),
        resizes.c.id.in_(resize_ids),
        and_(attempts.c.job_id.in_(job_ids), attempts.c.fence == last.scalar_subquery()),
    )


def _listed(
    tx: Connection, engines: ColumnElement[bool], lost: ColumnElement[bool], whole: ColumnElement[bool]
) -> list[Row[Any]]:
    found = _found(engines, lost, whole)
    query = (
        select(found, jobs.c.user_id.label("owner_id"))
        .join(jobs, jobs.c.id == found.c.job_id)
        .order_by(found.c.time, found.c.job_id, found.c.slot.is_(None), found.c.slot)
    )
    return list(tx.execute(query))


def _found(engines: ColumnElement[bool], lost: ColumnElement[bool], whole: ColumnElement[bool]) -> Subquery:
    return union_all(_engines().where(engines), _nodes().where(lost), _attempts().where(whole)).subquery()


def _engines() -> Select[Any]:
    """Engines that failed and had not been asked back."""
    return (
        select(
            allocations.c.job_id,
            nodes.c.name.label("node"),
            allocations.c.slot,
            allocations.c.released_at.label("time"),
            allocations.c.kind,
            resizes.c.detail.label("message"),
        )
        .join(nodes, nodes.c.id == allocations.c.node_id)
        .outerjoin(resizes, resizes.c.id == allocations.c.shrunk_by)
        .where(
            allocations.c.released_at.is_not(None),
            allocations.c.release_asked_at.is_(None),
            allocations.c.kind.in_(_FAILED),
        )
    )


def _nodes() -> Select[Any]:
    """What a job had on a node that was lost."""
    return (
        select(
            resizes.c.job_id,
            nodes.c.name,
            null(),
            resizes.c.decided_at,
            literal(ExitKind.LOST.value),
            resizes.c.detail,
        )
        .join(resize_nodes, resize_nodes.c.resize_id == resizes.c.id)
        .join(nodes, nodes.c.id == resize_nodes.c.node_id)
        .where(resizes.c.cause == ResizeCause.NODE_LOST)
    )


def _attempts() -> Select[Any]:
    return select(attempts.c.job_id, null(), null(), attempts.c.ended_at, attempts.c.kind, attempts.c.message).where(
        attempts.c.ended_at.is_not(None), attempts.c.kind.in_(_FAILED)
    )
