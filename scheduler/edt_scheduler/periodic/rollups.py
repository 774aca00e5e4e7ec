"""What is counted of users before its rows go, and for how long samples and sums are kept."""

from __future__ import annotations

from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations, usage
from edt_scheduler.store.database import in_batches
from edt_scheduler.store.queries import forget_until
from edt_scheduler.store.usage import DAY_SECONDS

LATE_SECONDS = 600.0
"""Days are counted when they have been over for so long: machines write rows by clocks of their own."""
DAYS_AT_ONCE = 31


def count_user_days(platform: Platform) -> int:
    """Put the time that slots were held in days that are over into sums by user and day, DAYS_AT_ONCE at a time.
    Answers how many sums."""
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
                return 0  # another one counts, too
            for day in range(begin, end, DAY_SECONDS):
                usage.put_day(tx, day, found.get(day, {}))
        sums += sum(map(len, found.values()))
        return (end - begin) // DAY_SECONDS

    in_batches(count_some)
    return sums


def _day(seconds: float) -> int:
    """The beginning of the day of this instant."""
    return int(seconds // DAY_SECONDS) * DAY_SECONDS


def forget_usage(platform: Platform) -> int:
    """Forget samples that are older than EDT_USAGE_DAYS. Answers how many."""
    until = platform.clock() - platform.settings.usage_days * DAY_SECONDS
    return forget_until(platform.database, usage.SAMPLED_AT, until)


def forget_roll_ups(platform: Platform) -> int:
    """Forget what is older than EDT_USAGE_USERS_DAYS. Answers how many rows."""
    days = platform.settings.usage_users_days
    return forget_until(platform.database, usage.DAY, platform.clock() - days * DAY_SECONDS) if days is not None else 0
