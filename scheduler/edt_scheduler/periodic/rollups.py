"""Sums up how long users' jobs held slots, before the rows go, and deletes old samples and sums. Periodic tasks."""

from __future__ import annotations

from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations, usage
from edt_scheduler.store.database import in_batches
from edt_scheduler.store.queries import forget_until
from edt_scheduler.store.usage import DAY_SECONDS

LATE_SECONDS = 600.0
"""A day is counted this many seconds after its end, because machines write rows by their own clocks."""
DAYS_AT_ONCE = 31
"""The most days whose sums one transaction writes."""


def count_user_days(platform: Platform) -> int:
    """Sum up how long slots were held in each finished day, by user and day; DAYS_AT_ONCE days in one transaction.

    Returns:
        How many sums were written.
    """
    sums = 0

    def count_some() -> int:
        nonlocal sums
        end = _day(platform.clock() - LATE_SECONDS)
        with platform.database.snapshot() as tx:
            counted = usage.counted_until(tx)
            first = allocations.earliest(tx) if counted is None else float(counted)
            if first is None or first >= end:
                return 0
            begin = _day(first)
            end = min(end, begin + DAYS_AT_ONCE * DAY_SECONDS)
            found = usage.held(tx, begin, end)
        with platform.database.transaction() as tx:
            if not usage.move(tx, counted, end):
                return 0  # another process has counted these days
            for day in range(begin, end, DAY_SECONDS):
                usage.put_day(tx, day, found.get(day, {}))
        sums += sum(map(len, found.values()))
        return (end - begin) // DAY_SECONDS

    in_batches(count_some)
    return sums


def _day(seconds: float) -> int:
    """The beginning of the day that contains this time, both in seconds since the epoch."""
    return int(seconds // DAY_SECONDS) * DAY_SECONDS


def forget_usage(platform: Platform) -> int:
    """Delete samples that are older than EDT_USAGE_DAYS; return how many."""
    until = platform.clock() - platform.settings.usage_days * DAY_SECONDS
    return forget_until(platform.database, usage.SAMPLED_AT, until)


def forget_roll_ups(platform: Platform) -> int:
    """Delete sums that are older than EDT_USAGE_USERS_DAYS; return how many rows."""
    days = platform.settings.usage_users_days
    return forget_until(platform.database, usage.DAY, platform.clock() - days * DAY_SECONDS) if days is not None else 0
