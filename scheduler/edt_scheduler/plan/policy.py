"""The policy: it computes every job's share, then decides what can be done about the shares now. Pure.

A slot that is being vacated is not free. The job that will get this slot waits until the old process was seen gone. So
each plan takes back at once what a job holds above its share, and gives out only free slots. Jobs whose image needs a
node that starts containers get slots first, since they can use no other node. Then come jobs that lie on more nodes
than they need, jobs that start, in submit order, and running jobs, the smallest first.

Shares count all slots alike, but some jobs cannot use some slots, for example because the job's engines cannot reach a
node. A slot that no job below its share can use is not taken back. While such a slot is free, the plan gives it to a
running job beyond that job's share.

What a job holds on a node that is being drained it keeps until an engine of it elsewhere has joined its training.

Where gangs start, and which slots are kept for them, is decided first (gangs.py). Elastic jobs share what is left.

Slots of different kinds are planned one after the other, each with the jobs that use them (devices.py).
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from edt_scheduler.model.states import Health
from edt_scheduler.plan import asking, devices, naming
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.gangs import Places, make_room, places
from edt_scheduler.plan.placement import OwnNodes, begin, give_back, head_node_of, on_fewer, reach_of, take
from edt_scheduler.plan.reasons import Situation, change, explain
from edt_scheduler.plan.shares import Market, is_due
from edt_scheduler.plan.sizes import least_of, sizes_of
from edt_scheduler.plan.standing import afterwards, as_shared, capped, emptied, kept_of, with_head_node
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State

Slots = Mapping[str, int]
"""Node to a number of slots."""


def plan(state: State) -> Plan:
    """Decide what every job should hold now.

    Args:
        state: nodes and jobs at one instant.

    Returns:
        For each job of the state its slots, its action if it has one, its head node and its explanation.
    """
    with _without_collector():
        return naming.named(state, asking.with_asks(state, _decided(state), _decided))


def _decided(state: State) -> Plan:
    return devices.by_kind(state, lambda part: _Planning(part).plan())


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without the collector of cycles: a plan makes none, and one collection can take as long as a plan."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Planning:
    """A plan for nodes of one kind, and the jobs that use them, while it is made."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._now = state.now
        self._nodes = {node.id: node for node in state.nodes}
        self._up = [node for node in state.nodes if node.health is Health.UP]
        self._plain = not any(node.alone or node.fixed for node in state.nodes)
        self._own = OwnNodes(state.nodes)
        self._asked = sorted(state.jobs, key=lambda job: (job.submit, job.id))
        self._kept: dict[str, Slots] = {}
        self._until_joined: dict[str, Slots] = {}
        """Job to what it keeps until an engine elsewhere has joined."""
        self._alloc: dict[str, Slots] = {}
        self._reaches: dict[str, Reach] = {}
        self._beside: dict[str, int] = {}
        """Node with reserved slots to how many others jobs that begin may have there."""

    def plan(self) -> Plan:
        nodes, now = self._nodes, self._now
        for job in self._asked:
            self._kept[job.id], until_joined = kept_of(job, nodes)
            if until_joined:
                self._until_joined[job.id] = until_joined
        jobs = [
            with_head_node(capped(job, now), self._kept[job.id], self._until_joined.get(job.id)) for job in self._asked
        ]
        market = Market(
            [as_shared(job, self._kept[job.id], job.id in self._until_joined) for job in jobs], nodes, self._state
        )
        found = places(jobs, self._kept, nodes, self._reach, market.allowance, market.secured, now)
        gangs = {job.id: self._kept[job.id] or found.of(job) for job in jobs if job.gang}
        self._beside = dict(found.beside)
        closed = bool(self._up) and all(self._beside.get(node.id) == 0 for node in self._up)
        shared = market.shares(gangs, found.first if closed else None)
        targets = shared.of
        self._take_back(jobs, targets, market, found)
        free = FreeSlots(self._up, found.free)
        for name, slots in found.first.items():
            for node, number in slots.items() if not targets[name] else ():
                free.add(node, number)
        self._give(jobs, targets, found, free)
        self._give_rest(jobs, targets, market, free)
        for job in jobs:  # until somebody has left slots for it, it stays
            if job.id in self._until_joined and not self._alloc[job.id]:
                self._until_joined.pop(job.id)
                self._alloc[job.id] = emptied(job, nodes) if targets[job.id] else {}
        head_nodes = {job.id: self._head_node(job, found) for job in jobs if self._alloc[job.id]}
        short = tuple(job for job in jobs if targets[job.id] > job.held)
        situation = Situation(
            self._state, nodes, targets, self._alloc, self._until_joined, found, shared, market, short
        )
        actions = tuple(
            action for job in self._asked if (action := change(job, head_nodes.get(job.id), situation)) is not None
        )
        left = FreeSlots(self._up, self._left())
        then = [afterwards(job, self._alloc[job.id]) for job in jobs]
        explained = explain(then, situation, left, self._reach_then)
        return Plan(self._alloc, actions, head_nodes, explained, self._until_joined)

    def _take_back(self, jobs: Sequence[Job], targets: Mapping[str, int], market: Market, found: Places) -> None:
        """Take back what jobs hold above their shares, or where gangs and jobs with an image need it."""
        nodes, kept = self._nodes, self._kept
        without = [job for job in jobs if not job.gang and kept[job.id] and not targets[job.id]]
        if without:
            wanted = self._wanted(jobs, {**kept, **found.first}, targets)
            in_gangs = {name for slots in found.awaited.values() for name in slots}
            in_queues = self._room_in_queues(jobs, targets, market)
            for job in without:  # unless nobody could use what it holds
                is_full = any(in_queues[queue] < 0 for queue in market.limits(job))
                if is_full or any(name in in_gangs or wanted(nodes[name]) for name in kept[job.id]):
                    kept[job.id] = {}
        lacking = sum(_lacking(job, targets[job.id], self._now) for job in jobs if job.id not in found.first)
        cleared: set[str] = set()
        if lacking or found.awaited:
            before = {name: sum(slots.values()) for name, slots in kept.items()}
            room = make_room(jobs, kept, targets, found, nodes)
            self._kept = kept = _clear(jobs, room, lacking, found.taken(), nodes)
            cleared = {name for name, slots in kept.items() if sum(slots.values()) < before[name]}
        self._cleared = cleared
        wants: Callable[[Node], bool] | None = None
        in_queues = self._room_in_queues(jobs, targets, market)
        for job in jobs:
            stays = kept[job.id]
            above = self._above(job, stays, targets[job.id], market)
            if above > 0:
                if wants is None:
                    wants = self._wanted(jobs, {**kept, **found.first}, targets)
                is_full = any(in_queues[queue] < 0 for queue in market.limits(job))
                stays = _shrunk(job, stays, above, _anywhere if is_full else wants, nodes)
            self._alloc[job.id] = stays

    def _above(self, job: Job, stays: Slots, target: int, market: Market) -> int:
        """How many slots a running job holds above its share. Of shared slots it holds so many, too, as it would not
        need if it used all of its own nodes.
        """
        if not stays or job.phase is not Phase.RUNNING:
            return 0
        above = sum(stays.values()) - target
        own = self._own.of(job.id)
        if own and not job.gang:
            shared = sum(number for name, number in stays.items() if name not in own)
            above = max(above, shared - max(0, target - market.own(job.id)))
        return above

    def _give(self, jobs: Sequence[Job], targets: Mapping[str, int], found: Places, free: FreeSlots) -> None:
        """Give free slots to jobs below their shares."""
        spread = [job for job in jobs if len(self._alloc[job.id]) > 1 and not job.gang and not found.awaited]
        if spread and free.total:
            wanted = self._wanted(jobs, {**self._alloc, **found.first}, targets)
            for job in spread:
                held = self._alloc[job.id]
                # It may take slots that others want only if they can use those that it leaves.
                alike = len({wanted(self._nodes[name]) for name in held}) == 1
                if alike and sum(held.values()) >= targets[job.id]:
                    self._alloc[job.id] = self._gathered(job, held, held, free, self._reach(job))
        while self._give_once(jobs, targets, found, free):
            pass

    def _give_once(self, jobs: Sequence[Job], targets: Mapping[str, int], found: Places, free: FreeSlots) -> bool:
        """Give free slots to jobs below their shares; whether this has made others free."""
        alloc, nodes, made_free = self._alloc, self._nodes, False
        growing = [
            (job.image is None, sum(alloc[job.id].values()), job.submit, job.id, job)
            for job in jobs
            if job.gang or sum(alloc[job.id].values()) < targets[job.id]
        ]
        for *_, job in sorted(growing):
            if job.gang:
                alloc[job.id] = found.starts.get(job.id, alloc[job.id])
                continue
            before = alloc[job.id] or found.first.get(job.id, {})
            grown = self._grown(job, before, targets[job.id], free)
            if job.id in found.first and len(grown) > 1 and not self._beside:
                anew = self._begun_anew(job, grown, free)
                grown, made_free = anew, made_free or anew is not grown
            if job.id in self._cleared:
                fitting = _sized(job, grown, nodes)
                for node, number in grown.items():  # what it does not take after all
                    free.add(node, number - max(fitting.get(node, 0), before.get(node, 0)))
                grown = fitting
            alloc[job.id] = grown
        return made_free

    def _give_rest(self, jobs: Sequence[Job], targets: Mapping[str, int], market: Market, free: FreeSlots) -> None:
        """Give free slots that no job below its share can use to running jobs, the smallest first."""
        if not free.total:
            return
        alloc = self._alloc
        wanted = self._wanted([afterwards(job, alloc[job.id]) for job in jobs], alloc, targets)
        rest = FreeSlots((node for node in self._up if not wanted(node)), dict(free.items()))
        if not rest.total:
            return
        room = self._room_in_queues(jobs, targets, market)
        growing = [
            (sum(alloc[job.id].values()), job.submit, job.id, afterwards(job, alloc[job.id]))
            for job in jobs
            if alloc[job.id] and not job.gang and market.useful(job.id) and job.phase is not Phase.ENDING
        ]
        heapq.heapify(growing)
        while growing and rest.total:
            held, submit, name, job = heapq.heappop(growing)
            larger = min((size for size in market.useful(name) if size > held), default=0)
            limits = market.limits(job)
            if limits and larger - held > min(room[queue] for queue in limits):
                continue
            grown = self._grown(job, alloc[name], larger, rest, self._reach_then(job))
            if grown != alloc[name]:
                alloc[name] = grown
                for queue in limits:
                    room[queue] -= sum(grown.values()) - held
                heapq.heappush(growing, (sum(grown.values()), submit, name, job))

    def _room_in_queues(self, jobs: Sequence[Job], targets: Mapping[str, int], market: Market) -> dict[str, int]:
        """Queue with a limit to the slots that its jobs may have beyond their shares."""
        room = dict(market.most)
        for job in jobs:
            for queue in market.limits(job):
                room[queue] -= max(targets[job.id], sum(self._alloc.get(job.id, self._kept[job.id]).values()))
        return room

    def _grown(self, job: Job, kept: Slots, target: int, free: FreeSlots, reach: Reach | None = None) -> Slots:
        """``kept`` grown towards ``target``, to the largest of the job's sizes that the free slots allow.

        What it grows by is taken out of ``free``.
        """
        until_joined = self._until_joined.get(job.id)
        if job.phase is Phase.ENDING or (job.phase is Phase.RUNNING and not kept and not until_joined):
            return kept
        if not is_due(job, self._now):
            return kept
        held = sum(kept.values())
        if until_joined and job.engines is not None:
            target = min(target, job.engines - sum(until_joined.values()))  # both train together for a moment
        if held >= target:
            return kept
        reach = reach or self._reach(job)
        if until_joined:  # it is to leave all that it has there
            reach = replace(reach, avoid=reach.avoid | until_joined.keys())
        if not kept and until_joined:
            return begin(job, target, range(1, target + 1), free, reach)
        if not kept:
            return self._begun(job, target, free, reach)
        if job.phase is Phase.WAITING:
            reach = reach.beside(kept, self._nodes)
        reached = min(target, held + free.room(reach))
        size = max((size for size in sizes_of(job) if size <= reached), default=0)
        if size <= held:
            return kept
        grown = take(job, kept, size - held, free, reach)
        return self._gathered(job, kept, grown, free, reach) if len(grown) > 1 else grown

    def _gathered(self, job: Job, kept: Slots, now: Slots, free: FreeSlots, reach: Reach) -> Slots:
        """``now``, or as many slots on fewer nodes. If it keeps none of its own there, it leaves them later."""
        if job.phase is not Phase.RUNNING or job.id in self._until_joined or job.until_joined or self._beside:
            return now  # where slots are reserved, a job that gathers on them would keep one
        if self._state.still or self._own.of(job.id):  # it would leave nodes that nobody else can use
            return now
        found = on_fewer(job, kept, now, free, reach, self._nodes, self._state.weights)
        if found is None:
            return now
        if not any(name in kept for name in found):
            self._until_joined[job.id] = kept
        return found

    def _begun(self, job: Job, target: int, free: FreeSlots, reach: Reach) -> Slots:
        """Where an elastic job starts: on no slot that is reserved, since it would keep it."""
        closed = {name for name, number in self._beside.items() if number < least_of(job)}
        if closed:
            reach = replace(reach, avoid=reach.avoid | closed)
        begun = begin(job, target, sizes_of(job), free, reach)
        for name, number in begun.items():
            if name in self._beside:
                self._beside[name] -= min(number, least_of(job))
        return begun

    def _begun_anew(self, job: Job, grown: Slots, free: FreeSlots) -> Slots:
        """``grown``, where a job would start, or as many slots on fewer nodes."""
        for name, number in grown.items():
            free.add(name, number)
        anew: Slots = begin(job, sum(grown.values()), (sum(grown.values()),), free, self._reach(job))
        if len(anew) < len(grown):
            return anew
        for name in {*anew, *grown}:
            free.add(name, anew.get(name, 0) - grown.get(name, 0))
        return grown

    def _reach(self, job: Job) -> Reach:
        if job.id not in self._reaches:
            self._reaches[job.id] = self._reach_then(job)
        return self._reaches[job.id]

    def _reach_then(self, job: Job) -> Reach:
        return reach_of(job, self._nodes, self._own, plain=self._plain)

    def _wanted(
        self, jobs: Iterable[Job], held: Mapping[str, Slots], targets: Mapping[str, int]
    ) -> Callable[[Node], bool]:
        """Whether at least one elastic job below its share can use a node. Where gangs go is chosen before."""
        short = {self._reach_then(job) for job in jobs if not job.gang and sum(held[job.id].values()) < targets[job.id]}
        return lambda node: node.health is Health.UP and any(each.may_begin_on(node) for each in short)

    def _head_node(self, job: Job, found: Places) -> str:
        alloc = self._alloc[job.id]
        stays = job.gang or job.head_node in alloc or job.head_node in self._until_joined.get(job.id, {})
        if job.phase is Phase.RUNNING and job.head_node is not None and stays:
            return job.head_node
        first = found.first.get(job.id, {})
        return head_node_of(first if first.keys() <= alloc.keys() and first else alloc)

    def _left(self) -> dict[str, int]:
        """The slots of nodes that are up which are free after the plan."""
        left = {node.id: node.free for node in self._up}
        for job in self._state.jobs:
            then = self._alloc[job.id]
            if then is not job.alloc:
                until_joined = self._until_joined.get(job.id, {})
                for name, number in then.items():
                    if name in left:
                        held = job.alloc.get(name, 0) + job.until_joined.get(name, 0) - until_joined.get(name, 0)
                        left[name] -= max(0, number - held)
        return left


def _clear(
    jobs: Sequence[Job],
    kept: dict[str, dict[str, int]],
    lacking: int,
    given: Mapping[str, int],
    nodes: Mapping[str, Node],
) -> dict[str, Slots]:
    """What jobs without an image keep when they hold slots that jobs with an image need to start now.

    The newest give back first. They give back slots on nodes that start containers and may grow again elsewhere. A job
    keeps one slot on its head node. ``lacking``: how many slots elastic jobs with an image could start on now.
    ``given``: node to slots that are given or kept already.
    """
    found: dict[str, Slots] = dict(kept)
    if not lacking:
        return found
    places = {node.id: node for node in nodes.values() if node.containers and node.health is Health.UP}
    coming = sum(node.slots - given.get(node.id, 0) for node in places.values())
    coming -= sum(number for held in kept.values() for name, number in held.items() if name in places)
    for job in reversed(jobs):
        if job.image is not None or job.gang or coming >= lacking:
            continue
        left = kept[job.id]
        for name in sorted((name for name in left if name in places), key=lambda name: (name == job.head_node, name)):
            spare = left[name] - (1 if name == job.head_node else 0)
            taken = max(0, min(spare, lacking - coming))
            left[name] -= taken
            coming += taken
        found[job.id] = {name: number for name, number in left.items() if number}
    return found


def _sized(job: Job, alloc: Slots, nodes: Mapping[str, Node]) -> Slots:
    """``alloc`` cut down to one of the job's sizes, if it is at least the smallest of them."""
    size = sum(alloc.values())
    return give_back(job, alloc, size - max((s for s in sizes_of(job) if s <= size), default=size), nodes)


def _lacking(job: Job, target: int, now: float) -> int:
    """On how many slots an elastic job could start now, if nodes that start containers had them free."""
    could = job.image is not None and not job.gang and job.phase is Phase.WAITING and target > 0 and is_due(job, now)
    return least_of(job) if could else 0


def _shrunk(job: Job, kept: Slots, above: int, wanted: Callable[[Node], bool], nodes: Mapping[str, Node]) -> Slots:
    """``kept`` without up to ``above`` slots on ``wanted`` nodes, cut down to one of the job's sizes."""
    there = {node: slots for node, slots in kept.items() if wanted(nodes[node])}
    left = {**kept, **dict.fromkeys(there, 0), **give_back(job, there, above, nodes)}
    return _sized(job, {node: slots for node, slots in left.items() if slots}, nodes)


def _anywhere(_: Node) -> bool:
    return True
