"""Where gangs go: the slots on which waiting gangs start, and the slots that are kept for those that must wait. Pure.

A gang starts whole or waits, so its share is all its slots or none. Whether it gets a share is a question of places,
not only of numbers: a worker's slots lie on one node, the gang's nodes must reach each other, and neither a running
gang nor the last slot of a running elastic job gives way. So the planner chooses the places of a waiting gang before it
computes the shares. Jobs wait in submit order, and an elastic job that was submitted before a waiting gang gets its
first slot before the gang.

A gang whose slots are free starts on them. For any other gang that has a place, elastic jobs leave exactly these slots,
and nobody else takes those that are free already. A gang without a place gets no share, so that no slot is idle for it.

The place of a gang that waits depends only on what cannot give way, and not on how many slots elastic jobs still hold.
So the next plan finds the same place, and the gang's slots add up until it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.placement import begin
from edt_scheduler.plan.shares import is_due
from edt_scheduler.plan.state import Job, Node, Phase

Slots = Mapping[str, int]
"""Node to a number of slots."""


@dataclass(frozen=True)
class Places:
    """What is decided for waiting jobs before the shares are computed."""

    free: Slots
    """Free slots of nodes that are up which nobody has been given, and which are kept for nobody."""
    starts: Mapping[str, Slots] = field(default_factory=dict)
    """Gangs that start now, and the free slots that they get."""
    awaited: Mapping[str, Slots] = field(default_factory=dict)
    """Gangs that wait for slots which are not all free yet, and the slots that are kept for them."""
    first: Mapping[str, str] = field(default_factory=dict)
    """Elastic jobs that start now and were submitted before a waiting gang, and the node of their first slot."""
    room: Mapping[str, int] = field(default_factory=dict)
    """Gangs that get no share, and how many slots they could have together if elastic jobs shrank."""

    def of(self, job: Job) -> Slots:
        """The slots that a waiting gang gets now or later; empty: it has no place."""
        return self.starts.get(job.id) or self.awaited.get(job.id) or {}

    def taken(self) -> Counter[str]:
        """Node to the slots that are given or kept."""
        total = Counter(self.first.values())
        for slots in (*self.starts.values(), *self.awaited.values()):
            total.update(slots)
        return total


def places(
    jobs: Sequence[Job], kept: Mapping[str, Slots], nodes: Mapping[str, Node], reach: Mapping[str, Reach], now: float
) -> Places:
    """Choose the places of all waiting gangs.

    Args:
        jobs: all jobs that are not over, in submit order.
        kept: job to the slots that it keeps of those it holds.
        nodes: node id to node.
        reach: job to the nodes that it can use.
        now: the time of the state, in seconds since the epoch.
    """
    up = {node.id: node for node in nodes.values() if node.health is Health.UP}
    queue = [job for job in jobs if job.phase is Phase.WAITING and is_due(job, now)]
    while queue and not queue[-1].gang:
        queue.pop()
    if not queue:
        return Places({name: node.free for name, node in up.items()})
    return _Search(jobs, kept, up, reach).places(queue)


def make_room(
    jobs: Sequence[Job],
    kept: Mapping[str, Slots],
    targets: Mapping[str, int],
    found: Places,
    nodes: Mapping[str, Node],
) -> dict[str, dict[str, int]]:
    """What each job keeps when elastic jobs have left the slots for which gangs wait.

    Jobs above their share leave first, the newest of them first. A job within its share may grow again elsewhere. A job
    keeps one slot on its head node.

    Args:
        jobs: all jobs that are not over, in submit order.
        kept: job to the slots that it would keep otherwise.
        targets: job to its share.
        found: the places of the gangs.
        nodes: node id to node.
    """
    left = {name: dict(slots) for name, slots in kept.items()}
    if not found.awaited:
        return left
    taken = found.taken()
    elastic = [job for job in reversed(jobs) if not job.gang]
    for node in sorted({name for slots in found.awaited.values() for name in slots}):
        lacking = taken[node] - nodes[node].slots + sum(slots.get(node, 0) for slots in left.values())
        for within_share in (False, True):
            for job in elastic:
                mine = left[job.id]
                spare = mine.get(node, 0) - (1 if node == job.head_node else 0)
                above = spare if within_share else sum(mine.values()) - targets[job.id]
                gone = max(0, min(spare, above, lacking))
                if gone:
                    mine[node] -= gone
                    lacking -= gone
    return {name: {node: number for node, number in slots.items() if number} for name, slots in left.items()}


def whole_cluster(nodes: Mapping[str, Node], unit: int, *, in_containers: bool) -> tuple[int, int]:
    """How many slots nodes that are up have, and how many of them one gang could have if nothing else ran.

    Args:
        nodes: node id to node.
        unit: slots of a worker of the gang.
        in_containers: whether only nodes that start containers count.
    """
    up = [node for node in nodes.values() if node.health is Health.UP and (node.containers or not in_containers)]
    together = sum(node.slots // unit * unit for node in up if not node.alone)
    alone = [node.slots // unit * unit for node in up if node.alone]
    return sum(node.slots for node in up), max([together, *alone])


class _Search:
    """What is left for waiting jobs, while they are looked at one by one."""

    def __init__(
        self, jobs: Sequence[Job], kept: Mapping[str, Slots], up: Mapping[str, Node], reach: Mapping[str, Reach]
    ) -> None:
        self._up = up
        self._reach = reach
        self._smallest = sorted(up, key=lambda name: (up[name].slots, name))
        self._largest = sorted((name for name in up if not up[name].alone), key=lambda name: (-up[name].slots, name))
        self._free = FreeSlots(up.values(), {name: node.free for name, node in up.items()})
        self._room = {name: node.slots for name, node in up.items()}
        """Node to the slots that running jobs can leave, or have left."""
        for job in jobs:
            fixed = kept[job.id] if job.gang else {job.head_node: 1} if kept[job.id] else {}
            for name, number in fixed.items():
                if name in self._room:
                    self._room[name] = max(0, self._room[name] - number)
        self._total = sum(self._room.values())
        self._room_in_containers = sum(self._room[name] for name in up if up[name].containers)
        self._owed = 0
        """Elastic jobs that come before the next gang and have a share, but no slot that is free now."""
        self._owed_in_containers = 0
        self._most: dict[tuple[int, bool], tuple[int, int]] = {}
        """Unit of a gang and whether it has an image, to the size that has no place now, and the most slots that have.

        Of hundreds of gangs that wait, most are like one that was looked at just before.
        """

    def places(self, queue: Sequence[Job]) -> Places:
        """Choose for these jobs, which are in submit order."""
        starts: dict[str, Slots] = {}
        awaited: dict[str, Slots] = {}
        first: dict[str, str] = {}
        room: dict[str, int] = {}
        for job in queue:
            if not job.gang:
                node = self._first_of(job)
                if node is not None:
                    first[job.id] = node
                continue
            found = self._fit_now(job)
            if found:
                starts[job.id] = found
            elif found := self._fit_later(job, room):
                awaited[job.id] = found
            for name, number in found.items():
                self._take(name, number)
        return Places(dict(self._free.items()), starts, awaited, first, room)

    def _spare(self) -> int:
        return self._total - self._owed

    def _spare_in_containers(self) -> int:
        return self._room_in_containers - self._owed_in_containers

    def _first_of(self, job: Job) -> str | None:
        """The node on which an elastic job starts now; None: it gets no slot now."""
        if self._spare() < 1 or (job.image is not None and self._spare_in_containers() < 1):
            return None
        begun = begin(job, 1, (1,), self._free, self._reach[job.id]) if self._free.total else {}
        if not begun:
            self._most.clear()
            self._owed += 1
            self._owed_in_containers += job.image is not None
            return None
        (node,) = begun
        self._free.add(node, 1)
        self._take(node, 1)
        return node

    def _fit_now(self, job: Job) -> dict[str, int]:
        """The free slots on which a gang starts; empty: not enough are free.

        They are on the fullest node that has enough, or else on the emptiest nodes.
        """
        if min(self._free.total, self._spare()) < job.max or self._no_place(job) is not None:
            return {}
        now = {name: min(free, self._room[name]) for name, free in self._free.items() if free}
        one_by_one = sorted(now, key=lambda name: (now[name], name))
        together = sorted((name for name in now if not self._up[name].alone), key=lambda name: (-now[name], name))
        return self._fit(job, now, one_by_one, together)[0]

    def _fit_later(self, job: Job, room: dict[str, int]) -> dict[str, int]:
        """The slots that elastic jobs leave to a gang; empty: it has no place.

        ``room`` then gets the number of slots that it could have.
        """
        most = max(0, self._spare())
        if most >= job.max:
            known = self._no_place(job)
            if known is None:
                found, known = self._fit(job, self._room, self._smallest, self._largest)
                if found:
                    return found
                self._most[job.unit, job.image is not None] = job.max, known
            most = known
        room[job.id] = most
        return {}

    def _no_place(self, job: Job) -> int | None:
        """The most slots that a gang could have together, if it is known that it has no place now."""
        size, most = self._most.get((job.unit, job.image is not None), (job.max + 1, 0))
        return most if size <= job.max else None

    def _fit(
        self, job: Job, room: Slots, one_by_one: Sequence[str], together: Sequence[str]
    ) -> tuple[dict[str, int], int]:
        """The gang's slots in ``room``, on one node if that is possible, and how many slots it could have there.

        Args:
            job: the gang.
            room: node to slots that it may have.
            one_by_one: nodes in the order in which each is tried by itself.
            together: nodes that reach each other, in the order in which they are filled.

        Returns:
            Node to slots, empty if not all of them fit; and the most slots that fit.
        """
        in_containers = self._spare_in_containers()
        most = 0
        reach = self._reach[job.id]
        for name in one_by_one:
            if reach.may_begin_on(self._up[name]):
                there = min(room[name], in_containers) if self._up[name].containers else room[name]
                most = max(most, there // job.unit * job.unit)
                if most >= job.max:
                    return {name: job.max}, job.max
        found: dict[str, int] = {}
        left = job.max
        for name in together:
            if not reach.may_begin_on(self._up[name]):
                continue
            there = min(left, room[name], in_containers if self._up[name].containers else left)
            number = max(0, there) // job.unit * job.unit
            if number:
                found[name] = number
                left -= number
                in_containers -= number if self._up[name].containers else 0
            if not left:
                return found, job.max
        return {}, max(most, job.max - left)

    def _take(self, node: str, number: int) -> None:
        """Give slots of a node to a job, or keep them for it."""
        self._most.clear()
        gone = min(number, self._free[node])
        self._free.add(node, -gone)
        self._room[node] -= number
        self._total -= number
        self._room_in_containers -= number if self._up[node].containers else 0
