"""Roll-ups: what is counted of slots and users before its rows go. Room: scheduler, operations. Periodic tasks,
but for ``slot_time``, by which users look at it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from edt_scheduler.house import House
from edt_scheduler.operations.batches import BATCH_ROWS, in_batches
from edt_scheduler.store import rollups as store
from edt_scheduler.store import usage
from edt_scheduler.store.rollups import DAY_SECONDS, HOUR_SECONDS, SLOT_HOURS, USER_DAYS
from edt_scheduler.views import SlotTime, SlotTimePage, UserView

LATE_SECONDS = 600.0
"""Hours and days are counted when they have been over for so long: machines write rows by clocks of their own."""
DAYS_AT_ONCE = 31
USAGE_BATCH_SECONDS = 600.0
"""Samples of so long a time are forgotten in one transaction."""


def count_slot_hours(house: House) -> int:
    """Put the samples of hours that are over into means by the hour. Answers how many hours of slots."""

    def count_one() -> int:
        end = _floor(house.clock() - LATE_SECONDS, HOUR_SECONDS)
        with house.database.snapshot() as tx:
            counted = store.until(tx, SLOT_HOURS)
            first = store.first_sample(tx, counted)
            hour = end if first is None else min(end, _floor(first, HOUR_SECONDS))
            if hour >= end:  # nothing was sampled until then
                return 0
            found = store.busy(tx, hour)
        with house.database.transaction() as tx:
            if not store.move(tx, SLOT_HOURS, counted, hour + HOUR_SECONDS):
                return 0
            store.put_hour(tx, hour, found)
        return len(found)

    return in_batches(count_one)


def count_user_days(house: House) -> int:
    """Put the time that slots were held in days that are over into sums by user and day, DAYS_AT_ONCE at a time.
    Answers how many sums."""
    sums = 0

    def count_some() -> int:
        nonlocal sums
        end = _floor(house.clock() - LATE_SECONDS, DAY_SECONDS)
        with house.database.snapshot() as tx:
            counted = store.until(tx, USER_DAYS)
            first = store.first_held(tx) if counted is None else float(counted)
            if first is None or first >= end:
                return 0
            begin = _floor(first, DAY_SECONDS)
            end = min(end, begin + DAYS_AT_ONCE * DAY_SECONDS)
            found = store.held(tx, begin, end)
        with house.database.transaction() as tx:
            if not store.move(tx, USER_DAYS, counted, end):
                return 0  # another one counts, too
            for day in range(begin, end, DAY_SECONDS):
                store.put_day(tx, day, found.get(day, {}))
        sums += sum(map(len, found.values()))
        return (end - begin) // DAY_SECONDS

    in_batches(count_some)
    return sums


def forget_usage(house: House) -> int:
    """Forget samples that are older than EDT_USAGE_DAYS and are counted by the hour. Answers how many."""

    def forget_some() -> int:
        with house.database.snapshot() as tx:
            counted = store.until(tx, SLOT_HOURS) or 0
            before = min(counted, house.clock() - house.settings.usage_days * DAY_SECONDS)
            oldest = usage.oldest(tx)
        if oldest is None or oldest >= before:
            return 0
        with house.database.transaction() as tx:
            return usage.prune(tx, min(before, oldest + USAGE_BATCH_SECONDS))

    return in_batches(forget_some)


def forget_roll_ups(house: House) -> int:
    """Forget what is older than EDT_USAGE_HOURS_DAYS and EDT_USAGE_USERS_DAYS. Answers how many rows."""

    def forget_some() -> int:
        done = 0
        for days, forget in (
            (house.settings.usage_hours_days, store.forget_hours),
            (house.settings.usage_users_days, store.forget_days),
        ):
            if days is not None:
                with house.database.transaction() as tx:
                    done += forget(tx, house.clock() - days * DAY_SECONDS, BATCH_ROWS)
        return done

    return in_batches(forget_some)


def slot_time(house: House, *, viewer: UserView, before: tuple[int, int] | None = None, limit: int) -> SlotTimePage:
    """For how long users' jobs have held slots, by the day, newest first, today as far as it has come.

    Whoever is no admin sees only their own. ``before``: day and user of the last one already seen.
    """
    whose = None if viewer.is_admin else viewer.id
    with house.database.snapshot() as tx:
        found = list(_newest_first(tx, house.clock(), whose, before, limit + 1))
        names = store.names(tx, {user for _, user, _ in found})
    items = tuple(SlotTime(day, user, names[user], seconds) for day, user, seconds in found[:limit])
    more = (items[-1].day, items[-1].user_id) if len(found) > limit else None
    return SlotTimePage(items, more)


def _newest_first(
    tx: Connection, now: float, user_id: int | None, before: tuple[int, int] | None, limit: int
) -> Iterator[tuple[int, int, float]]:
    """Days that were not counted yet, then those that were."""
    counted = store.until(tx, USER_DAYS) or 0
    left = limit
    if before is None or before[0] >= counted:
        live = store.held(tx, counted, now, user_id)
        newest = sorted(((day, user) for day, users in live.items() for user in users), reverse=True)
        for day, user in newest:
            if (before is None or (day, user) < before) and left:
                left -= 1
                yield day, user, live[day][user]
    if left:
        for row in store.days(tx, user_id, before, left):
            yield row.day, row.user_id, row.slot_seconds


def _floor(seconds: float, unit: int) -> int:
    return int(seconds // unit) * unit
