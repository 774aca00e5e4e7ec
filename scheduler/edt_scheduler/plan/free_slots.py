"""The free slots of all nodes, so that finding some for a job takes no walk over the nodes. Changes as slots are taken.

Nodes are kept by what a job may ask of them: whether they start containers, and whether their engines reach those of
other nodes. Within each such group they lie in one heap for each number of free slots, by name. If an entry of a heap
comes up whose node has another number by now, it is thrown away.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from edt_scheduler.plan.state import Node


@dataclass(frozen=True)
class Reach:
    """Which nodes a job can use."""

    containers: bool = False
    """Whether only those that start containers."""
    only: frozenset[str] | None = None
    """The only nodes that it can use; None: all that reach each other."""
    avoid: frozenset[str] = frozenset()
    """Nodes that it cannot use besides."""
    anywhere: bool = False
    """Whether it has no engine yet, so that it may also begin on one node whose engines do not reach others."""
    own: tuple[str, ...] = ()
    """Nodes that no other job can use."""

    def of(self, node: Node) -> bool:
        """Whether it can use a node together with others that it can use."""
        return self.holds(node.id) and not (self.only is None and node.alone) and self._runs_on(node)

    def may_begin_on(self, node: Node) -> bool:
        """Whether it can use a node, if need be this one alone."""
        return self.of(node) or (self.anywhere and node.alone and self.holds(node.id) and self._runs_on(node))

    def holds(self, name: str) -> bool:
        """Whether it does not avoid a node."""
        return name not in self.avoid and (self.only is None or name in self.only)

    def at(self, node: str) -> Reach:
        """The same on one node alone."""
        return replace(self, only=frozenset({node}), anywhere=False)

    def beside(self, kept: Iterable[str], nodes: Mapping[str, Node]) -> Reach:
        """The same for a job that begins on the nodes of ``kept``: what their engines can reach."""
        alone = any(nodes[name].alone for name in kept)
        return replace(self, only=frozenset(kept) if alone else self.only, anywhere=False)

    def _runs_on(self, node: Node) -> bool:
        return node.containers or not self.containers


class FreeSlots:
    """Node to free slots, of nodes that take work.

    Args:
        nodes: these nodes.
        free: node to free slots; nodes that are left out have none.
    """

    def __init__(self, nodes: Iterable[Node], free: Mapping[str, int]) -> None:
        self._nodes = {node.id: node for node in nodes}
        self.alone = sorted(node.id for node in self._nodes.values() if node.alone)
        """The nodes whose engines do not reach others, by name."""
        self._free = dict.fromkeys(self._nodes, 0)
        self._total: dict[tuple[bool, bool], int] = defaultdict(int)
        self._heaps: dict[tuple[bool, bool], dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name in sorted(self._nodes):
            if free.get(name):
                self._set(name, free[name])

    def __getitem__(self, node: str) -> int:
        """Free slots of a node; 0 for one that takes no work."""
        return self._free.get(node, 0)

    def items(self) -> Iterator[tuple[str, int]]:
        """Nodes with their free slots, if they have any, by name."""
        return ((name, self._free[name]) for name in sorted(self._free) if self._free[name])

    @property
    def total(self) -> int:
        """All free slots."""
        return sum(self._total.values())

    def add(self, node: str, number: int) -> None:
        """Take slots of a node (a negative number), or give them back. A node that takes no work is left out."""
        if number and node in self._free:
            self._set(node, self._free[node] + number)

    def room(self, reach: Reach) -> int:
        """How many slots a job could get."""
        if reach.only is not None:
            return sum(self._free[name] for name in reach.only if name in self._free and reach.of(self._nodes[name]))
        inside = (self._nodes[name] for name in reach.avoid if name in self._nodes)
        whole = Reach(reach.containers)
        return sum(self._total[group] for group in _groups(reach)) - sum(
            self._free[node.id] for node in inside if whole.of(node)
        )

    def fullest_with(self, number: int, reach: Reach) -> str | None:
        """The node with the fewest free slots among those that have ``number``; the first by name. None: none has."""
        if reach.only is not None:
            fitting = [(self._free[name], name) for name in self._inside(reach) if self._free[name] >= number]
            return min(fitting)[1] if fitting else None
        sizes = {size for group in _groups(reach) for size in self._heaps[group] if size >= number}
        return next((name for size in sorted(sizes) if (name := self._first(size, reach))), None)

    def emptiest(self, reach: Reach) -> str | None:
        """The node with the most free slots; the first by name. None: none has any."""
        if reach.only is not None:
            there = [(-self._free[name], name) for name in self._inside(reach) if self._free[name]]
            return min(there)[1] if there else None
        sizes = {size for group in _groups(reach) for size in self._heaps[group]}
        return next((name for size in sorted(sizes, reverse=True) if (name := self._first(size, reach))), None)

    def _inside(self, reach: Reach) -> list[str]:
        return [name for name in reach.only or () if name in self._nodes and reach.of(self._nodes[name])]

    def _first(self, size: int, reach: Reach) -> str | None:
        """The first node by name that has exactly ``size`` free slots."""
        found: str | None = None
        for group in _groups(reach):
            heap = self._heaps[group][size]
            aside: list[str] = []
            while heap:
                name = heap[0]
                if self._free[name] != size or (aside and aside[-1] == name):
                    heapq.heappop(heap)
                elif name in reach.avoid:
                    aside.append(heapq.heappop(heap))
                else:
                    found = name if found is None else min(found, name)
                    break
            for name in aside:
                heapq.heappush(heap, name)
            if not heap:
                del self._heaps[group][size]
        return found

    def _set(self, name: str, number: int) -> None:
        node = self._nodes[name]
        group = node.containers, node.alone
        self._total[group] += number - self._free[name]
        self._free[name] = number
        if number:
            heapq.heappush(self._heaps[group][number], name)


def _groups(reach: Reach) -> tuple[tuple[bool, bool], ...]:
    """The groups of nodes that reach each other in which a job may have slots: starts containers, alone."""
    return ((True, False),) if reach.containers else ((True, False), (False, False))
