"""Roll-ups: how busy slots were by the hour, how long each user's jobs held slots by the day. Room: scheduler, store.

``rolled_up`` says until when each of them holds everything. What is counted and that it was counted are written in one
transaction, which first looks that nobody else has counted it meanwhile: so each second counts once, whatever dies.
A slot is held from the decision that gave it until its process was seen gone. Days and hours are UTC's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from edt_scheduler.store.chunks import chunks
from edt_scheduler.store.tables import allocations, jobs, rolled_up, slot_hours, slot_usage, user_days, users

DAY_SECONDS = 86_400
HOUR_SECONDS = 3_600
SLOT_HOURS, USER_DAYS = "slot_hours", "user_days"
_AT_ONCE = 5_000


def until(tx: Connection, what: str) -> int | None:
    """Everything before this is rolled up; None: nothing has been yet."""
    return tx.execute(select(rolled_up.c.until).where(rolled_up.c.what == what)).scalar_one_or_none()


def move(tx: Connection, what: str, before: int | None, after: int) -> bool:
    """From here on everything before ``after`` is rolled up. False: it is no longer ``before``, and nothing changed."""
    if until(tx, what) != before:
        return False
    if before is None:
        tx.execute(insert(rolled_up).values(what=what, until=after))
    else:
        tx.execute(update(rolled_up).where(rolled_up.c.what == what).values(until=after))
    return True


# ── slots by the hour ─────────────────────────────────────────────────────────────────────────────────────────────


def busy(tx: Connection, since: int) -> list[Row[Any]]:
    """The samples of the hour that begins then, as rows of ``slot_hours`` without their hour."""
    used = slot_usage.c
    query = (
        select(
            used.node_id,
            used.slot,
            func.count().label("samples"),
            func.avg(used.utilisation).label("utilisation"),
            func.max(used.utilisation).label("utilisation_most"),
            func.avg(used.memory_bytes).label("memory_bytes"),
            func.max(used.memory_bytes).label("memory_bytes_most"),
            func.avg(used.power_watts).label("power_watts"),
            func.avg(used.temperature_c).label("temperature_c"),
        )
        .where(used.time >= since, used.time < since + HOUR_SECONDS)
        .group_by(used.node_id, used.slot)
    )
    return list(tx.execute(query))


def put_hour(tx: Connection, hour: int, found: list[Row[Any]]) -> None:
    rows = [{**row._mapping, "hour": hour, "memory_bytes": _whole(row.memory_bytes)} for row in found]
    for start in range(0, len(rows), _AT_ONCE):
        tx.execute(insert(slot_hours), rows[start : start + _AT_ONCE])


def first_sample(tx: Connection, since: int | None) -> float | None:
    """When the first sample was taken, of those from ``since`` on."""
    query = select(func.min(slot_usage.c.time))
    found: float | None = tx.execute(query if since is None else query.where(slot_usage.c.time >= since)).scalar_one()
    return found


def hours(tx: Connection, node_id: int, since: float, before: float) -> list[Row[Any]]:
    """A node's hours that begin in a time, by slot and hour."""
    hour = slot_hours.c
    query = select(slot_hours).where(hour.node_id == node_id, hour.hour >= since, hour.hour < before)
    return list(tx.execute(query.order_by(hour.slot, hour.hour)))


def forget_hours(tx: Connection, before: float, most: int) -> int:
    """Forget hours of before then, the oldest first, ``most`` or a few more. Answers how many."""
    return _forget(tx, slot_hours, slot_hours.c.hour, before, most)


# ── users by the day ──────────────────────────────────────────────────────────────────────────────────────────────


def first_held(tx: Connection) -> float | None:
    """When the first slot was given."""
    found: float | None = tx.execute(select(func.min(allocations.c.decided_at))).scalar_one()
    return found


def held(tx: Connection, since: int, before: float, user_id: int | None = None) -> dict[int, dict[int, float]]:
    """Day to user to the seconds that slots were held, in one time. Reads what ended after ``since`` or has not yet."""
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
    # Two questions, since for one with OR SQLite reads all that was ever decided.
    for still_of_interest in (given.released_at > since, given.released_at.is_(None)):
        for user, decided_at, released_at in tx.execute(query.where(still_of_interest)):
            begin, end = max(decided_at, since), min(before, released_at if released_at is not None else before)
            for day, seconds in by_day(begin, end).items():
                found[day][user] += seconds
    return found


def by_day(begin: float, end: float) -> dict[int, float]:
    """The seconds of a time that lie in each day. Pure.

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
    rows = [{"user_id": user, "day": day, "slot_seconds": each} for user, each in sorted(seconds.items())]
    for start in range(0, len(rows), _AT_ONCE):
        tx.execute(insert(user_days), rows[start : start + _AT_ONCE])


def days(tx: Connection, user_id: int | None, before: tuple[int, int] | None, limit: int) -> list[Row[Any, Any, Any]]:
    """``day``, ``user_id`` and ``slot_seconds``, newest day first, within a day by user; from behind ``before`` on."""
    row = user_days.c
    query = select(row.day, row.user_id, row.slot_seconds).order_by(row.day.desc(), row.user_id.desc()).limit(limit)
    if user_id is not None:
        query = query.where(row.user_id == user_id)
    if before is not None:
        day, user = before
        query = query.where(row.day <= day, or_(row.day < day, row.user_id < user))
    return list(tx.execute(query))


def names(tx: Connection, user_ids: set[int]) -> dict[int, str]:
    """What these users are or were called."""
    query = select(users.c.id, users.c.name)
    return {row.id: row.name for chunk in chunks(user_ids) for row in tx.execute(query.where(users.c.id.in_(chunk)))}


def forget_days(tx: Connection, before: float, most: int) -> int:
    """Forget days of before then, the oldest first, ``most`` or a few more. Answers how many."""
    return _forget(tx, user_days, user_days.c.day, before, most)


def _forget(tx: Connection, table: Any, when: Any, before: float, most: int) -> int:
    old = when < before
    last = tx.execute(select(when).where(old).order_by(when).offset(most - 1).limit(1)).scalar_one_or_none()
    return int(tx.execute(delete(table).where(old if last is None else when <= last)).rowcount)


def _whole(value: Any) -> int | None:
    return None if value is None else round(value)
