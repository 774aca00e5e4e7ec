"""Which slots a job takes and gives back. Pure, but for the free slots, which the caller changes. Next: policy.py.

Engines stay where they are: a job that grows or shrinks only gains or loses slots. A job uses as few nodes as possible,
its head node first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.state import Job, Node
from edt_scheduler.plan.worth import Weights

_ALL = {image: Reach(image) for image in (False, True)}
_SPREAD_ON_ONE, _SPREAD = 0.4, 0.04
"""Which part of its speed a job is taken to lose on more nodes than it needs, before that was measured: a job that fits
on one node, and one that does not for each node too many. By the step times of the applications in the traces.
"""


def reach_of(job: Job, nodes: Mapping[str, Node], *, plain: bool = False) -> Reach:
    """The nodes that a job can use.

    Engines that cannot reach those of other nodes keep the whole job on their node. A job with an image needs nodes
    that start containers. A container that keeps the slots with which it began keeps its job from growing there.

    Args:
        job: the job.
        nodes: node id to node.
        plain: whether no node has such a container, and the engines of all nodes reach each other.
    """
    if plain and not job.avoid:
        return _ALL[job.image is not None]
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


def gather(
    job: Job, kept: Mapping[str, int], free: FreeSlots, reach: Reach, nodes: Mapping[str, Node], weights: Weights
) -> Mapping[str, int]:
    """``kept`` on fewer of its nodes, if they have free slots for it and this is worth the pause. The head node stays.

    Args:
        job: the job.
        kept: node to slots that the job holds, on several nodes.
        free: free slots; those that it moves to are taken out.
        reach: the nodes that the job can use.
        nodes: node id to node.
        weights: the parameters.
    """
    if any(nodes[name].health is not Health.UP for name in kept) or not any(free[name] for name in kept):
        return kept
    size = sum(kept.values())
    room = {name: number + (free[name] if reach.holds(name) else 0) for name, number in kept.items()}
    left, found = size, dict[str, int]()
    for name in sorted(kept, key=lambda name: (name != job.head_node, -min(room[name], size), -kept[name], name)):
        if left:
            found[name] = min(left, room[name])
            left -= found[name]
    gone = len(kept) - len(found)
    gain = spread_costs(job, size, len(kept), len(found))
    horizon = weights.horizon_seconds
    if job.steps_left is not None:
        now = [point.seconds for point in job.points if (point.workers, point.nodes) == (size, len(kept))]
        horizon = min([horizon, *(job.steps_left * seconds for seconds in now)])
    if not gone or gain * horizon <= weights.shrink * job.pause:
        return kept
    for name in kept:
        free.add(name, -max(0, found.get(name, 0) - kept[name]))
    return found


def spread_costs(job: Job, size: int, nodes: int, fewer: int) -> float:
    """Which part of its speed a job loses on so many nodes beside fewer: measured if it was, or taken to be."""
    seconds = {(point.workers, point.nodes): point.seconds for point in job.points}
    before, after = seconds.get((size, nodes)), seconds.get((size, fewer))
    if before is not None and after is not None:
        return max(0.0, 1 - after / before)
    return _SPREAD_ON_ONE if fewer == 1 else _SPREAD * min(nodes - fewer, 3)


def begin(job: Job, target: int, sizes: Sequence[int], free: FreeSlots, reach: Reach) -> dict[str, int]:
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
