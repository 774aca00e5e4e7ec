"""Allocations: who holds which slot, from the decision until its process is seen gone.

An allocation is open until ``close``; a trigger lets that happen once. Asking it back does not free its slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, or_, select, update

from edt_contract.reports import ExitKind
from edt_scheduler.store import queries
from edt_scheduler.store.queries import any_row, of_attempt, rows_of, write_to
from edt_scheduler.store.tables import allocations, jobs, nodes, slots, supervisors


def add(tx: Connection, job_id: int, fence: int, node_id: int, slot: str, resize_id: int, now: float) -> int:
    """Give a slot. The partial unique index refuses one that is held."""
    query = insert(allocations).values(
        job_id=job_id, fence=fence, node_id=node_id, slot=slot, grown_by=resize_id, decided_at=now
    )
    return int(tx.execute(query.returning(allocations.c.id)).scalar_one())


def find(tx: Connection, allocation: int, job_id: int, fence: int, node_id: int | None = None) -> Row[Any] | None:
    """An allocation by its number, if it belongs to this attempt, on this node or on whatever node."""
    query = select(allocations).where(allocations.c.id == allocation, of_attempt(allocations, job_id, fence, node_id))
    return tx.execute(query).one_or_none()


def others_joined(tx: Connection, job_id: int, fence: int, allocation: int) -> bool:
    """Whether another engine of the attempt has had the weights, be it still there or not."""
    joined = allocations.c.joined_at.is_not(None)
    return any_row(tx, of_attempt(allocations, job_id, fence), allocations.c.id != allocation, joined)


def open_of(tx: Connection, job_id: int, fence: int, node_id: int | None = None) -> list[Row[Any]]:
    """What an attempt holds, on one node or on all, oldest first."""
    query = select(allocations).where(of_attempt(allocations, job_id, fence, node_id)).order_by(allocations.c.id)
    return list(tx.execute(query.where(allocations.c.released_at.is_(None))))


def on_node(tx: Connection, job_id: int, fence: int, node_id: int) -> list[Row[Any]]:
    """All that an attempt holds or held on a node, oldest first."""
    query = select(allocations).where(of_attempt(allocations, job_id, fence, node_id))
    return list(tx.execute(query.order_by(allocations.c.id)))


def every_open(tx: Connection) -> list[Row[Any]]:
    """Of each open allocation what a decision looks at, oldest first."""
    query = select(*allocations.c["id", "job_id", "fence", "node_id", "slot", "handed_at", "release_asked_at"])
    return list(tx.execute(query.where(allocations.c.released_at.is_(None)).order_by(allocations.c.id)))


def desired_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """What belongs into a node's wishes, with ``device``: all that is open there, and what finished by itself.

    Engines of a finished training give their slots back while the driver goes on. Were those slots taken out of
    the desired, its supervisor would read that the job should leave.
    """
    belongs = or_(allocations.c.released_at.is_(None), allocations.c.kind == ExitKind.FINISHED)
    query = (
        select(allocations, slots.c.device)
        .select_from(allocations)
        .join(supervisors)
        .join(slots)
        .where(allocations.c.node_id == node_id, belongs, supervisors.c.ended_at.is_(None))
        .order_by(allocations.c.id)
    )
    return list(tx.execute(query))


def hand(tx: Connection, ids: Sequence[int], now: float) -> None:
    """They are listed to the agent: from here on a process may exist."""
    handed = update(allocations).where(allocations.c.handed_at.is_(None)).values(handed_at=now)
    write_to(tx, handed, allocations.c.id, ids)


def ask_back(tx: Connection, ids: Iterable[int], resize_id: int | None, now: float) -> None:
    asked = update(allocations).where(allocations.c.release_asked_at.is_(None))
    write_to(tx, asked.values(release_asked_at=now, shrunk_by=resize_id), allocations.c.id, ids)


def mark(tx: Connection, allocation: int, **values: Any) -> None:
    """What a report told of an engine."""
    tx.execute(update(allocations).where(allocations.c.id == allocation).values(**values))


def close(tx: Connection, allocation: int, kind: ExitKind, now: float) -> bool:
    """Its process was seen gone. False where that is known already."""
    key = and_(allocations.c.id == allocation, allocations.c.released_at.is_(None))
    return tx.execute(update(allocations).where(key).values(released_at=now, kind=kind)).rowcount == 1


def unasked_ends(tx: Connection, job_id: int, since: float) -> list[float]:
    """When the job's engines were lost since then: those that nobody had asked back. With an engine that left in order
    nothing was lost, and joining engines without weights have a rule of their own."""
    query = select(allocations.c.released_at).where(
        allocations.c.job_id == job_id,
        allocations.c.released_at >= since,
        allocations.c.shrunk_by.is_not(None),
        allocations.c.release_asked_at.is_(None),
        allocations.c.kind.not_in([ExitKind.PULL_FAILED, ExitKind.LEFT]),
    )
    return list(tx.execute(query).scalars())


def last_holder(tx: Connection, held: Sequence[tuple[int, str]]) -> Row[Any, Any, Any, Any] | None:
    """The newest closed allocation of these slots, with its job's ``state``."""
    slot = or_(*(and_(allocations.c.node_id == node, allocations.c.slot == name) for node, name in held))
    query = (
        select(allocations.c.job_id, allocations.c.released_at, allocations.c.kind, jobs.c.state)
        .join(jobs, jobs.c.id == allocations.c.job_id)
        .where(allocations.c.released_at.is_not(None), slot)
        .order_by(allocations.c.released_at.desc(), allocations.c.id.desc())
        .limit(1)
    )
    return tx.execute(query).one_or_none()


def between(tx: Connection, since: float, until: float) -> list[Row[Any]]:
    """What was held at some instant of a time, in order and in short."""
    held = or_(allocations.c.released_at.is_(None), allocations.c.released_at >= since)
    return list(tx.execute(_in_short().where(held, allocations.c.decided_at <= until).order_by(allocations.c.id)))


def few_since(tx: Connection, since: float, until: float, most: int) -> float:
    """From when on no more than about ``most`` came to an end that were held before ``until``: ``since``, or later."""
    return queries.few_since(tx, allocations.c.released_at, since, most, allocations.c.decided_at <= until)


def of_job(tx: Connection, job_id: int, after: int = 0, limit: int | None = None) -> list[Row[Any]]:
    """What a job holds or held behind number ``after``, in order, with the node's name."""
    named = select(allocations, nodes.c.name.label("node")).join(nodes, nodes.c.id == allocations.c.node_id)
    query = named.where(allocations.c.job_id == job_id, allocations.c.id > after)
    return list(tx.execute(query.order_by(allocations.c.id).limit(limit)))


def of_numbers(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """These, in order and in short, with the node's id behind."""
    query = _in_short().add_columns(allocations.c.node_id).order_by(allocations.c.id)
    return rows_of(tx, query, allocations.c.id, numbers)


def earliest(tx: Connection) -> float | None:
    """When the first slot was ever given."""
    return tx.execute(select(func.min(allocations.c.decided_at))).scalar()


def _in_short() -> Any:
    """The columns of ``views.TimelineAllocation``, the job's number for its name."""
    held = allocations.c
    times = held["decided_at", "started_at", "counted_at", "released_at"]
    columns = (*held["id", "job_id", "fence"], nodes.c.name, held.slot, *times, held.kind)
    return select(*columns).join(nodes, nodes.c.id == held.node_id)
