"""Resizes: each change of a job's size, and when each part of it happened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, literal, or_, select, update

from edt_scheduler.model.states import ResizeCause
from edt_scheduler.store import queries
from edt_scheduler.store.jobs import record
from edt_scheduler.store.queries import rows_of, write_to
from edt_scheduler.store.tables import jobs, resize_nodes, resizes, users


def add(
    tx: Connection,
    job_id: int,
    fence: int,
    cause: ResizeCause,
    detail: str,
    sizes: tuple[int, int],
    node_ids: Iterable[int],
    now: float,
    data: Mapping[str, Any] | None = None,
) -> int:
    """Record a decision, also as an event of the job's history.

    Args:
        tx: The open transaction.
        job_id: Number of the job.
        fence: Number of its attempt.
        cause: Why the size changes.
        detail: The cause in words, with names.
        sizes: Number of slots before and after.
        node_ids: Nodes that the change concerns.
        now: Time of the decision, in seconds since the epoch.
        data: Further facts for the event.

    Returns:
        The resize's number.
    """
    query = insert(resizes).values(
        job_id=job_id,
        fence=fence,
        cause=cause,
        detail=detail,
        from_slots=sizes[0],
        to_slots=sizes[1],
        decided_at=now,
    )
    number = int(tx.execute(query.returning(resizes.c.id)).scalar_one())
    for node_id in sorted(set(node_ids)):
        tx.execute(insert(resize_nodes).values(resize_id=number, node_id=node_id))
    tx.execute(update(jobs).where(jobs.c.id == job_id).values(resized_at=now))
    event = {"cause": cause, "from": sizes[0], "to": sizes[1], **(data or {})}
    record(tx, job_id, "resize", f"{sizes[0]} → {sizes[1]} slots: {detail}", event, now)
    return number


def get(tx: Connection, number: int) -> Row[Any]:
    return tx.execute(select(resizes).where(resizes.c.id == number)).one()


def of_job(tx: Connection, job_id: int, after: int = 0, limit: int | None = None) -> list[Row[Any]]:
    """A job's resizes with a number above ``after``, in order, with its owner's name."""
    named = select(resizes, users.c.name.label("owner")).join_from(resizes, jobs).join(users)
    query = named.where(resizes.c.job_id == job_id, resizes.c.id > after)
    return list(tx.execute(query.order_by(resizes.c.id).limit(limit)))


def between(tx: Connection, since: float, until: float) -> list[Row[Any]]:
    """The resizes that were decided from ``since`` to ``until``, in order, with few columns."""
    query = _in_short().where(resizes.c.decided_at >= since, resizes.c.decided_at <= until)
    return list(tx.execute(query.order_by(resizes.c.id)))


def few_since(tx: Connection, since: float, until: float, most: int) -> float:
    """The earliest time from ``since`` on after which at most about ``most`` resizes were decided before ``until``."""
    return queries.few_since(tx, resizes.c.decided_at, since, most, resizes.c.decided_at <= until)


def of_numbers(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """The resizes with these numbers, in order, with few columns."""
    return rows_of(tx, _in_short().order_by(resizes.c.id), resizes.c.id, numbers)


def _in_short() -> Any:
    """The columns of ``views.TimelineResize``, with the job's number instead of its name."""
    decided = resizes.c["cause", "detail", "decided_at", "from_slots", "to_slots", "pause_seconds", "recomputed"]
    return select(*resizes.c["id", "job_id"], jobs.c.user_id.label("owner_id"), *decided).join_from(resizes, jobs)


def usual_pause(tx: Connection, most: int) -> float | None:
    """Mean pause of the newest ``most`` resizes, as far as it was measured; None: of none of them."""
    newest = select(resizes.c.pause_seconds).order_by(resizes.c.id.desc()).limit(most).subquery()
    found: float | None = tx.execute(select(func.avg(newest.c.pause_seconds))).scalar_one()
    return found


def notified(tx: Connection, ids: Iterable[int], now: float) -> None:
    untold = update(resizes).where(resizes.c.notified_at.is_(None))
    write_to(tx, untold.values(notified_at=now), resizes.c.id, ids)


def woken(tx: Connection, node_id: int, woken_by: str, now: float) -> None:
    """Note that the node has fetched its assignments. For each resize only the first fetch counts."""
    here = (resize_nodes.c.resize_id == resizes.c.id, resize_nodes.c.node_id == node_id)
    key = and_(resizes.c.woken_at.is_(None), select(literal(1)).where(*here).exists())
    tx.execute(update(resizes).where(key).values(woken_by=woken_by, woken_at=now))


def _sum_pauses(tx: Connection, number: int, pause: float | None) -> None:
    """Add the pause of this resize to its job's sum, or what it is longer than one that is known already."""
    if pause is None:
        return
    row = tx.execute(select(*resizes.c["job_id", "pause_seconds"]).where(resizes.c.id == number)).one()
    more = pause - (row.pause_seconds or 0.0)
    if row.pause_seconds is None or more > 0:
        new = int(row.pause_seconds is None)
        sums = {"pauses": jobs.c.pauses + new, "pause_seconds": jobs.c.pause_seconds + more}
        tx.execute(update(jobs).where(jobs.c.id == row.job_id).values(**sums))


def mark(tx: Connection, number: int | None, **values: Any) -> None:
    """Set columns of a resize that a report has given. If several engines report, the last one's times stay."""
    if number is not None:
        tx.execute(update(resizes).where(resizes.c.id == number).values(**values))


def switched(
    tx: Connection,
    ids: Iterable[int],
    *,
    generation: Any,
    step: Any,
    workers: Any,
    pause: float | None,
    recomputed: int | None = None,
) -> None:
    """Note that the engines have a new membership. If this took several changes, the longest pause and the largest
    amount of recomputed work stay. The job's sum of pauses follows.
    """
    for number in sorted(set(ids)):
        this = resizes.c.id == number
        _sum_pauses(tx, number, pause)
        tx.execute(update(resizes).where(this).values(generation=generation, step=step, workers=workers))
        for column, value in ((resizes.c.recomputed, recomputed), (resizes.c.pause_seconds, pause)):
            if value is not None:
                more = or_(column.is_(None), column < value)
                tx.execute(update(resizes).where(this, more).values({column: value}))
