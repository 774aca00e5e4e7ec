"""Placement: which node's slots a job gets or gives back. Room: scheduler, plan. Pure.

Engines stay where they are; only the difference moves. A job gathers on few nodes, its home first.
"""

from __future__ import annotations

from collections.abc import Mapping

from edt_scheduler.nodes import Health
from edt_scheduler.plan.state import Job, Node


def give_back(job: Job, kept: Mapping[str, int], number: int, nodes: Mapping[str, Node]) -> dict[str, int]:
    """What is left of ``kept`` without ``number`` slots. The home keeps its last one while any is left.

    Nodes that others can use come first, among them the one with the fewest engines of the job, its home last.
    """
    left = dict(kept)
    order = sorted(left, key=lambda node: (nodes[node].health is not Health.UP, node == job.home, left[node], node))
    for node in order:
        spare = left[node] - 1 if node == job.home else left[node]
        taken = min(number, spare)
        left[node] -= taken
        number -= taken
    return {node: slots for node, slots in left.items() if slots}


def take(job: Job, kept: Mapping[str, int], number: int, free: Mapping[str, int]) -> dict[str, int]:
    """``kept`` with ``number`` more slots out of ``free``, which must hold as many.

    Where the job is already, home first; then the node that just holds the rest; then the emptiest one. A job that
    starts looks for a node on which it could grow to its full size, so that it need not span two later.
    """
    grown = dict(kept)
    room = {node: slots for node, slots in free.items() if slots and node not in job.avoid}
    largest = max(number, min(job.max, job.engines or job.max))
    while number:
        hope = number if grown else largest
        there = sorted((node != job.home, -grown[node], node) for node in room if node in grown)
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


def home_of(alloc: Mapping[str, int]) -> str:
    """The node that is to host an attempt's coordinator and driver: where most of its engines are, then by name."""
    return min(alloc, key=lambda node: (-alloc[node], node))
