"""The canonical summation tree over micro-batches. Pure.

Floating-point sums depend on their order, so the order is fixed by the number of micro-batches alone: a binary tree
whose left part is the largest power of two below that number. Each rank sums the subtrees that lie wholly inside its
part of the split; the rest of the tree is summed shard by shard, each by the rank that owns it. Every split over
engines therefore gives the same bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

Span = tuple[int, int]
"""A node of the tree: the micro-batches from the first up to, not including, the second."""


def children(span: Span) -> tuple[Span, Span]:
    """The two halves of an inner node."""
    low, high = span
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def cover(span: Span, micro_batches: Sequence[int]) -> tuple[Span, ...]:
    """The fewest nodes below ``span`` that together hold exactly those of ``micro_batches`` (ascending) that are in it,
    left to right."""
    low, high = span
    held = bisect_left(micro_batches, high) - bisect_left(micro_batches, low)
    if not held:
        return ()
    if held == high - low:
        return (span,)
    left, right = children(span)
    return cover(left, micro_batches) + cover(right, micro_batches)


@dataclass(frozen=True)
class ReductionPlan:
    """Who sums what in a group of engines.

    Args:
        micro_batches: of the step.
        split: the micro-batches of each rank, ascending; none for a rank that computes nothing this time.
    """

    micro_batches: int
    split: tuple[Sequence[int], ...]

    @property
    def root(self) -> Span:
        """The node of all micro-batches."""
        return (0, self.micro_batches)

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """The nodes that each rank sums by itself."""
        return tuple(cover(self.root, part) for part in self.split)

    @cached_property
    def owners(self) -> dict[Span, int]:
        """The rank that sums a node by itself."""
        return {span: rank for rank, spans in enumerate(self.spans) for span in spans}


@lru_cache(maxsize=256)
def plan_of(micro_batches: int, split: tuple[Sequence[int], ...]) -> ReductionPlan:
    """The plan of this split, from a cache: every step asks for it."""
    return ReductionPlan(micro_batches, split)
