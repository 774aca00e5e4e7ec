"""What is summed in one step, and the memory for it. No network.

A *local* is a flat tensor of shape (length,) in host memory: what one micro-batch adds to the reduction. A subtree's
sum has the same shape. In memory both are padded with zeros to ``size`` shards of equal length, one a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from edt_runner.schedule import Span, children


class PartialSums:
    """What one engine has summed of one step. It outlives its group: after a crash only what was lost is computed
    again.

    Args:
        length: numbers in a local.
        total: of a fast reduction: zeros of shape (length + size,), where the last numbers are for announcements.
            A failed all-reduce has spoilt it. None: of an exact reduction.
        previous: of a try that failed; an exact reduction takes its subtrees over.
    """

    def __init__(self, length: int, total: torch.Tensor | None, previous: PartialSums | None) -> None:
        self.length, self.total = length, total
        self.held: dict[Span, torch.Tensor] = {}
        """Sums of subtrees, each in a padded buffer of the group that it was made in."""
        self.kept: dict[Span, torch.Tensor] = {}
        """Sums of subtrees that were taken over, and are not used yet."""
        if previous is not None and total is None:
            self.kept = {**previous.kept, **previous.held}

    def spans(self) -> tuple[Span, ...]:
        """The subtrees that it holds, ascending."""
        return tuple(sorted({**self.kept, **self.held}))

    def micro_batches(self) -> tuple[int, ...]:
        """The micro-batches that are in it, ascending; none of a fast reduction, which no other group can use."""
        return tuple(index for low, high in self.spans() for index in range(low, high))

    def restrict(self, micro_batches: Sequence[int]) -> None:
        """Forget every subtree that is not wholly of ``micro_batches``."""
        allowed = set(micro_batches)
        for sums in (self.kept, self.held):
            for span in [span for span in sums if not allowed.issuperset(range(*span))]:
                del sums[span]

    def tensors(self) -> list[torch.Tensor]:
        """All sums that are in it, each of shape (length,)."""
        if self.total is not None:
            return [self.total[: self.length]]
        return [local[: self.length] for local in self.held.values()]


class Buffers:
    """Host memory of one group's reductions of one length, kept from step to step.

    Args:
        length: numbers in a local.
        size: ranks of the group.
        dtype: of all buffers.
    """

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
        """Zeros of shape (length + size,) for a fast reduction. There are two, in turn: a peer that has not applied the
        last step may ask for the other one."""
        return self._other(self._totals, self.length + self._size).zero_()

    def next_result(self) -> torch.Tensor:
        """Room for the shards of all ranks. There are two, in turn: a reduction that breaks off leaves the result of
        the last one as it is."""
        return self._other(self._results, self._shard * self._size)

    def _other(self, pair: list[torch.Tensor], length: int) -> torch.Tensor:
        """The one of two buffers that was not used last, made when it is first used."""
        pair.reverse()
        if not pair[0].numel():
            pair[0] = torch.empty(length, dtype=self._dtype)
        return pair[0]

    def take(self) -> torch.Tensor:
        """A buffer for a local, padded to whole shards; the padding is zero and stays zero."""
        return self._free.pop() if self._free else torch.zeros(self._shard * self._size, dtype=self._dtype)

    def give_back(self, local: torch.Tensor) -> None:
        """A buffer of ``take`` is not used any more."""
        self._free.append(local)

    def publish(self, local: torch.Tensor) -> torch.Tensor:
        """Keep a buffer of ``take`` as the result of a reduction until the next: a peer may ask for it."""
        if self._result is not None:
            self.give_back(self._result)
        self._result = local
        return local

    def slice_of(self, padded: torch.Tensor, rank: int) -> torch.Tensor:
        """The shard of ``rank`` in a padded buffer, as a view."""
        return padded[rank * self._shard : (rank + 1) * self._shard]

    def shard(self, index: int) -> torch.Tensor:
        """The ``index``-th buffer for one shard that arrives."""
        while len(self._shards) <= index:
            self._shards.append(torch.empty(self._shard, dtype=self._dtype))
        return self._shards[index]


def sum_subtree(
    span: Span, sums: PartialSums, buffers: Buffers, fill: Callable[[int, torch.Tensor], None]
) -> torch.Tensor:
    """Sum the micro-batches ``span`` into ``sums``, in the order of the tree; what it has kept is used again.

    Returns:
        The sum, in a buffer of ``buffers``.
    """
    kept = sums.kept.pop(span, None)
    if kept is None and span[1] - span[0] > 1:
        first, second = children(span)
        local = sum_subtree(first, sums, buffers, fill)
        right = sum_subtree(second, sums, buffers, fill)
        local.add_(right)
        del sums.held[first], sums.held[second]
        buffers.give_back(right)
    else:
        local = buffers.take()
        if kept is not None:
            local[: sums.length].copy_(kept[: sums.length])
        else:
            fill(span[0], local[: sums.length])
    sums.held[span] = local
    return local


def sum_upper_tree(span: Span, arrived: Mapping[Span, torch.Tensor], own: Mapping[Span, torch.Tensor]) -> torch.Tensor:
    """Sum one shard over the tree above the subtrees that ranks have summed by themselves.

    Args:
        span: node whose sum is wanted; the root, at first.
        arrived: shards of other ranks' subtrees; they are overwritten.
        own: shards of this rank's subtrees; they stay as they are, for another try.

    Returns:
        The sum, of shape (shard,). It may be one of the given tensors.
    """
    part = arrived.get(span, own.get(span))
    if part is not None:
        return part
    first, second = children(span)
    left, right = sum_upper_tree(first, arrived, own), sum_upper_tree(second, arrived, own)
    return torch.add(left, right) if first in own else left.add_(right)
