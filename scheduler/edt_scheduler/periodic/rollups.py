"""Sums up how long users' jobs held slots, by day and by queue, and deletes what is old: samples, sums, records of
decisions and measured speeds. Periodic tasks.
"""

from __future__ import annotations

from collections import defaultdict

from edt_scheduler.model.queues import belongs_to, decayed
from edt_scheduler.platform import Platform
from edt_scheduler.store import allocations, decisions, pools, queues, speeds, usage
from edt_scheduler.store.database import in_batches
from edt_scheduler.store.queries import forget_until
from edt_scheduler.store.usage import DAY_SECONDS

LATE_SECONDS = 600.0
"""A day is counted this many seconds after its end, because machines write rows by their own clocks."""
USAGE_LATE_SECONDS = 30.0
"""Seconds are added to the usage of queues so much later, for the same reason."""
_HALF_LIVES = 20
_HOUR = 3600.0
DAYS_AT_ONCE = 31
"""The most days whose sums one transaction writes."""
DECISIONS_AT_ONCE = 500
"""The most records of decisions that one transaction deletes."""
SPEED_DAYS = 90.0
REQUEST_DAYS = 7.0


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


def count_queue_usage(platform: Platform) -> int:
    """Add what users' jobs have held since the last time to the decayed usage of their queues, each second once.

    Returns:
        How many sums of a queue and a user were added to.
    """
    half_life = platform.settings.usage_half_life_hours * _HOUR
    end = int(platform.clock() - USAGE_LATE_SECONDS)
    with platform.database.snapshot() as tx:
        counted = queues.counted_until(tx)
        first = allocations.earliest(tx) if counted is None else float(counted)
        if first is None or first >= end:
            return 0
        begin = max(first, end - _HALF_LIVES * half_life)  # what is older counts next to nothing
        held = queues.held(tx, begin, end)
        paths = {row.path for row in queues.every(tx)}
    found: dict[tuple[str, int], float] = defaultdict(float)
    for (queue, user), seconds in held.items():
        if seconds > 0:
            found[belongs_to(queue, paths), user] += decayed(seconds, (end - begin) / 2, half_life)
    with platform.database.transaction() as tx:
        if not queues.move(tx, counted, end):
            return 0  # another process has counted these seconds
        queues.add_usage(tx, found, half_life, float(end))
        queues.forget_usage(tx, half_life, float(end))
    return len(found)


def _day(seconds: float) -> int:
    """The beginning of the day that contains this time, both in seconds since the epoch."""
    return int(seconds // DAY_SECONDS) * DAY_SECONDS


def forget_usage(platform: Platform) -> int:
    """Delete samples that are older than EDT_USAGE_DAYS; return how many."""
    until = platform.clock() - platform.settings.usage_days * DAY_SECONDS
    return forget_until(platform.database, usage.SAMPLED_AT, until)


def forget_decisions(platform: Platform) -> int:
    """Delete records of decisions that are older than EDT_DECISIONS_HOURS, and the oldest of those that take more than
    EDT_DECISIONS_MEGABYTES; return how many.
    """
    settings = platform.settings
    gone = forget_until(platform.database, decisions.AT, platform.clock() - settings.decisions_hours * _HOUR)
    most = int(settings.decisions_megabytes * 1e6)

    def some() -> int:
        with platform.database.transaction(durable=False) as tx:
            return decisions.forget_beyond(tx, most, DECISIONS_AT_ONCE)

    return gone + in_batches(some)


def forget_speeds(platform: Platform) -> int:
    """Delete measured speeds of alike jobs that none of them has confirmed for SPEED_DAYS; return how many."""
    return forget_until(platform.database, speeds.AT, platform.clock() - SPEED_DAYS * DAY_SECONDS)


def forget_requests(platform: Platform) -> int:
    """Delete requests for nodes of pools that have been over for REQUEST_DAYS; return how many."""
    return forget_until(platform.database, pools.ENDED_AT, platform.clock() - REQUEST_DAYS * DAY_SECONDS)


def forget_roll_ups(platform: Platform) -> int:
    """Delete sums that are older than EDT_USAGE_USERS_DAYS; return how many rows."""
    days = platform.settings.usage_users_days
    return forget_until(platform.database, usage.DAY, platform.clock() - days * DAY_SECONDS) if days is not None else 0
