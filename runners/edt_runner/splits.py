"""Which micro-batches of a step each rank computes, and which sums it sends. Pure.

A floating-point sum depends on the order of the additions. So the number of micro-batches alone fixes the order: it is
a binary tree whose left part has the largest power of two below that number (``children``). Each rank sums the nodes
of the tree that its micro-batches fill (``cover``), and sends the sum of each. The rest of the tree is summed shard by
shard; each shard is summed by the rank that owns it. So every split over engines gives the same bits.

What the ranks send grows with the number of these nodes. So micro-batches are split into as few nodes as possible
(``split_by``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise

Split = tuple[Sequence[int], ...]
"""The micro-batches of a step that each rank computes, in ascending order. Together they are all micro-batches of the
step."""

Span = tuple[int, int]
"""A node of the tree, (first, end): the micro-batches from ``first`` to ``end`` - 1."""


def children(span: Span) -> tuple[Span, Span]:
    """Return the two children of an inner node."""
    low, high = span
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def cover(span: Span, micro_batches: Sequence[int]) -> tuple[Span, ...]:
    """Return the fewest nodes of the tree that together contain exactly the given micro-batches, from left to right.

    Args:
        span: the node that contains all returned nodes; micro-batches outside of it are ignored.
        micro_batches: numbers of micro-batches, in ascending order.
    """
    nodes: list[Span] = []
    place, end = bisect_left(micro_batches, span[0]), bisect_left(micro_batches, span[1])
    while place < end:
        first, node = micro_batches[place], span
        while not (
            node[0] == first
            and (last := place + node[1] - first - 1) < end
            and micro_batches[last] == node[1] - 1  # in ascending order, so all between are there, too
        ):
            left, right = children(node)
            node = left if first < left[1] else right
        nodes.append(node)
        place += node[1] - first
    return tuple(nodes)


def even_counts(micro_batches: int, engines: int) -> tuple[int, ...]:
    """Return the number of micro-batches of each of ``engines`` engines. They differ by at most one; the larger numbers
    come first.

    The busiest engine has ceil(micro_batches / engines). So an additional engine is useful only if it makes that number
    smaller.
    """
    base, extra = divmod(micro_batches, engines)
    return (base + 1,) * extra + (base,) * (engines - extra)


@lru_cache(maxsize=256)
def even_split(micro_batches: int, engines: int) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches of each of ``engines`` engines: ``even_counts`` of them, in as few nodes as possible."""
    return split_by(micro_batches, even_counts(micro_batches, engines))


def contiguous_split(counts: Sequence[int]) -> tuple[range, ...]:
    """Return contiguous parts of ``counts`` items each, in ascending order."""
    return tuple(range(start, end) for start, end in pairwise(accumulate(counts, initial=0)))


@lru_cache(maxsize=256)
def split_by(micro_batches: int, counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return a split of a step into as few nodes of the tree as possible. The parts are contiguous if that costs no
    node.

    A node has a power of two of micro-batches, or it is one of the nodes at the right edge, which contain the last
    micro-batches. At most one of the latter is useful, because each contains the next. All other nodes of a rank are at
    least as many as its count has binary digits 1. So many are enough: laid end to end from the largest to the
    smallest, each begins at a multiple of its own size. So each is a node.

    Args:
        micro_batches: number of micro-batches of the step.
        counts: number of micro-batches of each rank; 0: the rank computes nothing.

    Returns:
        The micro-batches of each rank, in ascending order.

    Raises:
        ValueError: ``counts`` does not add up to ``micro_batches``, or one of them is negative.
    """
    if sum(counts) != micro_batches or min(counts, default=0) < 0:
        raise ValueError(f"counts {counts}: expected numbers from 0 on that add up to {micro_batches}")
    saved, owner, edge = _edge_node(micro_batches, counts)
    runs = contiguous_split(counts)
    if sum(len(cover((0, micro_batches), run)) for run in runs) == sum(map(int.bit_count, counts)) - saved:
        return tuple(map(tuple, runs))
    sizes = [
        (1 << digit, rank)
        for rank, count in enumerate(counts)
        for digit in range(count.bit_length())
        if (count - edge * (rank == owner)) >> digit & 1
    ]
    parts: list[list[int]] = [[] for _ in counts]
    start = 0
    for size, rank in sorted(sizes, key=lambda item: (-item[0], item[1])):
        parts[rank].extend(range(start, start + size))
        start += size
    parts[owner].extend(range(start, start + edge))
    return tuple(map(tuple, parts))


def _edge_node(micro_batches: int, counts: Sequence[int]) -> tuple[int, int, int]:
    """Find the node at the right edge, and the rank for it, that save the most nodes.

    Returns:
        The number of nodes saved, the rank, and the number of micro-batches of the node; zeros if no such node saves
        any.
    """
    edges = {micro_batches & ((1 << digit) - 1) for digit in range(micro_batches.bit_length() + 1)}
    best = (0, 0, 0)
    for rank, count in enumerate(counts):
        for edge in edges:
            if edge.bit_count() > 1 and edge <= count:
                saved = count.bit_count() - (count - edge).bit_count() - 1
                if saved and (saved, rank, edge) > best:
                    best = (saved, rank, edge)
    return best


@dataclass(frozen=True)
class ReductionPlan:
    """The nodes of the tree that each rank of a group sums.

    Args:
        micro_batches: number of micro-batches of the step.
        split: the micro-batches of each rank, in ascending order; empty for a rank that computes nothing in this step.
    """

    micro_batches: int
    split: tuple[Sequence[int], ...]

    @property
    def root(self) -> Span:
        """The root of the tree, which contains all micro-batches."""
        return (0, self.micro_batches)

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """The nodes that each rank sums alone."""
        return tuple(cover(self.root, part) for part in self.split)

    @cached_property
    def owners(self) -> dict[Span, int]:
        """For each node of ``spans``, the rank that sums it."""
        return {span: rank for rank, spans in enumerate(self.spans) for span in spans}


@lru_cache(maxsize=256)
def plan_of(micro_batches: int, split: tuple[Sequence[int], ...]) -> ReductionPlan:
    """Return the plan of a split. The plans are cached, because every step needs one."""
    return ReductionPlan(micro_batches, split)
