"""Samples of how busy slots were, and for how long each user's jobs held slots, by day.

The days hold everything up to the time in ``rolled_up``. One transaction writes both the counted seconds and this time,
and first checks that no other process has counted them meanwhile. So each second counts once, whatever crashes. A slot
is held from the decision that gave it until its process was seen gone. Days are days in UTC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Integer, Row, and_, cast, func, insert, or_, select, update

from edt_scheduler.store import queries
from edt_scheduler.store.queries import rows_of
from edt_scheduler.store.tables import allocations, jobs, nodes, rolled_up, slot_usage, slots, user_days, users
from edt_scheduler.views import ForeignProcess, SlotUse, view_of

FRESH_SECONDS = 60.0
"""A sample that is older than this says nothing about the present."""
DAY_SECONDS = 86_400
SAMPLED_AT, DAY = slot_usage.c.time, user_days.c.day
"""The columns by which the age of samples and days is measured."""
_USER_DAYS = {"what": "user_days"}
_AT_ONCE = 5_000


# ── samples ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def put(tx: Connection, node: Row[Any], samples: Iterable[SlotUse], now: float) -> bool:
    """Store a sample of a node's slots; unknown slots are left out. A second sample at the same instant is ignored.

    Returns:
        Whether a GPU answers no more, or answers again.
    """
    if node.usage_at == now:
        return False
    problems = {
        row.slot: row.problem
        for row in tx.execute(select(slots.c.slot, slots.c.problem).where(slots.c.node_id == node.id))
    }
    uses = [use for use in {use.slot: use for use in samples}.values() if use.slot in problems]
    if uses:
        tx.execute(insert(slot_usage), [{**_stored(use), "node_id": node.id, "time": now} for use in uses])
        tx.execute(update(nodes).where(nodes.c.id == node.id).values(usage_at=now))
    changed = [use for use in uses if use.problem != problems[use.slot]]
    for use in changed:
        own = and_(slots.c.node_id == node.id, slots.c.slot == use.slot)
        tx.execute(update(slots).where(own).values(problem=use.problem))
    return any((use.problem is None) != (problems[use.slot] is None) for use in changed)


def _stored(use: SlotUse) -> dict[str, Any]:
    values = asdict(use)
    del values["problem"]
    return {**values, "foreign_processes": [(each.pid, each.name) for each in use.foreign_processes] or None}


def _view(row: Row[Any]) -> SlotUse:
    found = tuple(ForeignProcess(pid, name) for pid, name in row.foreign_processes or ())
    return view_of(SlotUse, row._mapping, foreign_processes=found)


def newest(tx: Connection, node_ids: Iterable[int], now: float) -> dict[tuple[int, str], SlotUse]:
    """The newest sample of each node and slot, if it is fresh."""
    query = (
        select(slot_usage)
        .join(nodes, and_(nodes.c.id == slot_usage.c.node_id, nodes.c.usage_at == slot_usage.c.time))
        .where(nodes.c.usage_at > now - FRESH_SECONDS)
    )
    return {(row.node_id, row.slot): _view(row) for row in rows_of(tx, query, nodes.c.id, node_ids)}


def series(tx: Connection, node_id: int, since: float, until: float, width: float) -> list[Row[Any]]:
    """The mean values and the largest memory use in each interval of ``width`` seconds that has a sample, by slot and
    time.
    """
    place: Any = (slot_usage.c.time - since) / width
    if tx.dialect.name == "postgresql":
        place = func.floor(place)  # PostgreSQL's cast rounds, SQLite's cast cuts
    interval = cast(place, Integer).label("interval")
    query = (
        select(
            slot_usage.c.slot,
            interval,
            func.avg(slot_usage.c.time).label("time"),
            func.avg(slot_usage.c.utilisation).label("utilisation"),
            func.max(slot_usage.c.memory_bytes).label("memory_bytes"),
            func.avg(slot_usage.c.power_watts).label("power_watts"),
            func.avg(slot_usage.c.temperature_c).label("temperature_c"),
        )
        .where(slot_usage.c.node_id == node_id, slot_usage.c.time >= since, slot_usage.c.time <= until)
        .group_by(slot_usage.c.slot, interval)
        .order_by(slot_usage.c.slot, interval)
    )
    return list(tx.execute(query))


# ── users by the day ──────────────────────────────────────────────────────────────────────────────────────────────


def counted_until(tx: Connection) -> int | None:
    """The time before which the days hold everything, in seconds since the epoch; None: nothing was counted yet."""
    return tx.execute(select(rolled_up.c.until).filter_by(**_USER_DAYS)).scalar_one_or_none()


def move(tx: Connection, before: int | None, after: int) -> bool:
    """Note that the days hold everything before ``after``. False: the old end is not ``before``, and nothing was
    changed.
    """
    if counted_until(tx) != before:
        return False
    queries.put(tx, rolled_up, _USER_DAYS, {"until": after})
    return True


def held(tx: Connection, since: int, before: float, user_id: int | None = None) -> dict[int, dict[int, float]]:
    """Seconds that slots were held from ``since`` to ``before``, by day and user."""
    given = allocations.c
    query = (
        select(jobs.c.user_id, given.decided_at, given.released_at)
        .join(jobs, jobs.c.id == given.job_id)
        .where(given.decided_at < before)
        .execution_options(yield_per=_AT_ONCE)
    )
    if user_id is not None:
        query = query.where(jobs.c.user_id == user_id)
    found: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    # Two queries: for one query with OR, SQLite would read all allocations that were ever decided.
    for still_of_interest in (given.released_at > since, given.released_at.is_(None)):
        for user, decided_at, released_at in tx.execute(query.where(still_of_interest)):
            begin, end = max(decided_at, since), min(before, released_at if released_at is not None else before)
            for day, seconds in by_day(begin, end).items():
                found[day][user] += seconds
    return found


def by_day(begin: float, end: float) -> dict[int, float]:
    """The seconds from ``begin`` to ``end`` that are in each day. Pure.

    >>> by_day(86_000, 173_000)
    {0: 400, 86400: 86400, 172800: 200}
    """
    found = {}
    while begin < end:
        day = int(begin // DAY_SECONDS) * DAY_SECONDS
        cut = min(end, day + DAY_SECONDS)
        found[day] = cut - begin
        begin = cut
    return found


def put_day(tx: Connection, day: int, seconds: Mapping[int, float]) -> None:
    """Write the seconds that each user's jobs held slots in this day."""
    rows = [{"user_id": user, "day": day, "slot_seconds": each} for user, each in sorted(seconds.items())]
    if rows:
        tx.execute(insert(user_days), rows)


def days(tx: Connection, user_id: int | None, before: tuple[int, int] | None, limit: int) -> list[Row[Any, Any, Any]]:
    """``day``, ``user_id`` and ``slot_seconds``, newest day first, then highest user id first, behind the item
    ``before``.
    """
    row = user_days.c
    query = select(row.day, row.user_id, row.slot_seconds).order_by(row.day.desc(), row.user_id.desc()).limit(limit)
    if user_id is not None:
        query = query.where(row.user_id == user_id)
    if before is not None:
        day, user = before
        query = query.where(row.day <= day, or_(row.day < day, row.user_id < user))
    return list(tx.execute(query))


def names(tx: Connection, user_ids: set[int]) -> dict[int, str]:
    """The names that these users have or had."""
    return {row.id: row.name for row in rows_of(tx, select(users.c.id, users.c.name), users.c.id, user_ids)}
