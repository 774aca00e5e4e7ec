"""Use cases of how busy slots are: agents tell it, users look at it. Room: scheduler, operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from edt_scheduler.errors import NoSuchNode
from edt_scheduler.house import House
from edt_scheduler.store import nodes
from edt_scheduler.store import usage as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import SlotUse, UseOverTime

LEAST_INTERVAL_SECONDS = 1.0


@retried(if_done=True)
def record_usage(house: House, node: str, samples: Sequence[SlotUse]) -> None:
    """Take a node's sample of its slots, as of now. It is no heartbeat."""
    with house.database.transaction(durable=False, urgent=True) as tx:
        row = nodes.find(tx, node)
        if row is None:
            raise NoSuchNode(node)
        store.put(tx, row, samples, house.clock())


def usage(house: House, node: str, *, since: float, until: float, points: int) -> dict[str, list[UseOverTime]]:
    """How busy each slot was, in at most so many intervals, oldest first; a slot of which nothing is known is left
    out."""
    found: dict[str, list[UseOverTime]] = defaultdict(list)
    with house.database.snapshot() as tx:
        row = nodes.find(tx, node)
        if row is None:
            raise NoSuchNode(node)
        width = max(LEAST_INTERVAL_SECONDS, (until - since) / points)
        for each in store.series(tx, row.id, since, until, width):
            memory = int(each.memory_bytes) if each.memory_bytes is not None else None
            point = UseOverTime(each.slot, each.time, each.utilisation, memory, each.power_watts, each.temperature_c)
            found[each.slot].append(point)
    return dict(found)
