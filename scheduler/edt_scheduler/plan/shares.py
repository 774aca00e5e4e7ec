"""Shares: how many slots each job should hold, and on which nodes. Pure. Next: policy.py.

Shares are computed by water-filling. First every job gets its smallest size: jobs that run, then jobs that wait, in
submit order. Then the job with the fewest slots gets its next size, if enough slots are left, and this repeats until no
job can grow. Submit order breaks ties. A gang has one size, and gangs that run or have a place (gangs.py) come before
everybody else.

An elastic job's sizes are the numbers of engines n at which ceil(E/n) drops. E micro-batches on n engines take
ceil(E/n) rounds. A size between two of these numbers would use a GPU and save no round. If the job's batch follows its
engines, E is the number of micro-batches of an epoch. This E is so large that almost every size is allowed. Until E is
known, the only size is 1.

Engines stay where they are: a job that grows or shrinks only gains or loses slots. A job uses as few nodes as possible,
its head node first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from edt_scheduler.model.states import Health
from edt_scheduler.plan.state import Job, Node, Phase


def sizes(engines: int | None, most: int) -> tuple[int, ...]:
    """The sizes a job may have, smallest first.

    Args:
        engines: E, the micro-batches of one step; None while it is unknown.
        most: the most slots the job may hold.

    >>> sizes(16, 16)
    (1, 2, 3, 4, 6, 8, 16)
    """
    if engines is None:
        return (1,)
    found, largest = [1], min(most, engines)
    while (rounds := -(-engines // found[-1])) > 1:  # the next size is the smallest that takes fewer rounds
        following = -(-engines // (rounds - 1))
        if following > largest:
            break
        found.append(following)
    return tuple(found)


def sizes_of(job: Job) -> tuple[int, ...]:
    """The sizes a job may have now, smallest first.

    The size at which a job is capped is always one of them. So the cap takes no slot from the job.
    """
    allowed = sizes(job.engines, job.max)
    if job.cap is None or job.engines is None:
        return allowed
    return tuple(sorted({*allowed, min(job.cap, job.max, job.engines)}))


def shares(
    jobs: Sequence[Job], gangs: Mapping[str, Mapping[str, int]], nodes: Mapping[str, Node], now: float
) -> dict[str, int]:
    """The number of slots that each job should hold.

    The shares divide all slots of nodes that are up, slots that are being vacated included. A slot that a job holds on
    a cordoned node takes nothing from the others, since no other job can use it. A job with an image can use only slots
    on nodes that start containers. Other jobs can use all slots.

    Args:
        jobs: all jobs that are not over.
        gangs: gang to the slots that it holds or that it gets.
        nodes: node id to node.
        now: the time of the state, in seconds since the epoch.

    Returns:
        Job id to a number of slots; 0 for a job that gets none.
    """
    open_slots = sum(node.slots for node in nodes.values() if node.health is Health.UP)
    for_images = sum(node.slots for node in nodes.values() if node.health is Health.UP and node.containers)
    for slots in gangs.values():
        open_slots -= sum(number for name, number in slots.items() if nodes[name].health is Health.UP)
        for_images -= sum(
            number for name, number in slots.items() if nodes[name].health is Health.UP and nodes[name].containers
        )
    elastic = [job for job in jobs if not job.gang]
    ladders = {job.id: sizes_of(job) for job in elastic}
    granted = {job.id: sum(gangs.get(job.id, {}).values()) for job in jobs}
    used = {job.id: 0 for job in jobs}
    for_all = open_slots
    heap = [(0, job.phase is Phase.WAITING, job.submit, job.id, 0, job) for job in elastic if _may_hold(job, now)]
    heapq.heapify(heap)
    while heap:
        _, _, submit, key, place, job = heapq.heappop(heap)
        size = ladders[key][place]
        takes = _open_use(job, size, nodes)
        more = takes - used[key]
        if more > for_all or (job.image is not None and more > for_images):
            continue
        for_all -= more
        for_images -= more if job.image is not None else 0
        granted[key], used[key] = size, takes
        if place + 1 < len(ladders[key]):
            heapq.heappush(heap, (size, False, submit, key, place + 1, job))
    return granted


def _may_hold(job: Job, now: float) -> bool:
    """Whether a job gets a share. An ending job gets none. A waiting job gets none during its back-off."""
    return is_due(job, now) if job.phase is Phase.WAITING else job.phase is Phase.RUNNING


def is_due(job: Job, now: float) -> bool:
    """Whether the job's back-off is over."""
    return job.not_before is None or job.not_before <= now


def _open_use(job: Job, size: int, nodes: Mapping[str, Node]) -> int:
    """How many slots of nodes that are up a job of ``size`` uses: all but those that it keeps on cordoned nodes.

    If the head node is up, the result is at least 1, because coordinator and driver run there.
    """
    own = sum(number for node, number in job.alloc.items() if nodes[node].health is Health.CORDONED)
    at_head_node = 1 if job.head_node is not None and nodes[job.head_node].health is Health.UP else 0
    return max(size - own, at_head_node)


def give_back(job: Job, kept: Mapping[str, int], number: int, nodes: Mapping[str, Node]) -> dict[str, int]:
    """``kept`` without ``number`` slots.

    Slots on nodes that are up go first, since other jobs can use them. Among these nodes, the one with the fewest
    engines of the job goes first and the head node goes last. The head node always keeps one slot, so fewer than
    ``number`` slots may be given back.

    Args:
        job: the job that gives slots back.
        kept: node to slots that the job holds.
        number: how many slots to give back.
        nodes: node id to node.

    Returns:
        Node to slots that are left, without nodes that have none.
    """
    left = dict(kept)
    head = job.head_node
    order = sorted(left, key=lambda node: (nodes[node].health is not Health.UP, node == head, left[node], node))
    for node in order:
        spare = left[node] - 1 if node == job.head_node else left[node]
        taken = min(number, spare)
        left[node] -= taken
        number -= taken
    return {node: slots for node, slots in left.items() if slots}


def take(job: Job, kept: Mapping[str, int], number: int, free: Mapping[str, int]) -> dict[str, int]:
    """``kept`` with ``number`` more slots out of ``free``.

    Nodes that the job already uses come first, and among them the head node. Then comes the node with the fewest free
    slots that can hold all slots still needed, then the node with the most free slots. A job that starts prefers a node
    on which it could grow to its full size, so that it need not span two nodes later.

    Args:
        job: the job that gets the slots.
        kept: node to slots that the job holds.
        number: how many slots to add.
        free: node to free slots; at least ``number`` of them must be on nodes that the job does not avoid.

    Returns:
        Node to slots.
    """
    grown = dict(kept)
    room = {node: slots for node, slots in free.items() if slots and node not in job.avoid}
    largest = max(number, min(job.max, job.engines or job.max))
    while number:
        hope = number if grown else largest
        there = sorted((node != job.head_node, -grown[node], node) for node in room if node in grown)
        fitting = sorted((slots, node) for node, slots in room.items() if slots >= hope)
        emptiest = sorted((-slots, node) for node, slots in room.items())
        node = there[0][2] if there else fitting[0][1] if fitting else emptiest[0][1]
        taken = min(number, room.pop(node))
        grown[node] = grown.get(node, 0) + taken
        number -= taken
    return grown


def room_for(job: Job, free: Mapping[str, int]) -> int:
    """The number of slots that the job could get now."""
    return sum(slots for node, slots in free.items() if node not in job.avoid)


def begin(job: Job, target: int, free: Mapping[str, int], nodes: Mapping[str, Node]) -> Mapping[str, int]:
    """The slots on which an elastic job starts: the largest of its sizes up to ``target`` that is free.

    The job starts among nodes whose engines reach each other, where most of it fits.

    Args:
        job: the job, which holds nothing.
        target: the most slots to take.
        free: node to free slots.
        nodes: node id to node.

    Returns:
        Node to slots; empty if the job cannot start.
    """
    most = min(job.max, job.engines or job.max)
    rooms = [(room_for(job, slots), slots) for slots in _within_reach(free, nodes)]
    room, there = max(rooms, key=lambda room: (min(target, room[0]), min(most, room[0])))
    size = max((size for size in sizes_of(job) if size <= min(target, room)), default=0)
    return take(job, {}, size, there)


def _within_reach(free: Mapping[str, int], nodes: Mapping[str, Node]) -> list[Mapping[str, int]]:
    """``free``, grouped by nodes whose engines reach each other.

    The first group holds all nodes that are not ``alone``. Each node that is ``alone`` follows as its own group, by
    name.
    """
    together = {name: slots for name, slots in free.items() if not nodes[name].alone}
    return [together, *({name: free[name]} for name in sorted(free) if nodes[name].alone)]


def head_node_of(alloc: Mapping[str, int]) -> str:
    """The node that should host an attempt's coordinator and driver.

    This is the node with most of its engines; if several have the same number, the first by name.
    """
    return min(alloc, key=lambda node: (-alloc[node], node))
