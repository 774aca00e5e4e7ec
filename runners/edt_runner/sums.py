"""What is summed in one tick, and the memory for it. Room: runners; torch, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from edt_runner.engine.tree import Span, children


class Sums:
    """See ``adapter.Sums``. Exact: subtrees by span. Else ``total``, which a failed all-reduce has spoilt.

    Args:
        length: numbers of a leaf.
        total: of the fast way, zeroed, with room for the announcements.
        kept: subtrees of a try that failed are taken over from it.
    """

    def __init__(self, length: int, total: torch.Tensor | None, kept: Sums | None) -> None:
        self.length, self.total = length, total
        self.held: dict[Span, torch.Tensor] = {}
        self.kept: dict[Span, torch.Tensor] = {**kept.kept, **kept.held} if kept is not None and total is None else {}

    def spans(self) -> tuple[Span, ...]:
        return tuple(sorted({**self.kept, **self.held}))

    def workers(self) -> tuple[int, ...]:
        return tuple(worker for low, high in self.spans() for worker in range(low, high))

    def restrict(self, run: Sequence[int]) -> None:
        allowed = set(run)
        for place in (self.kept, self.held):
            for span in [span for span in place if not allowed.issuperset(range(*span))]:
                del place[span]

    def vectors(self) -> list[torch.Tensor]:
        if self.total is not None:
            return [self.total[: self.length]]
        return [leaf[: self.length] for leaf in self.held.values()]


class Buffers:
    """Memory of one reduction length, kept from step to step."""

    def __init__(self, length: int, size: int, dtype: torch.dtype) -> None:
        self.length, self._size = length, size
        self._shard = -(-length // size)
        self._dtype = dtype
        self._free: list[torch.Tensor] = []
        self._shards: list[torch.Tensor] = []
        self._result: torch.Tensor | None = None
        self._totals = [torch.empty(0, dtype=dtype)] * 2
        self._results = [torch.empty(0, dtype=dtype)] * 2

    def next_total(self) -> torch.Tensor:
        """One of two, in turn: the other one may be asked for by a peer that was held up before it applied it."""
        self._totals = [self._totals[1], self._totals[0]]
        if not self._totals[0].numel():
            self._totals[0] = torch.empty(self.length + self._size, dtype=self._dtype)
        return self._totals[0].zero_()

    def next_result(self) -> torch.Tensor:
        """Room for whole shards; one of two, in turn: what breaks off half-way leaves the other one as it is."""
        self._results = [self._results[1], self._results[0]]
        if not self._results[0].numel():
            self._results[0] = torch.empty(self._shard * self._size, dtype=self._dtype)
        return self._results[0]

    def take(self) -> torch.Tensor:
        """A leaf, padded to whole shards; the padding is zero and stays zero."""
        return self._free.pop() if self._free else torch.zeros(self._shard * self._size, dtype=self._dtype)

    def give_back(self, leaf: torch.Tensor) -> None:
        self._free.append(leaf)

    def publish(self, leaf: torch.Tensor) -> torch.Tensor:
        """``leaf`` is a result, and stays one until there is the next: a peer may ask for it."""
        if self._result is not None:
            self.give_back(self._result)
        self._result = leaf
        return leaf

    def slice_of(self, leaf: torch.Tensor, rank: int) -> torch.Tensor:
        return leaf[rank * self._shard : (rank + 1) * self._shard]

    def shard(self, index: int) -> torch.Tensor:
        while len(self._shards) <= index:
            self._shards.append(torch.empty(self._shard, dtype=self._dtype))
        return self._shards[index]


def sum_upper_tree(span: Span, arrived: Mapping[Span, torch.Tensor], own: Mapping[Span, torch.Tensor]) -> torch.Tensor:
    """Finish the tree above the parts, in place of what has arrived; what is own stays whole for another try."""
    part = arrived.get(span, own.get(span))
    if part is not None:
        return part
    first, second = children(span)
    left, right = sum_upper_tree(first, arrived, own), sum_upper_tree(second, arrived, own)
    return torch.add(left, right) if first in own else left.add_(right)
