"""Which slots a job takes and gives back. Pure, but for the free slots, which the caller changes. Next: policy.py.

Engines stay where they are: a job that grows or shrinks only gains or loses slots. A job uses as few nodes as possible,
its head node first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from edt_scheduler.model.states import Health
from edt_scheduler.plan.free_slots import FreeSlots, Reach
from edt_scheduler.plan.state import Job, Node
from edt_scheduler.plan.worth import Weights

_ALL = {image: Reach(image) for image in (False, True)}
_SPREAD_ON_ONE, _SPREAD = 0.4, 0.04
"""Which part of its speed a job is taken to lose on more nodes than it needs, before that was measured: a job that fits
on one node, and one that does not for each node too many. By the step times of the applications in the traces.
"""

LEAST_MOVE_SECONDS = 30.0
"""Leaving all its nodes is reckoned to cost a job at least this pause: new engines have to start, and the coordinator
moves with them.
"""


class OwnNodes:
    """Nodes that only one job may use, because it has asked another cluster manager for them.

    Args:
        nodes: all nodes.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        found: dict[str, list[str]] = {}
        for node in nodes:
            if node.only_for is not None:
                found.setdefault(node.only_for, []).append(node.id)
        self._of = {job: tuple(sorted(names)) for job, names in found.items()}
        self._all = frozenset(name for names in self._of.values() for name in names)

    def __bool__(self) -> bool:
        return bool(self._all)

    def of(self, job: str) -> tuple[str, ...]:
        """A job's own nodes, by name."""
        return self._of.get(job, ())

    def of_others(self, job: str) -> frozenset[str]:
        """The nodes that a job may not use, because they are others' own."""
        own = self._of.get(job)
        return self._all.difference(own) if own else self._all


NO_OWN_NODES = OwnNodes(())


def reach_of(job: Job, nodes: Mapping[str, Node], own: OwnNodes = NO_OWN_NODES, *, plain: bool = False) -> Reach:
    """The nodes that a job can use.

    Engines that cannot reach those of other nodes keep the whole job on their node. A job with an image needs nodes
    that start containers. A container that keeps the slots with which it began keeps its job from growing there.

    Args:
        job: the job.
        nodes: node id to node.
        own: which nodes only one job may use.
        plain: whether no node has such a container, and the engines of all nodes reach each other.
    """
    closed = own.of_others(job.id)
    if plain and not job.avoid and not own:
        return _ALL[job.image is not None]
    if plain and not job.avoid:
        return Reach(job.image is not None, None, closed, own=own.of(job.id))
    there = {name for slots in (job.alloc, job.leaving) for name, number in slots.items() if number and name in nodes}
    fixed = {name for name in there if nodes[name].fixed}
    only = frozenset(there) if any(nodes[name].alone for name in there) else None
    avoid = frozenset(job.avoid | fixed | closed)
    return Reach(job.image is not None, only, avoid, anywhere=not there, own=own.of(job.id))


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

    The job's own nodes come first, which no other job may use. Then come nodes that it already uses, and among them the
    head node. Then comes the node with the fewest free
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
    used = sorted(kept, key=lambda name: (name != job.head_node, -kept[name], name))
    for name in (*reach.own, *(name for name in used if name not in reach.own)):
        if number and free[name] and reach.holds(name):
            number -= _move(grown, name, number, free)
    while number:
        node = free.fullest_with(number if grown else largest, reach) or free.emptiest(reach)
        assert node is not None, f"{job.id} cannot use {number} more slots"
        number -= _move(grown, node, number, free)
    return grown


def on_fewer(
    job: Job,
    kept: Mapping[str, int],
    now: Mapping[str, int],
    free: FreeSlots,
    reach: Reach,
    nodes: Mapping[str, Node],
    weights: Weights,
) -> Mapping[str, int] | None:
    """Where a job would lie on fewer nodes, if that is worth what it costs; None: nowhere.

    Its own nodes come first, so that engines stay. If it leaves all of them, it trains there until an engine on the new
    ones has joined, so both sets of engines are there for a moment.

    Args:
        job: the job.
        kept: node to slots that the job holds and could keep.
        now: where it would lie otherwise: at least as many slots, on several nodes.
        free: free slots, without those in ``now``; it gets what the job does not take after all.
        reach: the nodes that the job can use.
        nodes: node id to node.
        weights: the parameters.
    """
    size, largest = sum(now.values()), max(nodes[name].slots for name in now)
    if -(-size // largest) >= len(now) or any(nodes[name].health is not Health.UP for name in kept):
        return None
    for name, number in now.items():
        free.add(name, number)  # it may use its own slots again
    found = _compact(job, kept, size, free, reach)
    for name in {*found, *now}:
        free.add(name, found.get(name, 0) - now.get(name, 0))
    if sum(found.values()) < size or len(found) >= len(now) or not _pays(job, kept, now, found, weights):
        return None
    if kept and not any(name in kept for name in found):  # it grows to its size when it has left the others
        found = _without(found, size + sum(kept.values()) - _together(job))
    for name in {*found, *now}:
        before = kept.get(name, 0)
        free.add(name, max(0, now.get(name, 0) - before) - max(0, found.get(name, 0) - before))
    return found


def _without(found: Mapping[str, int], number: float) -> dict[str, int]:
    """Slots without so many of them, those of the nodes with fewest first."""
    left = dict(found)
    for name in sorted(left, key=lambda name: (left[name], name)):
        gone = min(left[name], max(0, number))
        left[name] -= int(gone)
        number -= gone
    return {name: slots for name, slots in left.items() if slots}


def _compact(job: Job, kept: Mapping[str, int], size: int, free: FreeSlots, reach: Reach) -> dict[str, int]:
    """The slots, taken out of ``free``, on one of a job's own nodes, or on as few as possible. Fewer than ``size`` if
    the job can use no more.
    """
    found: dict[str, int] = {}
    own = [name for name in kept if free[name] >= size and reach.holds(name)]
    if own:
        _move(found, min(own, key=lambda name: (name != job.head_node, -kept[name], name)), size, free)
        return found
    left = size
    while left and (node := free.fullest_with(left, reach) or free.emptiest(reach)) is not None:
        left -= _move(found, node, left, free)
    return found


def _together(job: Job) -> float:
    """The most engines with which a job can train for a moment."""
    return job.engines if job.engines is not None else (math.inf if job.points else 0)


def _pays(
    job: Job, kept: Mapping[str, int], now: Mapping[str, int], found: Mapping[str, int], weights: Weights
) -> bool:
    """Whether what a job gains on fewer nodes is worth what the change costs, in seconds of one slot."""
    size, held = sum(now.values()), sum(kept.values())
    stays = any(name in kept for name in found)
    if not stays and held and size + held > _together(job) and (dict(now) == dict(kept) or held >= _together(job)):
        return False
    pause = job.pause if dict(now) == dict(kept) else 0.0  # else it is resized anyway
    if job.head_node not in found:
        pause = max(pause, LEAST_MOVE_SECONDS)
    horizon = weights.horizon_seconds
    if job.steps_left is not None:
        times = [point.seconds for point in job.points if point.workers == size]
        horizon = min([horizon, *(job.steps_left * seconds for seconds in times)])
    return spread_costs(job, size, len(now), len(found)) * size * horizon > weights.shrink * pause * (held or size)


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
