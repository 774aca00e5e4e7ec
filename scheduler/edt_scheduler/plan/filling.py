"""Gives workers out one rung after the other, always where the next one is worth most. Pure.

First every job gets its smallest size, in the order of ``first``; jobs of a queue that serves one after the other get
their largest size at once. Then jobs with a deadline get what it takes to meet it. Then one heap holds for each job
what a worker more is worth to it, and the most valuable rung is given, until nothing is left. What the last one was
worth is the price of a worker: every job's own next rung is compared to it when somebody asks why it has no more.

Workers are taken from pools: a job takes each of its workers from all pools that it names, such as all workers, those
on nodes that start containers, and the share of its queue. So it gets as many as the emptiest of them holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from edt_scheduler.plan.worth import Offer, envelope

Id = TypeVar("Id", bound=Hashable)


@dataclass(frozen=True)
class Bidder(Generic[Id]):
    """A job among those that share some workers."""

    id: Id
    offer: Offer
    """What its sizes are worth to it."""
    pools: tuple[str, ...]
    """The pools that it takes its workers from."""
    first: tuple[Any, ...] = ()
    """When it gets its smallest size: jobs get theirs in this order."""
    order: tuple[Any, ...] = ()
    """Breaks ties between rungs of the same worth: the smallest comes first."""
    held: int = 0
    band: tuple[int, ...] = ()
    """Jobs of a lower band get all that they can use before others get more than their smallest size."""
    whole: bool = False
    """Whether it gets all that it can use at once, in the order of ``first``."""
    floor: tuple[float, int] | None = None
    """Its deadline, in seconds since the epoch, and the workers with which it is met."""


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
    return _Filling(bidders, pools, already or {}).done()


class _Filling(Generic[Id]):
    """What is left while workers are given out."""

    def __init__(self, bidders: Sequence[Bidder[Id]], pools: Mapping[str, int], already: Mapping[Id, int]) -> None:
        self._found: Filled[Id] = Filled(dict(already), dict(pools))
        self._sizes, self._left = self._found.sizes, self._found.left
        self._bidders = bidders
        self._pools = {each.id: [pool for pool in each.pools if pool in self._left] for each in bidders}
        self._slopes: dict[Id, Sequence[tuple[int, float]]] = {}

    def done(self) -> Filled[Id]:
        started = self._start()
        for each in sorted((each for each in started if each.floor), key=lambda each: (each.floor, each.order)):
            _, size = each.floor or (0.0, 0)
            if self._sizes[each.id] < size <= self._sizes[each.id] + self._room(each.id):
                self._give(each.id, size)
        self._climb(started)
        for each in sorted(started, key=lambda each: (each.held - self._sizes[each.id], each.order)):
            kept = each.held - self._sizes[each.id]
            if 0 < kept <= self._room(each.id):
                self._give(each.id, each.held)
        return self._found

    def _room(self, name: Id) -> int:
        return min([self._left[pool] for pool in self._pools[name]])

    def _give(self, name: Id, size: int) -> None:
        more = size - self._sizes.get(name, 0)
        for pool in self._pools[name]:
            self._left[pool] -= more
        self._sizes[name] = size

    def _start(self) -> list[Bidder[Id]]:
        """Give every job its smallest size; the jobs that have one."""
        started = []
        for each in sorted(self._bidders, key=lambda each: (each.first, each.order)):
            rungs = each.offer.rungs
            if each.id not in self._sizes and rungs and rungs[0][0] <= (room := self._room(each.id)):
                size = max(size for size, _ in rungs if size <= room) if each.whole else rungs[0][0]
                self._give(each.id, size)
            if each.id in self._sizes:
                started.append(each)
        return started

    def _climb(self, started: Sequence[Bidder[Id]]) -> None:
        """Give the most valuable rung, one after the other."""
        heap = []
        for each in started:
            self._slopes[each.id] = corners = self._corners(each)
            if len(corners) > 1:
                heap.append((each.band, -_slope(corners, 0, each), each.order, each.id, 0, each))
        heapq.heapify(heap)
        found = self._found
        while heap:
            band, gain, order, name, at, bidder = heap[0]
            corners = self._slopes[name]
            now, room = self._sizes[name], self._room(name)
            size = corners[at + 1][0]
            if size <= now + room:
                self._give(name, size)
                found.price = -gain
                at += 1
            else:
                found.wanted.setdefault(name, -gain)
                corners = self._slopes[name] = envelope(bidder.offer.rungs, now, now + room) if room else ()
                at = 0
            if at + 1 < len(corners):
                heapq.heapreplace(heap, (band, -_slope(corners, at, bidder), order, name, at, bidder))
            else:
                heapq.heappop(heap)

    def _corners(self, bidder: Bidder[Id]) -> Sequence[tuple[int, float]]:
        """The corners from the size that a job has."""
        offer, size = bidder.offer, self._sizes[bidder.id]
        if offer.corners and offer.corners[0][0] == size:
            return offer.corners
        return envelope(offer.rungs, size)


def _slope(corners: Sequence[tuple[int, float]], at: int, bidder: Bidder[Id]) -> float:
    """What a worker more is worth at a corner, if the next one is given."""
    (size, worth), (then, more) = corners[at], corners[at + 1]
    return (more - worth) / (then - size) * bidder.offer.weight
