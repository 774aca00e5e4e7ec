"""Use cases of how busy slots are: agents tell it, users look at it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from edt_scheduler.platform import Platform
from edt_scheduler.store import nodes
from edt_scheduler.store import usage as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import SlotTime, SlotTimePage, SlotUse, UseOverTime, UserView

LEAST_INTERVAL_SECONDS = 1.0


@retried(if_done=True)
def record_usage(platform: Platform, node: str, samples: Sequence[SlotUse]) -> None:
    """Take a node's sample of its slots, as of now. It is no heartbeat."""
    with platform.database.transaction(durable=False, urgent=True) as tx:
        row = nodes.get(tx, node)
        store.put(tx, row, samples, platform.clock())


def usage(platform: Platform, node: str, *, since: float, until: float, points: int) -> dict[str, list[UseOverTime]]:
    """How busy each slot was, in at most so many intervals, oldest first; a slot of which nothing is known is left
    out."""
    found: dict[str, list[UseOverTime]] = defaultdict(list)
    with platform.database.snapshot() as tx:
        row = nodes.get(tx, node)
        width = max(LEAST_INTERVAL_SECONDS, (until - since) / points)
        for each in store.series(tx, row.id, since, until, width):
            memory = int(each.memory_bytes) if each.memory_bytes is not None else None
            point = UseOverTime(each.slot, each.time, each.utilisation, memory, each.power_watts, each.temperature_c)
            found[each.slot].append(point)
    return dict(found)


def slot_time(
    platform: Platform, *, viewer: UserView, before: tuple[int, int] | None = None, limit: int
) -> SlotTimePage:
    """For how long users' jobs have held slots, by the day, newest first, today as far as it has come.

    Whoever is no admin sees only their own. ``before``: day and user of the last one already seen.
    """
    whose = None if viewer.is_admin else viewer.id
    with platform.database.snapshot() as tx:
        found = list(_newest_first(tx, platform.clock(), whose, before, limit + 1))
        names = store.names(tx, {user for _, user, _ in found})
    items = tuple(SlotTime(day, user, names[user], seconds) for day, user, seconds in found[:limit])
    more = (items[-1].day, items[-1].user_id) if len(found) > limit else None
    return SlotTimePage(items, more)


def _newest_first(
    tx: Connection, now: float, user_id: int | None, before: tuple[int, int] | None, limit: int
) -> Iterator[tuple[int, int, float]]:
    """Days that were not counted yet, then those that were."""
    counted = store.counted_until(tx) or 0
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
