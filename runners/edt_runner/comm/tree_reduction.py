"""The sums that one engine makes in one step, and the memory for them. No network.

A *local* is a flat tensor of shape (length,) in host memory. It contains the numbers that one micro-batch adds to the
reduction. The sum of a subtree has the same shape. In memory, both are padded with zeros to ``size`` shards of equal
length, one shard for each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from edt_runner.schedule import Span, children


class PartialSums:
    """The sums that one engine has made of its micro-batches of one step.

    The sums stay when the group is lost. So after a crash, only the lost micro-batches are computed again.

    Args:
        length: how many numbers a local has.
        total: for a fast reduction, zeros of shape (length + size,); the last ``size`` numbers are for announcements.
            After a failed all-reduce its contents are invalid. None: the reduction is exact.
        previous: the sums of a failed try; an exact reduction takes over its subtrees.
    """

    def __init__(self, length: int, total: torch.Tensor | None, previous: PartialSums | None) -> None:
        self.length, self.total = length, total
        self.held: dict[Span, torch.Tensor] = {}
        """Sums of subtrees, each in a padded buffer of the current group."""
        self.kept: dict[Span, torch.Tensor] = {}
        """Sums of subtrees that were taken over from a failed try and are not used yet."""
        if previous is not None and total is None:
            self.kept = {**previous.kept, **previous.held}

    def spans(self) -> tuple[Span, ...]:
        """Return the subtrees whose sums are here, in ascending order."""
        return tuple(sorted({**self.kept, **self.held}))

    def micro_batches(self) -> tuple[int, ...]:
        """Return the micro-batches in these sums, in ascending order. A fast reduction has none here, because no other
        group can use its sums."""
        return tuple(index for low, high in self.spans() for index in range(low, high))

    def restrict(self, micro_batches: Sequence[int]) -> None:
        """Forget every subtree that contains a micro-batch outside of ``micro_batches``."""
        allowed = set(micro_batches)
        for sums in (self.kept, self.held):
            for span in [span for span in sums if not allowed.issuperset(range(*span))]:
                del sums[span]

    def tensors(self) -> list[torch.Tensor]:
        """Return all sums, each of shape (length,)."""
        if self.total is not None:
            return [self.total[: self.length]]
        return [local[: self.length] for local in self.held.values()]


class Buffers:
    """Host memory for the reductions of one length in one group. It is used again in each step.

    Args:
        length: how many numbers a local has.
        size: number of ranks of the group.
        dtype: dtype of all buffers.
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
        """Return zeros of shape (length + size,) for a fast reduction. Two buffers are used in turn, because a peer
        that has not applied the last step may ask for its sum."""
        return self._other(self._totals, self.length + self._size).zero_()

    def next_result(self) -> torch.Tensor:
        """Return a buffer for the shards of all ranks. Two buffers are used in turn, so that a failed reduction does
        not overwrite the result of the previous one."""
        return self._other(self._results, self._shard * self._size)

    def _other(self, pair: list[torch.Tensor], length: int) -> torch.Tensor:
        """Return the buffer of ``pair`` that was not used last. It is allocated at its first use."""
        pair.reverse()
        if not pair[0].numel():
            pair[0] = torch.empty(length, dtype=self._dtype)
        return pair[0]

    def take(self) -> torch.Tensor:
        """Return a buffer for a local, padded to whole shards. The padding is zero, and callers leave it zero."""
        return self._free.pop() if self._free else torch.zeros(self._shard * self._size, dtype=self._dtype)

    def give_back(self, local: torch.Tensor) -> None:
        """Return a buffer from ``take`` that is not used any more."""
        self._free.append(local)

    def publish(self, local: torch.Tensor) -> torch.Tensor:
        """Keep a buffer from ``take`` as the result of a reduction until the next reduction, because a peer may ask for
        it."""
        if self._result is not None:
            self.give_back(self._result)
        self._result = local
        return local

    def slice_of(self, padded: torch.Tensor, rank: int) -> torch.Tensor:
        """Return the shard of ``rank`` in a padded buffer, as a view."""
        return padded[rank * self._shard : (rank + 1) * self._shard]

    def shard(self, index: int) -> torch.Tensor:
        """Return buffer number ``index`` for a shard that arrives."""
        while len(self._shards) <= index:
            self._shards.append(torch.empty(self._shard, dtype=self._dtype))
        return self._shards[index]


def sum_subtree(
    span: Span, sums: PartialSums, buffers: Buffers, fill: Callable[[int, torch.Tensor], None]
) -> torch.Tensor:
    """Sum the micro-batches of ``span`` into ``sums``, in the order of the tree. Kept sums of subtrees are used again.

    Args:
        span: the node of the tree.
        sums: the sums of this engine, which are changed.
        buffers: memory for the sums.
        fill: is called with a micro-batch and a tensor of shape (length,), which it fills with the micro-batch's local.

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
    """Sum one shard over the upper tree, above the subtrees that each rank has summed alone.

    Args:
        span: the node whose sum is wanted; the caller begins with the root.
        arrived: shards of other ranks' subtrees; they are overwritten.
        own: shards of this rank's subtrees; they are not changed, so that another try can use them.

    Returns:
        The sum, of shape (shard,). It may be one of the given tensors.
    """
    part = arrived.get(span, own.get(span))
    if part is not None:
        return part
    first, second = children(span)
    left, right = sum_upper_tree(first, arrived, own), sum_upper_tree(second, arrived, own)
    return torch.add(left, right) if first in own else left.add_(right)
