"""Where gangs go: the slots on which waiting gangs start, and the slots that are kept for those that must wait. Pure.

A gang starts whole or waits, so its share is all its slots or none. Whether it gets a share is a question of places,
not only of numbers: a worker's slots lie on one node, the gang's nodes must reach each other, and neither a running
gang nor the least size of a running elastic job gives way, unless the gang's user is entitled to its slots and the
job's user is not. So the planner chooses the places of a waiting gang before it computes the shares. Jobs wait by
priority, then in submit order, and an elastic job that comes before a waiting gang gets its least size before the gang,
if its user is entitled to it. A gang for which its user is not entitled to enough slots has no place.

A gang whose slots are free starts on them. For any other gang that has a place, elastic jobs leave exactly these slots,
and nobody else takes those that are free already. A gang without a place gets no share, so that no slot is idle for it.

The first gang that has no place because other gangs run gets a reservation: the slots that will be enough for it as
soon as some of these gangs have ended. Elastic jobs that run may grow onto these slots until then, since they can give
them back; none begins there, since it would keep one. A gang that comes later may use them only if its time limit ends
it before.

The place of a gang that waits depends only on what cannot give way, and not on how many slots elastic jobs still hold.
So the next plan finds the same place, and the gang's slots add up until it starts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.placement import begin
from edt_scheduler.plan.shares import is_due
from edt_scheduler.plan.sizes import least_of
from edt_scheduler.plan.state import Job, Node, Phase

Slots = Mapping[str, int]
"""Node to a number of slots."""
Allowance = Callable[[Job, Sequence[Job]], tuple[int, int]]


@dataclass(frozen=True)
class Places:
    """What is decided for waiting jobs before the shares are computed."""

    free: Slots
    """Free slots of nodes that are up which nobody has been given, and which are kept for nobody."""
    starts: Mapping[str, Slots] = field(default_factory=dict)
    """Gangs that start now, and the free slots that they get."""
    awaited: Mapping[str, Slots] = field(default_factory=dict)
    """Gangs that wait for slots which are not all free yet, and the slots that are kept for them."""
    first: Mapping[str, Slots] = field(default_factory=dict)
    """Elastic jobs that start now and come before a waiting gang, and the slots that they start with."""
    room: Mapping[str, int] = field(default_factory=dict)
    """Gangs that get no share, and how many slots they could have together if elastic jobs shrank."""
    allowed: Mapping[str, int] = field(default_factory=dict)
    """Gangs whose user or queue is not entitled to enough slots for them, and to how many it is."""
    reserved_for: str | None = None
    """The gang that has a reservation."""
    reserved: Slots = field(default_factory=dict)
    beside: Slots = field(default_factory=dict)
    """Node with reserved slots to how many others elastic jobs that begin may have there."""
    movable: frozenset[str] = frozenset()
    """Elastic jobs whose last slots others are entitled to, so that gangs may get these, too."""
    reserved_until: float | None = None
    """When the reserved slots are expected to be free, in seconds since the epoch; None: that is not known."""

    def of(self, job: Job) -> Slots:
        """The slots that a waiting gang gets now or later; empty: it has no place."""
        return self.starts.get(job.id) or self.awaited.get(job.id) or {}

    def taken(self) -> Counter[str]:
        """Node to the slots that are given or kept."""
        total = Counter[str]()
        for slots in (*self.first.values(), *self.starts.values(), *self.awaited.values()):
            total.update(slots)
        return total


def places(
    jobs: Sequence[Job],
    kept: Mapping[str, Slots],
    nodes: Mapping[str, Node],
    reach: Callable[[Job], Reach],
    allowance: Allowance,
    secured: Callable[[], frozenset[str]],
    now: float,
) -> Places:
    """Choose the places of all waiting gangs.

    Args:
        jobs: all jobs that are not over, in submit order.
        kept: job to the slots that it keeps of those it holds.
        nodes: node id to node.
        reach: the nodes that a job can use.
        allowance: the most slots that a waiting gang may have now, whatever is free, beside gangs that were given some,
            and the most that it may have once other gangs have ended.
        secured: the jobs that get their least size, by what users are entitled to, limits and priorities.
        now: the time of the state, in seconds since the epoch.
    """
    up = {node.id: node for node in nodes.values() if node.health is Health.UP}
    queue = [job for job in jobs if job.phase is Phase.WAITING and is_due(job, now)] if _some_wait(jobs) else []
    queue.sort(key=lambda job: (-job.priority, job.submit, job.id))
    while queue and not queue[-1].gang:
        queue.pop()
    if not queue:
        return Places({name: node.free for name, node in up.items()})
    return _Search(jobs, kept, up, reach, secured(), now).places(queue, allowance)


def _some_wait(jobs: Sequence[Job]) -> bool:
    return any(job.gang and job.phase is Phase.WAITING for job in jobs)


def make_room(
    jobs: Sequence[Job],
    kept: Mapping[str, Slots],
    targets: Mapping[str, int],
    found: Places,
    nodes: Mapping[str, Node],
) -> dict[str, dict[str, int]]:
    """What each job keeps when elastic jobs have left the slots for which gangs wait.

    Jobs above their share leave first, the newest of them first. A job within its share may grow again elsewhere. A job
    keeps its least size, on its head node as far as it is there.

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
                spare = mine.get(node, 0) - _last(job, kept[job.id]).get(node, 0)
                above = spare if within_share else sum(mine.values()) - targets[job.id]
                gone = max(0, min(spare, above, lacking))
                if gone:
                    mine[node] -= gone
                    lacking -= gone
        for job in elastic:
            if lacking > 0 and job.id in found.movable and left[job.id].get(node, 0):
                lacking -= left[job.id][node]
                left[job.id] = {}
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
        self,
        jobs: Sequence[Job],
        kept: Mapping[str, Slots],
        up: Mapping[str, Node],
        reach: Callable[[Job], Reach],
        secured: frozenset[str],
        now: float,
    ) -> None:
        self._up = up
        self._secured = secured
        self._movable = frozenset(
            job.id for job in jobs if not job.gang and job.phase is Phase.RUNNING and job.id not in secured
        )
        self._last: Counter[str] = Counter()
        """Node to the last slots of jobs that can be taken from them."""
        self._reach = reach
        self._now = now
        self._ends = [(_end_of(job, now), job.submit, kept[job.id]) for job in jobs if job.gang and kept[job.id]]
        """When running gangs end, their places in the order of submission, and their slots."""
        self._smallest = sorted(up, key=lambda name: (up[name].slots, name))
        self._largest = sorted((name for name in up if not up[name].alone), key=lambda name: (-up[name].slots, name))
        self._free = FreeSlots(up.values(), {name: node.free for name, node in up.items()})
        self._room = {name: node.slots for name, node in up.items()}
        """Node to the slots that running jobs can leave, or have left."""
        self._without_elastic = dict(self._room)
        """The same, were there no elastic jobs."""
        for job in jobs:
            fixed = kept[job.id] if job.gang else _last(job, kept[job.id])
            for name, number in fixed.items():
                if name in self._room:
                    self._room[name] = max(0, self._room[name] - number)
                    if job.id in self._movable:
                        self._last[name] += number
                    if job.gang:
                        self._without_elastic[name] = max(0, self._without_elastic[name] - number)
        self._reserved: Counter[str] = Counter()
        self._reserved_until: float | None = None
        self._owed = 0
        """Slots of elastic jobs that come before the next gang and have a share, but no slot that is free now."""
        self._owed_in_containers = 0
        self._most: dict[tuple[int, bool, bool], tuple[int, int]] = {}
        """Unit of a gang, whether it has an image and whether it may use reserved slots, to the size that has no place
        now, and the most slots that have.

        Of hundreds of gangs that wait, most are like one that was looked at just before.
        """

    def places(self, queue: Sequence[Job], allowance: Allowance) -> Places:
        """Choose for these jobs, in their order."""
        starts: dict[str, Slots] = {}
        awaited: dict[str, Slots] = {}
        first: dict[str, Slots] = {}
        room: dict[str, int] = {}
        allowed: dict[str, int] = {}
        reserved_for: str | None = None
        granted: list[Job] = []
        for job in queue:
            if not job.gang:
                if begun := self._first_of(job):
                    first[job.id] = begun
                continue
            most, later = allowance(job, granted)
            if most < job.max:
                allowed[job.id] = most
                if reserved_for is None and later >= job.max and self._reserve(job):
                    reserved_for = job.id
                continue
            if found := self._fit_now(job):
                starts[job.id] = found
            elif (found := self._fit_later(job, room)) or (found := self._fit_instead(job)):
                awaited[job.id] = found
                room.pop(job.id, None)
            elif reserved_for is None and self._reserve(job):
                reserved_for = job.id
            if found:
                granted.append(job)
                self._ends.append(
                    (math.inf if job.time_limit is None else self._now + job.time_limit, job.submit, found)
                )
            for name, number in found.items():
                self._take(name, number)
                self._without_elastic[name] -= number
        until, kept = self._reserved_until, dict(self._reserved)
        beside = {name: max(0, self._room[name] - number) for name, number in kept.items()}
        free = dict(self._free.items())
        return Places(free, starts, awaited, first, room, allowed, reserved_for, kept, beside, self._movable, until)

    def _first_of(self, job: Job) -> Slots:
        """The slots on which an elastic job starts now, its least number of them; empty: it gets none now."""
        least = least_of(job)
        if job.id not in self._secured:
            return {}
        spare = sum(self._room.values()) - self._owed
        spare_in_containers = self._in_containers(self._room) - self._owed_in_containers
        if spare < least or (job.image is not None and spare_in_containers < least):
            return {}
        begun = begin(job, least, (least,), self._free, self._reach(job)) if self._free.total >= least else {}
        if not begun:
            self._most.clear()
            self._owed += least
            self._owed_in_containers += least if job.image is not None else 0
            return {}
        for name, number in begun.items():
            self._free.add(name, number)
            self._take(name, number)
        return begun

    def _fit_now(self, job: Job) -> dict[str, int]:
        """The free slots on which a gang starts; empty: not enough are free.

        They are on the fullest node that has enough, or else on the emptiest nodes.
        """
        room = self._room_of(job)
        if min(self._free.total, self._spare(room)) < job.max or self._no_place(job) is not None:
            return {}
        now = {name: min(free, room[name]) for name, free in self._free.items() if free}
        one_by_one = sorted(now, key=lambda name: (now[name], name))
        together = sorted((name for name in now if not self._up[name].alone), key=lambda name: (-now[name], name))
        return self._fit(job, now, one_by_one, together)[0]

    def _fit_later(self, job: Job, room: dict[str, int]) -> dict[str, int]:
        """The slots that elastic jobs leave to a gang; empty: it has no place, or others come first.

        ``room`` then gets the number of slots that it could have.
        """
        there = self._room_of(job)
        most = max(0, self._spare(there))
        if most >= job.max:
            known = self._no_place(job)
            if known is None:
                found, known = self._fit(job, there, self._smallest, self._largest)
                if found and job.id in self._secured:
                    return found
                self._most[self._kind(job)] = job.max, known
            most = known
        room[job.id] = most
        return {}

    def _fit_instead(self, job: Job) -> dict[str, int]:
        """The slots that a gang gets where jobs also give up their last slots, to which others are entitled; empty:
        others are not, or it has no place there either.
        """
        if job.id not in self._secured or not self._last:
            return {}
        there = Counter(self._room_of(job))
        there.update({name: number for name, number in self._last.items() if number})
        if self._spare(there) < job.max:
            return {}
        found, _ = self._fit(job, there, self._smallest, self._largest)
        for name, number in found.items():
            more = max(0, number - max(0, self._room[name]))
            self._last[name] -= more
            self._room[name] += more
        return found

    def _reserve(self, job: Job) -> bool:
        """Reserve the slots that are enough for a gang as soon as some running gangs have ended, those that end first
        before the others. Elastic jobs count as gone from there by then. False: it would not fit either when all gangs
        have ended.
        """
        room = Counter(self._without_elastic)
        for until, _, slots in sorted(self._ends, key=lambda each: each[:2]):
            room.update({name: number for name, number in slots.items() if name in self._up})
            if found := self._fit(job, room, self._smallest, self._largest)[0]:
                self._reserved = Counter(found)
                self._reserved_until = until if until < math.inf else None
                self._most.clear()
                return True
        return False

    def _room_of(self, job: Job) -> Slots:
        """Node to the slots that a gang may have there: not those that are reserved, unless it ends before."""
        if not self._reserved or self._may_backfill(job):
            return self._room
        return {name: max(0, number - self._reserved[name]) for name, number in self._room.items()}

    def _may_backfill(self, job: Job) -> bool:
        until, limit = self._reserved_until, job.time_limit
        return until is not None and limit is not None and self._now + limit <= until

    def _spare(self, room: Slots) -> int:
        return sum(room.values()) - self._owed

    def _in_containers(self, room: Slots) -> int:
        return sum(number for name, number in room.items() if self._up[name].containers)

    def _kind(self, job: Job) -> tuple[int, bool, bool]:
        return job.unit, job.image is not None, self._may_backfill(job)

    def _no_place(self, job: Job) -> int | None:
        """The most slots that a gang could have together, if it is known that it has no place now."""
        size, most = self._most.get(self._kind(job), (job.max + 1, 0))
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
        in_containers = self._in_containers(room) - self._owed_in_containers
        most = 0
        reach = self._reach(job)
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


def _last(job: Job, kept: Slots) -> Slots:
    """The slots that an elastic job gives up last: its least size, on its head node and then where it has most."""
    if not kept:
        return {}
    left = least_of(job)
    if left <= kept.get(job.head_node or "", 0):
        return {job.head_node or "": left}
    found: dict[str, int] = {}
    for name in sorted(kept, key=lambda name: (name == job.head_node, kept[name], name), reverse=True):
        found[name] = min(left, kept[name])
        left -= found[name]
    return found


def _end_of(gang: Job, now: float) -> float:
    """When a running gang ends at the latest, or is expected to end, in seconds since the epoch; infinite: unknown."""
    ends = [gang.ends_by] if gang.ends_by is not None else []
    seconds = {point.workers: point.seconds for point in gang.points}
    if gang.steps_left is not None and gang.held in seconds:
        ends.append(now + gang.steps_left * seconds[gang.held])
    return min(ends, default=math.inf)
