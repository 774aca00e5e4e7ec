"""Small jobs move to other nodes, so that a large one needs fewer of them. Pure. Next: policy.py.

A job that lies on more nodes than it needs is slower. Where the node of its coordinator has too few free slots for it,
jobs that hold few slots there may go to slots that are free elsewhere. They train on meanwhile: a job gives its slots
back when an engine on its new ones has joined. Then the large job gathers on the slots that they have left
(``placement.gather``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.placement import head_node_of, spread_costs
from edt_scheduler.plan.state import Job, Node, Phase
from edt_scheduler.plan.worth import Weights

Slots = Mapping[str, int]
_MOST_JOBS, _MOST_MOVED = 8, 6
"""So many large jobs are looked at in one plan, and so many small ones move for one of them."""
_LEAST_SECONDS = 30.0
"""A move is reckoned to cost at least this pause: new engines have to start, and the coordinator moves with them."""


def moves(
    jobs: Sequence[Job],
    alloc: Mapping[str, Slots],
    keep: Collection[str],
    free: FreeSlots,
    reach: Callable[[Job], Reach],
    nodes: Mapping[str, Node],
    weights: Weights,
) -> dict[str, Slots]:
    """Small jobs that move, and the slots that they move to, which are taken out of ``free``.

    Args:
        jobs: all jobs that are not over.
        alloc: job to the slots that it holds after the plan so far.
        keep: jobs that do not move.
        free: free slots.
        reach: the nodes that a job can use.
        nodes: node id to node.
        weights: the parameters.
    """
    if not free.total:
        return {}
    spread = [job for job in jobs if len(alloc[job.id]) > 1 and not job.gang and _gain(job, alloc[job.id], nodes) > 0]
    if not spread:
        return {}
    spread.sort(key=lambda job: (-_gain(job, alloc[job.id], nodes), job.submit))
    small: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.id not in keep and _may_move(job, alloc[job.id]):
            small[next(iter(alloc[job.id]))].append(job)
    found: dict[str, Slots] = {}
    for job in spread[:_MOST_JOBS]:
        held = alloc[job.id]
        home = job.head_node if job.head_node in held else head_node_of(held)
        assert home is not None
        size = sum(held.values())
        most = min(nodes[home].slots, size)
        lacking = most - held[home] - free[home]
        others = [each for each in small[home] if each.id not in found and each.id != job.id]
        others.sort(key=lambda each: (-each.held if each.held <= lacking else each.held, each.submit))
        leaving: dict[str, Slots] = {}
        for each in others[:_MOST_MOVED]:
            if lacking > 0 and (where := _elsewhere(each, home, held, free, reach(each), nodes)) is not None:
                leaving[each.id] = {where: each.held}
                free.add(where, -each.held)
                lacking -= each.held
        cost = sum(
            weights.shrink * max(_LEAST_SECONDS, each.pause) * each.held for each in others if each.id in leaving
        )
        pays = _gain(job, held, nodes) * weights.horizon_seconds > cost + weights.shrink * job.pause * size
        if lacking > 0 or not leaving or not pays:
            for slots in leaving.values():
                for name, number in slots.items():
                    free.add(name, number)
            continue
        found |= leaving
    return found


def _gain(job: Job, alloc: Slots, nodes: Mapping[str, Node]) -> float:
    """What it is worth, in slots, to gather a job on as few nodes as possible around its coordinator."""
    size = sum(alloc.values())
    largest = max(nodes[name].slots for name in alloc)
    needed = math.ceil(size / largest)
    return spread_costs(job, size, len(alloc), needed) * size if needed < len(alloc) else 0.0


def _may_move(job: Job, alloc: Slots) -> bool:
    """Whether a job may leave its one node: it keeps its size in this plan, and has room for as many engines again."""
    if job.gang or job.phase is not Phase.RUNNING or len(alloc) != 1 or dict(alloc) != dict(job.alloc) or job.over:
        return False
    engines = job.engines if job.engines is not None else (math.inf if job.points else 0)
    return 2 * job.held <= engines


def _elsewhere(
    job: Job, home: str, large: Slots, free: FreeSlots, reach: Reach, nodes: Mapping[str, Node]
) -> str | None:
    """A node with room for all of a job, other than ``home``; one that the large job will leave rather than others."""
    there = Reach(reach.containers, reach.only, reach.avoid | {home})
    found = free.fullest_with(job.held, there)
    if found is None or nodes[found].health is not Health.UP:
        return None
    return found
