"""Shares: how many slots each job should hold. Room: scheduler, plan. Pure. Next: placement.py.

Equal shares by water-filling. Every job first gets its smallest size, in submit order; then, again and again, the
job with the fewest slots climbs to its next size, if that still fits; submit order breaks ties. A job's sizes are
those at which ceil(E/n) drops: E micro-batches on n engines take ceil(E/n) turns, and a size between two of them
takes a GPU without saving a turn. Of a job whose batch follows its engines E is an epoch's micro-batches: there are so
many that hardly a size is left out. Until E is known the only size is 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from edt_scheduler.nodes import Health
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


def rungs(job: Job) -> tuple[int, ...]:
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
    ladders = {job.id: rungs(job) for job in jobs}
    granted = {job.id: 0 for job in jobs}
    used = {job.id: 0 for job in jobs}
    for_all = open_slots
    heap = [(0, job.submit, job.id, 0, job) for job in jobs if _may_hold(job, now)]
    heapq.heapify(heap)
    while heap:
        _, submit, key, rung, job = heapq.heappop(heap)
        size = ladders[key][rung]
        takes = _open_use(job, size, nodes)
        more = takes - used[key]
        if more > for_all or (job.image is not None and more > for_images):
            continue
        for_all -= more
        for_images -= more if job.image is not None else 0
        granted[key], used[key] = size, takes
        if rung + 1 < len(ladders[key]):
            heapq.heappush(heap, (size, submit, key, rung + 1, job))
    return granted


def _may_hold(job: Job, now: float) -> bool:
    """A job on its way out gets nothing. One that waits out a back-off is not waited for."""
    if job.phase is Phase.WAITING:
        return job.not_before is None or job.not_before <= now
    return job.phase is Phase.RUNNING


def _open_use(job: Job, size: int, nodes: Mapping[str, Node]) -> int:
    """Slots that ``size`` takes from what everybody may use: all but those it keeps on cordoned nodes.

    At least one where its home is up, since the attempt lives there.
    """
    own = sum(number for node, number in job.alloc.items() if nodes[node].health is Health.CORDONED)
    at_home = 1 if job.home is not None and nodes[job.home].health is Health.UP else 0
    return max(size - own, at_home)
