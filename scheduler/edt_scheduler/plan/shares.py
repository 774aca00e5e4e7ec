"""Shares: how many slots each job should hold. Pure. Next: policy.py, which finds these slots.

First it is reckoned to how many slots each user is entitled in each queue (queues.py). Then each user's jobs share what
the user is entitled to, and then all jobs share what is left: first every job gets its smallest size, jobs that run
before jobs that wait, in submit order; then each slot goes where it is worth most (sizes.py, filling.py). Submit order
breaks ties. A gang has one size, and gangs that run or have a place (gangs.py) come before everybody else.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edt_scheduler.model.states import Health
from edt_scheduler.plan.filling import Bidder, fill
from edt_scheduler.plan.queues import Demand, Queue, Sharing, above, entitlements
from edt_scheduler.plan.sizes import offer_of, speeds_of
from edt_scheduler.plan.state import Job, Node, Phase, State
from edt_scheduler.plan.worth import Offer, utility

_ALL, _CONTAINERS = "\0all", "\0containers"
_IN_TURN = {Sharing.PRIORITY, Sharing.FIFO}
"""Policies of queues whose jobs get all that they can use one after the other. There users do not count."""
_Key = tuple[str, str]
"""Queue and user."""
_WAITING_PER_SLOT, _AT_LEAST = 2, 100
"""So many jobs that wait are looked at for each slot, and so many more, all users together."""


@dataclass(frozen=True)
class Shares:
    """How slots are shared."""

    of: Mapping[str, int]
    """Job to the number of slots that it should hold; 0: none."""
    price: float
    """What the last slot was worth; 0: nobody got a second one."""
    wanted: Mapping[str, float]
    """Job to what one slot more would be worth to it, if it could have used more."""


class Market:
    """The jobs that share the slots of one kind: what each size is worth to them, and what their users are entitled to.

    All slots of nodes that are up are shared, slots that are being vacated included. A slot that a job holds on another
    node takes nothing from the others, since no other job can use it; nor does any slot of a job's own nodes, which it
    uses before it takes others. A job with an image can use only slots on nodes that start containers. Other jobs can
    use all slots.

    Args:
        jobs: all jobs that are not over, in submit order, with the slots that they keep.
        nodes: node id to node.
        state: the time, the queues and the parameters.
    """

    def __init__(self, jobs: Sequence[Job], nodes: Mapping[str, Node], state: State) -> None:
        self._jobs, self._nodes, self._state = jobs, nodes, state
        up = [node for node in nodes.values() if _is_shared(node)]
        self._all_shared = len(up) == len(nodes)
        self._mine = Counter[str]()
        """Job to the slots of its own nodes."""
        for node in nodes.values():
            if node.only_for is not None and node.health is Health.UP:
                self._mine[node.only_for] += node.slots
        self._open = sum(node.slots for node in up)
        self._in_containers = sum(node.slots for node in up if node.containers)
        self._per_node = max((node.slots for node in nodes.values()), default=1)
        self._queues = {queue.id: queue for queue in state.queues}
        self._limits: dict[str, tuple[str, ...]] = {}
        self.most = {queue.id: queue.limit for queue in state.queues if queue.limit is not None}
        """Queue with a limit to the most slots that its jobs may have."""
        self._keys: dict[_Key, _Key] = {}
        self._policies: dict[str, Sharing] = {}
        self._pools_of: dict[tuple[str, str, bool], tuple[str, ...]] = {}
        self._sized: dict[str, dict[int, int]] = {}
        """Job that holds slots on nodes that take no work, to the size that each number of other slots makes."""
        self._gangs = [job for job in jobs if job.gang]
        self._of_gangs = Counter[str]()
        """User in a queue, and queue with a limit, to the slots that gangs hold there."""
        for job in self._gangs:
            if job.held:
                self._of_gangs[_pool(self.key(job))] += job.held - self._on_own(job)
                self._of_gangs.update(dict.fromkeys(self.limits(job), job.held))
        self._elsewhere = Counter[str]()
        """Queue with a limit to the slots that its elastic jobs have where they take them from nobody."""
        if self.most and not self._all_shared:
            for job in jobs:
                own, _ = self._own_use(job)
                self._elsewhere.update(dict.fromkeys(() if job.gang else self.limits(job), own))
        self._run = {job.id for job in jobs if job.phase is Phase.RUNNING}
        self._elastic = [self._bidder(job) for job in self._candidates()]
        self._offers = {each.id: each.offer for each in self._elastic}
        self.entitled: Mapping[_Key, int] = self._entitled()
        """(queue, user) to slots. In a queue that serves its jobs in turn, "" stands for all users."""

    def key(self, job: Job) -> _Key:
        """What a job's entitlement goes by: its queue, and its user unless the queue serves its jobs in turn."""
        key = self._keys.get((job.queue, job.user))
        if key is None:
            key = job.queue, "" if self._policy(job.queue) in _IN_TURN else job.user
            self._keys[job.queue, job.user] = key
        return key

    def allowance(self, gang: Job, granted: Sequence[Job]) -> tuple[int, int]:
        """The most slots that a waiting gang could have beside the gangs that run, by what its user is entitled to and
        by the limits of its queues, and the most that it could have once those have ended. A user's only gang may have
        all that the limits leave.

        Args:
            gang: the gang that waits.
            granted: other waiting gangs that get their slots.
        """
        pool = _pool(self.key(gang))
        used = self._of_gangs.copy()
        for job in granted:
            used[_pool(self.key(job))] += max(0, job.max - self._mine[job.id])
            used.update(dict.fromkeys(self.limits(job), job.max))
        alone = len(self.entitled) < 2
        most = max(0, self.entitled.get(self.key(gang), 0) - used[pool]) if used[pool] and not alone else self._open
        later = self._open + self._mine[gang.id]
        most += self._mine[gang.id]
        for queue in self.limits(gang):
            most = min(most, max(0, self.most[queue] - used[queue]))
            later = min(later, self.most[queue])
        return most, later

    def secured(self) -> frozenset[str]:
        """The jobs that get their least size by what their users are entitled to, by the limits of their queues and by
        their priority, and the gangs that wait and are among them. What others hold can be taken from them for these.
        """
        left = {_ALL: self._open, _CONTAINERS: self._in_containers} | self.most
        by_user = {_pool(key): number for key, number in self.entitled.items()}
        if len(self.entitled) > 1:
            left |= by_user
        asking = [
            (each.first, each.order, each.id, each.offer.rungs[0][0], each.pools)
            for each in self._elastic
            if each.offer.rungs
        ]
        for job in self._gangs:
            pools = (_ALL, *((_CONTAINERS,) if job.image is not None else ()), _pool(self.key(job)), *self.limits(job))
            if job.held:
                for pool in pools:
                    if pool in left:
                        left[pool] -= job.held - self._on_own(job)
            elif job.phase is Phase.WAITING and is_due(job, self._state.now):
                in_turn, priority = self._turn(job)
                first = (-priority, not in_turn, job.submit)
                asking.append((first, (job.submit, job.id), job.id, max(0, job.max - self._mine[job.id]), pools))
        found = set()
        owed, gangs = dict(left), {job.id for job in self._gangs}
        for *_, name, least, pools in sorted(asking):
            inside = [pool for pool in pools if pool in left]
            bounds = inside
            if name in gangs:  # one that is larger than all that its user is entitled to is not kept waiting for ever
                bounds = [p for p in inside if owed[p] >= least or p not in by_user or left[p] < owed[p]]
            if all(left[pool] >= least for pool in bounds):
                found.add(name)
                for pool in inside:
                    left[pool] -= least
        return frozenset(found)

    def _turn(self, job: Job) -> tuple[bool, int]:
        """Whether the jobs of its queue get slots one after the other, and the priority of a job there."""
        policy = self._policy(job.queue)
        return policy in _IN_TURN, 1 if policy in {Sharing.FAIRSHARE, Sharing.FIFO} else job.priority

    def shares(self, gangs: Mapping[str, Mapping[str, int]], only: Collection[str] | None = None) -> Shares:
        """The number of slots that each job should hold.

        Args:
            gangs: gang to the slots that it holds or that it gets.
            only: the only waiting elastic jobs that may begin; None: all.
        """
        elastic = self._elastic
        if only is not None:
            elastic = [each for each in elastic if each.id in self._run or each.id in only]
        taken = {job.id: sum(gangs.get(job.id, {}).values()) for job in self._gangs}
        pools = {_ALL: self._open, _CONTAINERS: self._in_containers}
        for slots in gangs.values():
            for name, number in slots.items():
                if _is_shared(self._nodes[name]):
                    pools[_ALL] -= number
                    pools[_CONTAINERS] -= number if self._nodes[name].containers else 0
        pools |= {queue: max(0, most - self._elsewhere[queue]) for queue, most in self.most.items()}
        owed = {_pool(key): number for key, number in self.entitled.items()}
        for job in self._gangs:
            shared = sum(n for name, n in gangs.get(job.id, {}).items() if self._nodes[name].only_for is None)
            for pool, number in ((_pool(self.key(job)), shared), *((each, taken[job.id]) for each in self.limits(job))):
                for each in (owed, pools):
                    if pool in each:
                        each[pool] = max(0, each[pool] - number)
        filled = fill(elastic, pools | owed)
        if filled.left[_ALL] > 0:
            more = fill(elastic, {pool: filled.left[pool] for pool in pools}, filled.sizes)
            more.price = more.price or filled.price
            filled = more
        found = {job.id: 0 for job in self._jobs} | taken
        for name, slots_up in filled.sizes.items():
            sized = self._sized.get(name)
            found[name] = sized[slots_up] if sized else slots_up
        return Shares(found, filled.price, filled.wanted)

    def limits(self, job: Job) -> tuple[str, ...]:
        """The queue of a job and those above it, as far as they have a limit."""
        if not self.most:
            return ()
        if job.queue not in self._limits:
            self._limits[job.queue] = tuple(queue.id for queue in self._limited(job.queue))
        return self._limits[job.queue]

    def limited(self, job: Job) -> tuple[str, int] | None:
        """The queue above a job with the lowest limit, and that limit; None: there is none."""
        limits = [(queue.limit or 0, queue.id) for queue in self._limited(job.queue)]
        if not limits:
            return None
        limit, queue = min(limits)
        return queue, limit

    def useful(self, name: str) -> tuple[int, ...]:
        """The sizes of an elastic job that are worth more to it than all smaller ones, smallest first."""
        offer, sized = self._offers.get(name), self._sized.get(name)
        return tuple(sized[size] if sized else size for size, _ in offer.rungs) if offer else ()

    def _candidates(self) -> Iterable[Job]:
        """The elastic jobs that may get slots. Of thousands that wait, only the first ones of each user."""
        waiting: dict[_Key, list[Job]] = defaultdict(list)
        for job in self._jobs:
            if job.gang:
                continue
            if job.phase is Phase.RUNNING:
                yield job
            elif job.phase is Phase.WAITING and is_due(job, self._state.now):
                waiting[self.key(job)].append(job)
        most = _evenly({key: len(jobs) for key, jobs in waiting.items()}, _WAITING_PER_SLOT * self._open + _AT_LEAST)
        for key, jobs in waiting.items():
            few = jobs
            if len(jobs) > most[key]:
                few = heapq.nsmallest(most[key], jobs, key=lambda job: (-job.priority, job.submit, job.id))
                among = {job.id for job in few}
                few = [*few, *(job for job in jobs if job.id in self._mine and job.id not in among)]
            yield from few

    def _bidder(self, job: Job) -> Bidder[str]:
        """An elastic job as one that shares slots of nodes that are up."""
        policy = self._policy(job.queue)
        if policy is Sharing.FAIRSHARE:
            speeds, _ = speeds_of(job, self._per_node, self._state.weights)
            rungs = tuple((size, utility(size, 1)) for size in sorted(speeds.of))
            offer = Offer(rungs, rungs, float(job.priority), rungs[-1][0] if rungs else 0)
        else:
            offer = offer_of(job, self._per_node, self._state.weights)
        floor = self._floor(job) if job.deadline is not None else None
        held = job.held if job.held <= job.max else 0  # its user has lowered its maximum
        if not self._all_shared and (own := self._own_use(job))[0]:
            offer = self._without_own(job, offer, *own)
            held = self._on_others(job, held, own) if held > own[0] else 0
            floor = floor and (floor[0], self._on_others(job, floor[1], own))
        key = job.queue, job.user, job.image is not None
        if key not in self._pools_of:
            limits = [queue.id for queue in self._limited(job.queue)]
            self._pools_of[key] = (_ALL, *([_CONTAINERS] if key[2] else []), _pool(self.key(job)), *limits)
        in_turn, priority = self._turn(job)
        first = (-priority, not in_turn and job.phase is Phase.WAITING, job.submit)
        band = (-priority, job.submit if in_turn else 0)
        return Bidder(
            job.id, offer, self._pools_of[key], first, (job.submit, job.id), max(held, 0), band, in_turn, floor
        )

    def _floor(self, job: Job) -> tuple[float, int] | None:
        """A job's deadline, and the size with which it is met; None: no size is enough, or its work is not known."""
        speeds, work = speeds_of(job, self._per_node, self._state.weights)
        if job.deadline is None or job.steps_left is None or speeds.alone is None:
            return None
        left = job.deadline - self._state.now - job.pause
        enough = [size for size, speed in speeds.of.items() if work.seconds / speed <= left]
        return (job.deadline, min(enough)) if enough else None

    def _own_use(self, job: Job) -> tuple[int, int]:
        """How many slots a job has where it takes them from nobody: those that it keeps on nodes that take no work, and
        all of its own nodes. And how many shared ones it uses at least: 1 if its head node is among these, because
        coordinator and driver run there.
        """
        own = sum(number for node, number in job.alloc.items() if self._nodes[node].health is not Health.UP)
        own += self._mine.get(job.id, 0)
        return own, int(job.head_node is not None and _is_shared(self._nodes[job.head_node]))

    def own(self, name: str) -> int:
        """The slots of a job's own nodes."""
        return self._mine.get(name, 0)

    def _on_own(self, job: Job) -> int:
        """The slots that a job holds on its own nodes."""
        if job.id not in self._mine:
            return 0
        return sum(number for name, number in job.alloc.items() if self._nodes[name].only_for is not None)

    def _on_others(self, job: Job, size: int, own: tuple[int, int]) -> int:
        """How many slots a size takes of nodes that are up. It may be one that is worth no more than a smaller one."""
        slots = max(size - own[0], own[1])
        self._sized[job.id].setdefault(slots, size)
        return slots

    def _without_own(self, job: Job, offer: Offer, own: int, least: int) -> Offer:
        """What numbers of slots on nodes that are up are worth to a job that keeps ``own`` others."""
        sized: dict[int, int] = {}
        rungs: dict[int, float] = {}
        for size, worth in offer.rungs:
            sized[max(size - own, least)] = size
            rungs[max(size - own, least)] = worth
        self._sized[job.id] = sized
        return Offer(tuple(rungs.items()), (), offer.weight, max(offer.most - own, least))

    def _entitled(self) -> dict[_Key, int]:
        most: dict[_Key, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        held: dict[_Key, int] = defaultdict(int)
        order: dict[_Key, int] = {}
        by_id = {each.id: each for each in self._elastic}
        for job in self._jobs:
            key = self.key(job)
            held[key] += job.held - self._on_own(job)
            order.setdefault(key, job.submit)
            uses = most[key][job.priority]
            if job.gang:
                if job.held or (job.phase is Phase.WAITING and is_due(job, self._state.now)):
                    need = (job.held or job.max) - (self._on_own(job) if job.held else self._mine[job.id])
                    uses[0] += max(0, need)
                    uses[1] += max(0, need)
            elif (bidder := by_id.get(job.id)) and bidder.offer.rungs:
                uses[0] += bidder.offer.rungs[0][0]
                uses[1] += max(bidder.offer.most, bidder.offer.rungs[0][0])
        demands = [
            Demand(
                queue,
                user,
                sum(many for _, many in classes.values()),
                held[queue, user],
                self._state.usage.get((queue, user), 0.0),
                order[queue, user],
                tuple((priority, few, many) for priority, (few, many) in classes.items() if many),
            )
            for (queue, user), classes in most.items()
        ]
        return entitlements(self._state.queues, [each for each in demands if each.most], self._open)

    def _policy(self, queue: str) -> Sharing:
        """The policy of a queue: its own, or that of the nearest queue above that is defined."""
        if queue not in self._policies:
            defined = (self._queues[path].policy for path in (*above(queue), "") if path in self._queues)
            self._policies[queue] = next(defined, Sharing.EFFICIENT)
        return self._policies[queue]

    def _limited(self, path: str) -> list[Queue]:
        """A queue and those above it that have a limit."""
        above_it = (self._queues.get(each) for each in (*above(path), ""))
        return [queue for queue in above_it if queue is not None and queue.limit is not None]


def _is_shared(node: Node) -> bool:
    """Whether any job may get slots of the node."""
    return node.health is Health.UP and node.only_for is None


def is_due(job: Job, now: float) -> bool:
    """Whether the job's back-off is over, and all jobs that must be over before it are."""
    return (job.not_before is None or job.not_before <= now) and not job.after


def _evenly(wanted: Mapping[_Key, int], most: int) -> dict[_Key, int]:
    """Divide ``most`` evenly, nobody more than wanted: what one does not want is divided among the others."""
    found, left, open_to = {}, most, len(wanted)
    for key in sorted(wanted, key=lambda key: (wanted[key], key)):
        found[key] = min(wanted[key], -(-left // open_to))
        left -= found[key]
        open_to -= 1
    return found


def _pool(key: _Key) -> str:
    return f"{key[0]}\0{key[1]}"
