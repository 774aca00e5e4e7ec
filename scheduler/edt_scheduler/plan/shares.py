"""Shares: how many slots each job should hold, and which node's slots these are. Pure. Next: policy.py.

Equal shares by water-filling. Every job first gets its smallest size, in submit order; then, again and again, the
job with the fewest slots climbs to its next size, if that still fits; submit order breaks ties. A job's sizes are
those at which ceil(E/n) drops: E micro-batches on n engines take ceil(E/n) turns, and a size between two of them
takes a GPU without saving a turn. Of a job whose batch follows its engines E is an epoch's micro-batches: there are so
many that hardly a size is left out. Until E is known the only size is 1.

Engines stay where they are; only the difference moves. A job gathers on few nodes, its head node first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from edt_scheduler.model.states import Health
from edt_scheduler.plan.state import Job, Node, Phase


def sizes(engines: int | None, most: int) -> tuple[int, ...]:
    """The sizes a job may have, smallest first.

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
    """The sizes of a job now. What it is held at for a while is one of them: no slot is taken from it for that."""
    allowed = sizes(job.engines, job.max)
    if job.cap is None or job.engines is None:
        return allowed
    return tuple(sorted({*allowed, min(job.cap, job.max, job.engines)}))


def shares(jobs: Sequence[Job], nodes: Mapping[str, Node], now: float) -> dict[str, int]:
    """Job to the slots it should hold, over all slots of nodes that are up, those being vacated included.

    What a job holds on a cordoned node is its own as long as it stays there: nobody else can use it. Jobs with an
    image share what starts containers, and count among all for the rest.
    """
    open_slots = sum(node.slots for node in nodes.values() if node.health is Health.UP)
    for_images = sum(node.slots for node in nodes.values() if node.health is Health.UP and node.containers)
    ladders = {job.id: sizes_of(job) for job in jobs}
    granted = {job.id: 0 for job in jobs}
    used = {job.id: 0 for job in jobs}
    for_all = open_slots
    heap = [(0, job.submit, job.id, 0, job) for job in jobs if _may_hold(job, now)]
    heapq.heapify(heap)
    while heap:
        _, submit, key, place, job = heapq.heappop(heap)
        size = ladders[key][place]
        takes = _open_use(job, size, nodes)
        more = takes - used[key]
        if more > for_all or (job.image is not None and more > for_images):
            continue
        for_all -= more
        for_images -= more if job.image is not None else 0
        granted[key], used[key] = size, takes
        if place + 1 < len(ladders[key]):
            heapq.heappush(heap, (size, submit, key, place + 1, job))
    return granted


def _may_hold(job: Job, now: float) -> bool:
    """A job on its way out gets nothing. One that waits out a back-off is not waited for."""
    if job.phase is Phase.WAITING:
        return job.not_before is None or job.not_before <= now
    return job.phase is Phase.RUNNING


def _open_use(job: Job, size: int, nodes: Mapping[str, Node]) -> int:
    """Slots that ``size`` takes from what everybody may use: all but those it keeps on cordoned nodes.

    At least one where its head node is up: coordinator and driver run there.
    """
    own = sum(number for node, number in job.alloc.items() if nodes[node].health is Health.CORDONED)
    at_head_node = 1 if job.head_node is not None and nodes[job.head_node].health is Health.UP else 0
    return max(size - own, at_head_node)


def give_back(job: Job, kept: Mapping[str, int], number: int, nodes: Mapping[str, Node]) -> dict[str, int]:
    """What is left of ``kept`` without ``number`` slots. The head node keeps its last one while any is left.

    Nodes that others can use come first, among them the one with the fewest engines of the job, its head node last.
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
    """``kept`` with ``number`` more slots out of ``free``, which must hold as many.

    Where the job is already, head node first; then the node that just holds the rest; then the emptiest one. A job
    that starts looks for a node on which it could grow to its full size, so that it need not span two later.
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
    """Slots that the job could get now."""
    return sum(slots for node, slots in free.items() if node not in job.avoid)


def head_node_of(alloc: Mapping[str, int]) -> str:
    """The node that is to host an attempt's coordinator and driver: where most of its engines are, then by name."""
    return min(alloc, key=lambda node: (-alloc[node], node))
