"""Allocations: which job holds which slot, from the decision until the engine's process is seen gone.

An allocation is open until ``close``, and a trigger lets ``close`` happen only once. Asking an allocation back does not
free its slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, or_, select, update

from edt_contract.reports import ExitKind
from edt_scheduler.store import queries
from edt_scheduler.store.queries import any_row, of_attempt, rows_of, write_to
from edt_scheduler.store.tables import allocations, attempts, jobs, nodes, slots, supervisors


def add(tx: Connection, job_id: int, fence: int, node_id: int, slot: str, resize_id: int, now: float) -> int:
    """Give a slot to a job, and return the allocation's number. The partial unique index refuses a slot
    that is held.
    """
    query = insert(allocations).values(
        job_id=job_id, fence=fence, node_id=node_id, slot=slot, grown_by=resize_id, decided_at=now
    )
    return int(tx.execute(query.returning(allocations.c.id)).scalar_one())


def find(tx: Connection, allocation: int, job_id: int, fence: int, node_id: int | None = None) -> Row[Any] | None:
    """An allocation by its number, if it belongs to this attempt and, if ``node_id`` is given, to this node."""
    query = select(allocations).where(allocations.c.id == allocation, of_attempt(allocations, job_id, fence, node_id))
    return tx.execute(query).one_or_none()


def others_joined(tx: Connection, job_id: int, fence: int, allocation: int) -> bool:
    """Whether another engine of the attempt has ever had the weights. That engine may be gone by now."""
    joined = allocations.c.joined_at.is_not(None)
    return any_row(tx, of_attempt(allocations, job_id, fence), allocations.c.id != allocation, joined)


def places(tx: Connection, job_id: int, fence: int) -> list[tuple[int, str | None]]:
    """Node, and model of the GPU, of each engine of the attempt that trains now."""
    query = (
        select(allocations.c.node_id, slots.c.model)
        .join(slots, and_(slots.c.node_id == allocations.c.node_id, slots.c.slot == allocations.c.slot))
        .where(of_attempt(allocations, job_id, fence), allocations.c.released_at.is_(None))
        .where(allocations.c.joined_at.is_not(None))
    )
    return [(row.node_id, row.model) for row in tx.execute(query)]


def keep_until_joined(tx: Connection, numbers: Collection[int], *, until_joined: bool) -> None:
    """Note of these allocations whether they are kept only until an engine of their job elsewhere has joined."""
    write_to(tx, update(allocations).values(until_joined=until_joined), allocations.c.id, numbers)


def any_until_joined(tx: Connection, job_id: int, fence: int) -> bool:
    """Whether the attempt leaves slots as soon as an engine elsewhere has joined."""
    is_open = allocations.c.released_at.is_(None), allocations.c.release_asked_at.is_(None)
    return any_row(tx, of_attempt(allocations, job_id, fence), *is_open, allocations.c.until_joined)


def any_asked_back(tx: Connection, job_id: int, fence: int) -> bool:
    """Whether an allocation of the attempt was ever asked back."""
    return any_row(tx, of_attempt(allocations, job_id, fence), allocations.c.release_asked_at.is_not(None))


def open_of(tx: Connection, job_id: int, fence: int, node_id: int | None = None) -> list[Row[Any]]:
    """An attempt's open allocations, on one node or on all nodes, oldest first."""
    query = select(allocations).where(of_attempt(allocations, job_id, fence, node_id)).order_by(allocations.c.id)
    return list(tx.execute(query.where(allocations.c.released_at.is_(None))))


def on_node(tx: Connection, job_id: int, fence: int, node_id: int) -> list[Row[Any]]:
    """All allocations that an attempt has or had on a node, oldest first."""
    query = select(allocations).where(of_attempt(allocations, job_id, fence, node_id))
    return list(tx.execute(query.order_by(allocations.c.id)))


def every_open(tx: Connection) -> list[Row[Any]]:
    """All open allocations, oldest first, with the columns that a decision needs."""
    return list(tx.execute(_FOR_THE_PLAN.where(allocations.c.released_at.is_(None)).order_by(allocations.c.id)))


def open_among(tx: Connection, numbers: Iterable[int]) -> list[Row[Any]]:
    """Those of these allocations that are open, as ``every_open`` has them."""
    return rows_of(tx, _FOR_THE_PLAN.where(allocations.c.released_at.is_(None)), allocations.c.id, numbers)


_COLUMNS = ("id", "job_id", "fence", "node_id", "slot", "handed_at", "release_asked_at", "until_joined")
_SOFT_COLUMNS = ("decided_at", "joined_at")
_FOR_THE_PLAN = select(*allocations.c[*_COLUMNS, *_SOFT_COLUMNS])
HARD = len(_COLUMNS)
"""Of the columns that a decision needs, so many come first that a plan must have been made of to be applied."""


def freed_since(tx: Connection, since: float) -> list[Row[Any]]:
    """The allocations that were released from ``since`` on, in that order: node, slot, job with its ``state``, time and
    ``kind``.
    """
    query = select(*allocations.c["node_id", "slot", "job_id", "released_at", "kind"], jobs.c.state)
    query = query.join(jobs, jobs.c.id == allocations.c.job_id).where(allocations.c.released_at >= since)
    return list(tx.execute(query.order_by(allocations.c.released_at, allocations.c.id)))


def desired_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """The allocations of a node's desired state, with ``device`` and ``ordinal`` (the how-many-th of its job each one
    is): all that are open there, and all that finished by themselves.

    Engines of a finished training give their slots back while the driver continues. If the desired state did not list
    these slots, their supervisor would conclude that the job should leave.
    """
    belongs = or_(allocations.c.released_at.is_(None), allocations.c.kind == ExitKind.FINISHED)
    other = allocations.alias()
    up_to_it = and_(other.c.job_id == allocations.c.job_id, other.c.id <= allocations.c.id)
    ordinal = select(func.count()).select_from(other).where(up_to_it).scalar_subquery().label("ordinal")
    query = (
        select(allocations, slots.c.device, ordinal)
        .select_from(allocations)
        .join(supervisors)
        .join(slots)
        .where(allocations.c.node_id == node_id, belongs, supervisors.c.ended_at.is_(None))
        .order_by(allocations.c.id)
    )
    return list(tx.execute(query))


def of_gangs(tx: Connection, node_id: int) -> list[Row[Any]]:
    """All allocations that the gangs with an open supervisor on this node have or had in their present attempt, on any
    node, oldest first: ``id``, ``job_id``, ``fence`` and ``node_id``.
    """
    query = (
        select(*allocations.c["id", "job_id", "fence", "node_id"])
        .select_from(supervisors)
        .join(jobs, jobs.c.id == supervisors.c.job_id)
        .join(
            allocations, and_(allocations.c.job_id == supervisors.c.job_id, allocations.c.fence == supervisors.c.fence)
        )
        .where(supervisors.c.node_id == node_id, supervisors.c.ended_at.is_(None), jobs.c.gang.is_not(None))
        .order_by(allocations.c.id)
    )
    return list(tx.execute(query))


def hand(tx: Connection, ids: Sequence[int], now: float) -> None:
    """Note that these allocations are listed to the agent. From now on a process may exist for each."""
    handed = update(allocations).where(allocations.c.handed_at.is_(None)).values(handed_at=now)
    write_to(tx, handed, allocations.c.id, ids)


def ask_back(tx: Connection, ids: Iterable[int], resize_id: int | None, now: float) -> None:
    """Note that these allocations were asked back, for this resize. A second note changes nothing."""
    asked = update(allocations).where(allocations.c.release_asked_at.is_(None))
    write_to(tx, asked.values(release_asked_at=now, shrunk_by=resize_id), allocations.c.id, ids)


def mark(tx: Connection, allocation: int, **values: Any) -> None:
    """Set columns of an allocation that a report has given."""
    tx.execute(update(allocations).where(allocations.c.id == allocation).values(**values))


def close(tx: Connection, allocation: int, kind: ExitKind, now: float) -> bool:
    """Note that the engine's process was seen gone, and count how long its job held the slot. False: this was known
    already.
    """
    key = and_(allocations.c.id == allocation, allocations.c.released_at.is_(None))
    closing = update(allocations).where(key).values(released_at=now, kind=kind)
    row = tx.execute(closing.returning(*allocations.c["job_id", "decided_at"])).one_or_none()
    if row is None:
        return False
    held = jobs.c.slot_seconds + max(0.0, now - row.decided_at)
    tx.execute(update(jobs).where(jobs.c.id == row.job_id).values(slot_seconds=held))
    return True


def unasked_ends(tx: Connection, job_id: int, since: float) -> list[float]:
    """When the job's engines were lost, from ``since`` on: the end of each allocation that was not asked back.

    Engines that left in order are left out, because nothing was lost with them. Joining engines that could not get the
    weights are left out, because another rule applies to them (``cap_seconds``).
    """
    query = select(allocations.c.released_at).where(
        allocations.c.job_id == job_id,
        allocations.c.released_at >= since,
        allocations.c.shrunk_by.is_not(None),
        allocations.c.release_asked_at.is_(None),
        allocations.c.kind.not_in([ExitKind.PULL_FAILED, ExitKind.LEFT]),
    )
    return list(tx.execute(query).scalars())


def between(tx: Connection, since: float, until: float) -> list[Row[Any]]:
    """The allocations that were open at some instant from ``since`` to ``until``, in order, with few columns."""
    held = or_(allocations.c.released_at.is_(None), allocations.c.released_at >= since)
    return list(tx.execute(_in_short().where(held, allocations.c.decided_at <= until).order_by(allocations.c.id)))


def few_since(tx: Connection, since: float, until: float, most: int) -> float:
    """The earliest time from ``since`` on after which at most about ``most`` allocations ended that began before
    ``until``.
    """
    return queries.few_since(tx, allocations.c.released_at, since, most, allocations.c.decided_at <= until)


def of_job(tx: Connection, job_id: int, after: int = 0, limit: int | None = None) -> list[Row[Any]]:
    """A job's allocations with a number above ``after``, in order, with the node's name."""
    named = select(allocations, nodes.c.name.label("node")).join(nodes, nodes.c.id == allocations.c.node_id)
    query = named.where(allocations.c.job_id == job_id, allocations.c.id > after)
    return list(tx.execute(query.order_by(allocations.c.id).limit(limit)))


def started_of(tx: Connection, job_ids: Collection[int]) -> list[Row[Any]]:
    """The allocations of these jobs for which a process was started, with the node's name and ``host``.

    They are sorted by job, and those of one job by the start of the process.
    """
    named = select(allocations, nodes.c.name.label("node"), nodes.c.host).join(
        nodes, nodes.c.id == allocations.c.node_id
    )
    query = named.where(allocations.c.started_at.is_not(None))
    order = allocations.c["job_id", "started_at", "id"]
    return rows_of(tx, query.order_by(*order), allocations.c.job_id, job_ids)


def of_newest_attempt(tx: Connection, job_ids: Collection[int]) -> list[Row[Any]]:
    """All allocations of each job's newest attempt, in the order of a gang's ranks, with the node's name and ``host``.

    The head node's come first, then those of the other nodes by name. Those of a node are sorted by number. Names are
    sorted by code points, as in ``attempts.specs``, whatever the language of a PostgreSQL database is.
    """
    newest = and_(allocations.c.job_id == jobs.c.id, allocations.c.fence == jobs.c.fence)
    attempt = and_(attempts.c.job_id == jobs.c.id, attempts.c.fence == jobs.c.fence)
    query = (
        select(allocations, nodes.c.name.label("node"), nodes.c.host, attempts.c.head_node_id)
        .join_from(allocations, jobs, newest)
        .join(attempts, attempt)
        .join(nodes, nodes.c.id == allocations.c.node_id)
    )
    found = rows_of(tx, query, allocations.c.job_id, job_ids)
    return sorted(found, key=lambda row: (row.job_id, row.node_id != row.head_node_id, row.node, row.id))


def of_numbers(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """The allocations with these numbers, in order, with few columns and the node's id as the last column."""
    query = _in_short().add_columns(allocations.c.node_id).order_by(allocations.c.id)
    return rows_of(tx, query, allocations.c.id, numbers)


def earliest(tx: Connection) -> float | None:
    """When the first slot was ever given to a job."""
    return tx.execute(select(func.min(allocations.c.decided_at))).scalar()


def _in_short() -> Any:
    """The columns of ``views.TimelineAllocation``, with the job's number instead of its name."""
    held = allocations.c
    times = held["decided_at", "started_at", "counted_at", "released_at"]
    columns = (*held["id", "job_id", "fence"], nodes.c.name, held.slot, *times, held.kind)
    return select(*columns).join(nodes, nodes.c.id == held.node_id)
