"""One reduction of a step by operations in which all ranks take part (``collectives``): between GPUs, over NCCL.

The sums never leave their device. The thread that trains says which numbers of its sums are final (``ready``). The
group's second thread launches, bucket by bucket, what exchanges the sums, adds this rank's shard up in the order of the
tree, and gathers the result. All ranks launch the same operations in the same order. The notes go over the group's
ordinary connections, between processors.

The result is complete when the devices of all ranks have done all of that. If a rank is lost, another one may abort its
operations first, and what it then passes on is undefined and no error. So a rank sends its notes when its own device is
done, without an abort, and waits for all notes. Nothing that a lost rank has left undefined is ever applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from edt_contract.crash_points import CrashPoint
from edt_runner.comm.buckets import Arrivals, shard_of
from edt_runner.comm.collectives import Collectives
from edt_runner.comm.exchange import TAG_NOTES, Exchange, Transport
from edt_runner.comm.tree_reduction import sum_upper_tree
from edt_runner.splits import ReductionPlan, Span

_SUMS, _RESULT = 0, 1
"""Slots of ``Memory.arriving``."""


class CollectiveExchange(Exchange):
    """What is common to exact and fast reductions by collectives.

    Args:
        collectives: the operations.
        transport: carries the notes.
        others: as in ``Exchange``.
    """

    def __init__(self, collectives: Collectives, transport: Transport, *others: Any) -> None:
        super().__init__(*others)
        self._collectives, self._transport, self._stream = collectives, transport, collectives.stream
        self._events: dict[tuple[Span, int], Any] = {}
        """For each subtree and bucket, an event behind the work that makes its sum."""
        self._peers = [(self._rank + distance) % self._size for distance in range(1, self._size)]

    def run(self, wait: Callable[[Any], None]) -> None:
        try:
            works = [self.post(self._transport.recv, [self.table[peer]], peer, TAG_NOTES) for peer in self._peers]
            with self._stream.launching():
                for number in range(len(self._buckets)):
                    self._exchange(wait, number)
            self._until(lambda: self._noted)
            self._stream.synchronize()
            self._check()  # an abort ends the work of the device without an error
            own = self.table[self._rank]
            works += [self.post(self._transport.send, [own], peer, TAG_NOTES) for peer in self._peers]
            while works:
                wait(works.pop())
        except BaseException:
            self._collectives.abort()
            raise

    def _exchange(self, wait: Callable[[Any], None], number: int) -> None:
        """Launch the reduction of bucket ``number``, when this rank's sums of it are final."""
        raise NotImplementedError

    def _final(self, span: Span, number: int) -> None:
        """Wait until a sum of this rank is final in bucket ``number``, and let the stream go on after that."""
        self._until(lambda: self._launched.get(span, 0) > number)
        self._stream.wait_event(self._events.pop((span, number)))

    def _record(self, span: Span, number: int) -> None:
        self._events[span, number] = self._stream.record_event()
        self._launch(span, number)

    def _write_notes(self, row: torch.Tensor) -> None:
        self.table[self._rank].copy_(row)

    def abandon(self) -> None:
        """Nothing: the device may still write to the memory. It is dropped when the operations have ended."""


class CollectiveTreeExchange(CollectiveExchange):
    """An exact reduction by collectives: every number is added in the order of the canonical tree.

    Each rank sends each other rank its shard of all of its subtrees' sums, one subtree after the other. Then all
    gather the summed shards.

    Args:
        plan: the subtrees of each rank.
        others: as in ``CollectiveExchange``.
    """

    def __init__(self, plan: ReductionPlan, *others: Any) -> None:
        super().__init__(*others)
        self._plan, self._own = plan, plan.spans[self._rank]
        self._arrivals = {span: Arrivals(self._buckets) for span in self._own}
        self._totals: dict[Span, torch.Tensor] = {}
        """The sums of the own subtrees."""
        self._result: torch.Tensor | None = None

    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        self._totals[span] = total
        for number in self._arrivals[span].add(start, end):
            self._record(span, number)
            if span == self._own[-1]:
                self._crash_point(CrashPoint.ENGINE_IN_REDUCE)
            if number < len(self._buckets) - 1:
                self._crash_point(CrashPoint.ENGINE_BUCKET)

    def _exchange(self, wait: Callable[[Any], None], number: int) -> None:
        start, end = self._buckets[number]
        sizes = [high - low for low, high in (shard_of((start, end), rank, self._size) for rank in range(self._size))]
        parts: dict[Span, torch.Tensor] = {}
        for turn in range(max(map(len, self._plan.spans))):
            parts |= self._all_to_all(wait, number, turn, sizes)
        if number == 0:
            self._begin_result(sizes)
        if number == len(self._buckets) - 1:
            self._crash_point(CrashPoint.ENGINE_BEFORE_GATHER)
        self._gather(wait, start, end, parts)

    def _all_to_all(
        self, wait: Callable[[Any], None], number: int, turn: int, sizes: list[int]
    ) -> dict[Span, torch.Tensor]:
        """Exchange a bucket of the sums of each rank's subtree number ``turn``. Returns this rank's shards of them."""
        source, own = torch.empty(0, dtype=self._sums.dtype, device=self._sums.memory.device), sizes[self._rank]
        if turn < len(self._own):
            span = self._own[turn]
            self._final(span, number)
            source = self._totals[span][slice(*self._buckets[number])]
        senders = [rank for rank, spans in enumerate(self._plan.spans) if turn < len(spans)]
        out = self._sums.memory.arriving(_SUMS, turn, own * len(senders))
        self._stream.record_use(out)
        out_sizes = [own if rank in senders else 0 for rank in range(self._size)]
        self._collectives.all_to_all(wait, out, source, out_sizes, sizes if len(source) else [0] * self._size)
        return {
            self._plan.spans[rank][turn]: out[place * own : (place + 1) * own] for place, rank in enumerate(senders)
        }

    def _begin_result(self, sizes: list[int]) -> None:
        """Take memory for the result.

        Once every other rank has sent a sum of this step, it has applied the step before. So the memory of that step's
        result can be used again, unless there is a rank that sends no sums.
        """
        again = bool(sizes[self._rank]) and all(self._plan.spans)
        if again:
            self._stream.synchronize()  # the sums have arrived, unless the group is lost
            self._check()
        self.overwrites = again
        self._result = self._sums.memory.result(again=again)
        self._stream.record_use(self._result)

    def _gather(self, wait: Callable[[Any], None], start: int, end: int, parts: dict[Span, torch.Tensor]) -> None:
        """Sum this rank's shard of a bucket, and let all ranks have all shards."""
        assert self._result is not None
        low, high = shard_of((start, end), self._rank, self._size)
        each, place = -(-(end - start) // self._size), self._result[start:end]
        whole = place
        if len(place) < each * self._size:  # parts of a gathered tensor are of one size
            whole = self._sums.memory.arriving(_RESULT, 0, each * self._size)
            self._stream.record_use(whole)
        if low < high:
            own = whole[self._rank * each : self._rank * each + high - low]
            sum_upper_tree(self._plan.root, parts, frozenset(), own)
        self._collectives.all_gather(wait, whole, self._rank)
        if whole is not place:
            place.copy_(whole[: end - start])

    def result(self) -> torch.Tensor:
        assert self._result is not None
        return self._result


class CollectiveFastExchange(CollectiveExchange):
    """A reduction by all-reduces. Its bits depend on the library and on the number of ranks.

    Args:
        others: as in ``CollectiveExchange``.
    """

    def __init__(self, *others: Any) -> None:
        super().__init__(*others)
        self._arrivals = Arrivals(self._buckets)
        self._span: Span | None = None

    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        self._span = span
        for number in self._arrivals.add(start, end):
            self._record(span, number)
            if number < len(self._buckets) - 1:
                self._crash_point(CrashPoint.ENGINE_BUCKET)

    def _exchange(self, wait: Callable[[Any], None], number: int) -> None:
        self._until(lambda: self._span is not None)
        assert self._span is not None
        self._final(self._span, number)
        assert self._sums.total is not None
        self._stream.record_use(self._sums.total)
        self._collectives.all_reduce(wait, self._sums.whole[slice(*self._buckets[number])])

    def result(self) -> torch.Tensor:
        return self._sums.whole
