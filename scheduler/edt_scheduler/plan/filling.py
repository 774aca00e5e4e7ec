"""Gives workers out one rung after the other, always where the next one is worth most. Pure.

First every job gets its smallest size, in the order of ``first``. Then one heap holds for each job what a worker more
is worth to it, and the most valuable rung is given, until nothing is left. What the last one was worth is the price of
a worker: the number to which every job's own next rung is compared when somebody asks why it has no more.

Workers are taken from pools: a job takes each of its workers from all pools that it names, such as all workers, those
on nodes that start containers, and the share of its queue. So it gets as many as the emptiest of them holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from edt_scheduler.plan.worth import Rungs, envelope

Id = TypeVar("Id", bound=Hashable)


@dataclass(frozen=True)
class Bidder(Generic[Id]):
    """A job among those that share some workers."""

    id: Id
    rungs: Rungs
    """What its sizes are worth, smallest first (``worth.offers``)."""
    pools: tuple[str, ...]
    """The pools that it takes its workers from."""
    first: tuple[Any, ...] = ()
    """When it gets its smallest size: jobs get theirs in this order."""
    order: tuple[Any, ...] = ()
    """Breaks ties between rungs of the same worth: the smallest comes first."""
    held: int = 0


@dataclass
class Filled(Generic[Id]):
    """What was given out."""

    sizes: dict[Id, int]
    """Job to its workers, without those that get none."""
    left: dict[str, int]
    """What is left in each pool."""
    price: float = 0.0
    """What the last rung was worth, for each of its workers; 0: nobody got a second one."""
    wanted: dict[Id, float] = field(default_factory=dict)
    """What the next rung would be worth, for each of its workers, to each job that could have used more."""


def fill(
    bidders: Sequence[Bidder[Id]], pools: Mapping[str, int], already: Mapping[Id, int] | None = None
) -> Filled[Id]:
    """Share workers among jobs.

    A rung that does not fit is replaced by the best of those that do. Workers that nobody's rung takes stay with the
    jobs that hold them.

    Args:
        bidders: the jobs.
        pools: pool to the workers in it. A pool that is not named here has no limit.
        already: job to the workers that it was given before, which it keeps; the pools hold what is left.
    """
    by_id = {each.id: each for each in bidders}
    found: Filled[Id] = Filled(dict(already or {}), dict(pools))

    def room(bidder: Bidder[Id]) -> int:
        return min(found.left[pool] for pool in bidder.pools if pool in found.left)

    def give(bidder: Bidder[Id], size: int) -> None:
        for pool in bidder.pools:
            if pool in found.left:
                found.left[pool] -= size - found.sizes.get(bidder.id, 0)
        found.sizes[bidder.id] = size

    started = []
    for each in sorted(bidders, key=lambda each: (each.first, each.order)):
        if each.id not in found.sizes and each.rungs and each.rungs[0][0] <= room(each):
            give(each, each.rungs[0][0])
        if each.id in found.sizes:
            started.append(each)
    corners = {each.id: envelope(rung for rung in each.rungs if rung[0] >= found.sizes[each.id]) for each in started}
    heap = [item for each in started if (item := _next(each, corners[each.id], 0))]
    heapq.heapify(heap)
    while heap:
        gain, _, name, at = heapq.heappop(heap)
        bidder, size = by_id[name], corners[name][at][0]
        now, most = found.sizes[name], found.sizes[name] + room(bidder)
        if size <= most:
            give(bidder, size)
            found.price = -gain
        else:
            found.wanted.setdefault(name, -gain)
            corners[name], at = envelope(bidder.rungs, now, most), 0
        if item := _next(bidder, corners[name], at):
            heapq.heappush(heap, item)
    for each in sorted(started, key=lambda each: (each.held - found.sizes[each.id], each.order)):
        kept = each.held - found.sizes[each.id]
        if 0 < kept <= room(each):
            give(each, each.held)
    return found


def _next(
    bidder: Bidder[Id], corners: Sequence[tuple[int, float]], at: int
) -> tuple[float, tuple[Any, ...], Id, int] | None:
    """The rung after corner ``at``, as the heap holds it; None: that was the last one."""
    if at + 1 >= len(corners):
        return None
    (size, worth), (then, more) = corners[at], corners[at + 1]
    return -(more - worth) / (then - size), bidder.order, bidder.id, at + 1
