"""The canonical summation tree over logical workers. Pure; room: runners.

Floating-point sums depend on their order, so the order is fixed by E alone: a binary tree whose left part is the
largest power of two below the width. An engine that owns a run of logical workers sums the subtrees that lie
wholly inside its run; the rest of the tree is finished by whoever owns a shard. Every split of E over engines
therefore gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

Span = tuple[int, int]
"""A node of the tree: the logical workers from the first up to, not including, the second."""


def children(span: Span) -> tuple[Span, Span]:
    """The two halves of an inner node."""
    low, high = span
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def cover(span: Span, run: range) -> tuple[Span, ...]:
    """The fewest nodes below ``span`` that together hold exactly ``run``, left to right."""
    low, high = span
    if high <= run.start or low >= run.stop:
        return ()
    if run.start <= low and high <= run.stop:
        return (span,)
    left, right = children(span)
    return cover(left, run) + cover(right, run)


@dataclass(frozen=True)
class ReductionPlan:
    """Who sums what in a group of engines.

    Args:
        workers: E.
        runs: the run of logical workers of each rank; empty for a rank that contributes nothing this time.
    """

    workers: int
    runs: tuple[range, ...]

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
def plan_of(workers: int, runs: tuple[range, ...]) -> ReductionPlan:
    """The plan for these runs, kept: it is asked for at every step."""
    return ReductionPlan(workers, runs)
