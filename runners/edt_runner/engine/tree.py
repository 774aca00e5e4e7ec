"""The canonical summation tree over logical workers. Pure; room: runners.

Floating-point sums depend on their order, so the order is fixed by E alone: a binary tree whose left part is the
largest power of two below the width. An engine that owns a run of logical workers sums the subtrees that lie
wholly inside its run; the rest of the tree is finished by whoever owns a shard. Every split of E over engines
therefore gives the same bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

Span = tuple[int, int]
"""A node of the tree: the logical workers from the first up to, not including, the second."""


def children(span: Span) -> tuple[Span, Span]:
    """The two halves of an inner node."""
    low, high = span
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def cover(span: Span, run: Sequence[int]) -> tuple[Span, ...]:
    """The fewest nodes below ``span`` that together hold exactly those of ``run`` (ascending) in it, left to right."""
    low, high = span
    held = bisect_left(run, high) - bisect_left(run, low)
    if not held:
        return ()
    if held == high - low:
        return (span,)
    left, right = children(span)
    return cover(left, run) + cover(right, run)


@dataclass(frozen=True)
class ReductionPlan:
    """Who sums what in a group of engines.

    Args:
        workers: E.
        runs: the logical workers of each rank, ascending: a range, or after a crash what it has and what it does
            anew; empty for a rank that contributes nothing this time.
    """

    workers: int
    runs: tuple[Sequence[int], ...]

    @property
    def root(self) -> Span:
        return (0, self.workers)

    @cached_property
    def spans(self) -> tuple[tuple[Span, ...], ...]:
        """For each rank the nodes that it sums by itself."""
        return tuple(cover(self.root, run) for run in self.runs)

    @cached_property
    def owners(self) -> dict[Span, int]:
        """For each node that some rank sums by itself, that rank."""
        return {span: rank for rank, spans in enumerate(self.spans) for span in spans}


@lru_cache(maxsize=256)
def plan_of(workers: int, runs: tuple[Sequence[int], ...]) -> ReductionPlan:
    """The plan for these runs, kept: it is asked for at every step."""
    return ReductionPlan(workers, runs)
