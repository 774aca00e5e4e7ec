"""Which slots a job takes and gives back. Pure, but for the free slots, which the caller changes. Next: policy.py.

Engines stay where they are: a job that grows or shrinks only gains or loses slots. A job uses as few nodes as possible,
its head node first.
"""

from __future__ import annotations

from collections.abc import Mapping

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.state import Job, Node


def reach_of(job: Job, nodes: Mapping[str, Node]) -> Reach:
    """The nodes that a job can use.

    Engines that cannot reach those of other nodes keep the whole job on their node. A job with an image needs nodes
    that start containers. A container that keeps the slots with which it began keeps its job from growing there.
    """
    there = {name for slots in (job.alloc, job.leaving) for name, number in slots.items() if number and name in nodes}
    fixed = {name for name in there if nodes[name].fixed}
    only = frozenset(there) if any(nodes[name].alone for name in there) else None
    return Reach(job.image is not None, only, frozenset(job.avoid | fixed), anywhere=not there)


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


def take(job: Job, kept: Mapping[str, int], number: int, free: FreeSlots, reach: Reach) -> dict[str, int]:
    """``kept`` with ``number`` more slots, which are taken out of ``free``.

    Nodes that the job already uses come first, and among them the head node. Then comes the node with the fewest free
    slots that can hold all slots still needed, then the node with the most free slots. A job that starts prefers a node
    on which it could grow to its full size, so that it need not span two nodes later.

    Args:
        job: the job that gets the slots.
        kept: node to slots that the job holds.
        number: how many slots to add; at least so many must be free where the job can use them.
        free: free slots.
        reach: the nodes that the job can use.

    Returns:
        Node to slots.
    """
    grown = dict(kept)
    largest = max(number, min(job.max, job.engines or job.max))
    for name in sorted(kept, key=lambda name: (name != job.head_node, -kept[name], name)):
        if number and free[name] and reach.holds(name):
            number -= _move(grown, name, number, free)
    while number:
        node = free.fullest_with(number if grown else largest, reach) or free.emptiest(reach)
        assert node is not None, f"{job.id} cannot use {number} more slots"
        number -= _move(grown, node, number, free)
    return grown


def begin(job: Job, target: int, sizes: tuple[int, ...], free: FreeSlots, reach: Reach) -> dict[str, int]:
    """The slots on which an elastic job starts: the largest of its sizes up to ``target`` that is free.

    The job starts among nodes whose engines reach each other, where most of it fits. The slots are taken out of
    ``free``.

    Args:
        job: the job, which holds nothing.
        target: the most slots to take.
        sizes: its sizes.
        free: free slots.
        reach: the nodes that the job can use.

    Returns:
        Node to slots; empty if the job cannot start.
    """
    most = min(job.max, job.engines or job.max)
    best, room = reach, free.room(reach)
    for name in free.alone if reach.anywhere else ():
        there = reach.at(name)
        more = free.room(there)
        if (min(target, more), min(most, more)) > (min(target, room), min(most, room)):
            best, room = there, more
    size = max((size for size in sizes if size <= min(target, room)), default=0)
    return take(job, {}, size, free, best)


def head_node_of(alloc: Mapping[str, int]) -> str:
    """The node that should host an attempt's coordinator and driver.

    This is the node with most of its engines; if several have the same number, the first by name.
    """
    return min(alloc, key=lambda node: (-alloc[node], node))


def _move(grown: dict[str, int], node: str, number: int, free: FreeSlots) -> int:
    """Take up to ``number`` free slots of a node; return how many there were."""
    taken = min(number, free[node])
    free.add(node, -taken)
    grown[node] = grown.get(node, 0) + taken
    return taken
