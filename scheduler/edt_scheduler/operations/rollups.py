"""Roll-ups: what is counted of slots and users before its rows go. Room: scheduler, operations. Periodic tasks."""

from __future__ import annotations

from edt_scheduler.house import House
from edt_scheduler.operations.batches import BATCH_ROWS, in_batches
from edt_scheduler.store import rollups as store
from edt_scheduler.store import usage
from edt_scheduler.store.rollups import DAY_SECONDS, HOUR_SECONDS, SLOT_HOURS, USER_DAYS

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
    """Put the time that slots were held in days that are over into sums by user and day. Answers how many sums."""
    end = _floor(house.clock() - LATE_SECONDS, DAY_SECONDS)
    with house.database.snapshot() as tx:
        counted = store.until(tx, USER_DAYS)
        first = store.first_held(tx) if counted is None else float(counted)
        if first is None or first >= end:
            return 0
        begin = _floor(first, DAY_SECONDS)
        found = store.held(tx, begin, end)
    done = 0
    while begin < end:
        after = min(end, begin + DAYS_AT_ONCE * DAY_SECONDS)
        with house.database.transaction() as tx:
            if not store.move(tx, USER_DAYS, counted, after):
                return done  # another one counts, too
            for day in range(begin, after, DAY_SECONDS):
                store.put_day(tx, day, found.get(day, {}))
                done += len(found.get(day, {}))
        counted = begin = after
    return done


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


def _floor(seconds: float, unit: int) -> int:
    return int(seconds // unit) * unit
