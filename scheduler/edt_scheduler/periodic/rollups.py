"""What is counted of slots and users before its rows go."""

from __future__ import annotations

from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations, usage
from edt_scheduler.store.database import BATCH_ROWS, in_batches
from edt_scheduler.store.usage import DAY_SECONDS, HOUR_SECONDS, SLOT_HOURS, USER_DAYS

LATE_SECONDS = 600.0
"""Hours and days are counted when they have been over for so long: machines write rows by clocks of their own."""
DAYS_AT_ONCE = 31
USAGE_BATCH_SECONDS = 600.0
"""Samples of so long a time are forgotten in one transaction."""


def count_slot_hours(platform: Platform) -> int:
    """Put the samples of hours that are over into means by the hour. Answers how many hours of slots."""

    def count_one() -> int:
        end = _floor(platform.clock() - LATE_SECONDS, HOUR_SECONDS)
        with platform.database.snapshot() as tx:
            counted = usage.until(tx, SLOT_HOURS)
            first = usage.first_sample(tx, counted)
            hour = end if first is None else min(end, _floor(first, HOUR_SECONDS))
            if hour >= end:  # nothing was sampled until then
                return 0
            found = usage.busy(tx, hour)
        with platform.database.transaction() as tx:
            if not usage.move(tx, SLOT_HOURS, counted, hour + HOUR_SECONDS):
                return 0
            usage.put_hour(tx, hour, found)
        return len(found)

    return in_batches(count_one)


def count_user_days(platform: Platform) -> int:
    """Put the time that slots were held in days that are over into sums by user and day, DAYS_AT_ONCE at a time.
    Answers how many sums."""
    sums = 0

    def count_some() -> int:
        nonlocal sums
        end = _floor(platform.clock() - LATE_SECONDS, DAY_SECONDS)
        with platform.database.snapshot() as tx:
            counted = usage.until(tx, USER_DAYS)
            first = allocations.earliest(tx) if counted is None else float(counted)
            if first is None or first >= end:
                return 0
            begin = _floor(first, DAY_SECONDS)
            end = min(end, begin + DAYS_AT_ONCE * DAY_SECONDS)
            found = usage.held(tx, begin, end)
        with platform.database.transaction() as tx:
            if not usage.move(tx, USER_DAYS, counted, end):
                return 0  # another one counts, too
            for day in range(begin, end, DAY_SECONDS):
                usage.put_day(tx, day, found.get(day, {}))
        sums += sum(map(len, found.values()))
        return (end - begin) // DAY_SECONDS

    in_batches(count_some)
    return sums


def forget_usage(platform: Platform) -> int:
    """Forget samples that are older than EDT_USAGE_DAYS and are counted by the hour. Answers how many."""

    def forget_some() -> int:
        with platform.database.snapshot() as tx:
            counted = usage.until(tx, SLOT_HOURS) or 0
            before = min(counted, platform.clock() - platform.settings.usage_days * DAY_SECONDS)
            oldest = usage.first_sample(tx)
        if oldest is None or oldest >= before:
            return 0
        with platform.database.transaction() as tx:
            return usage.prune(tx, min(before, oldest + USAGE_BATCH_SECONDS))

    return in_batches(forget_some)


def forget_roll_ups(platform: Platform) -> int:
    """Forget what is older than EDT_USAGE_HOURS_DAYS and EDT_USAGE_USERS_DAYS. Answers how many rows."""

    def forget_some() -> int:
        done = 0
        for days, forget in (
            (platform.settings.usage_hours_days, usage.forget_hours),
            (platform.settings.usage_users_days, usage.forget_days),
        ):
            if days is not None:
                with platform.database.transaction() as tx:
                    done += forget(tx, platform.clock() - days * DAY_SECONDS, BATCH_ROWS)
        return done

    return in_batches(forget_some)


def _floor(seconds: float, unit: int) -> int:
    return int(seconds // unit) * unit
