"""A reduction of sums on a GPU over connections between processors: while NCCL is not connected, or cannot be.

What becomes final on the GPU is copied to host memory, bucket by bucket, beside the backward pass. There another
exchange reduces it, and the result is copied back. The bits are those of a reduction on the GPU.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from edt_runner.comm.buckets import Arrivals, Bucket
from edt_runner.comm.exchange import Exchange
from edt_runner.comm.streams import Stream
from edt_runner.comm.tree_reduction import PartialSums
from edt_runner.splits import Span


class StagedExchange:
    """Exchanges sums through copies in host memory. It has the methods of ``Exchange``.

    Args:
        inner: the exchange of the copies.
        host: memory of the copies; its ``total`` is that of a fast reduction.
        sums: the sums on the device.
        buckets: the buckets, in the order in which they are reduced.
        stream: carries the copies.
    """

    def __init__(
        self, inner: Exchange, host: PartialSums, sums: PartialSums, buckets: Sequence[Bucket], stream: Stream
    ) -> None:
        self._inner, self._host, self._sums, self._buckets, self._stream = inner, host, sums, buckets, stream
        self._copies: dict[Span, torch.Tensor] = {}
        self._arrivals: dict[Span, Arrivals] = {}
        self._under_way: deque[tuple[Any, Span, Bucket]] = deque()
        """Copies that have been launched: an event behind each, and what it copies."""
        self.table, self.run, self.abandon = inner.table, inner.run, inner.abandon

    @property
    def overwrites(self) -> bool:
        return self._inner.overwrites

    @property
    def waited(self) -> float:
        return self._inner.waited

    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        if span not in self._copies:
            self._copies[span] = self._host.whole if self._host.total is not None else self._host.memory.take()
            self._arrivals[span] = Arrivals(self._buckets)
        for number in self._arrivals[span].add(start, end):
            low, high = self._buckets[number]
            self._stream.wait_event(self._stream.record_event())
            with self._stream.launching():
                self._copies[span][low:high].copy_(total[low:high], non_blocking=True)
                self._under_way.append((self._stream.record_event(), span, (low, high)))
        self._send(lambda event: event is None or event.query())

    def note(self, notes: Sequence[int]) -> None:
        self._stream.synchronize()
        self._send(lambda event: True)
        self._inner.note(notes)

    def _send(self, arrived: Callable[[Any], bool]) -> None:
        """Give the inner exchange what has arrived in host memory."""
        while self._under_way and arrived(self._under_way[0][0]):
            _, span, (low, high) = self._under_way.popleft()
            self._inner.ready(span, self._copies[span], low, high)

    def result(self) -> torch.Tensor:
        found = self._inner.result()
        if self._host.total is not None:
            place = self._sums.whole
        else:
            place = self._sums.memory.result(again=self._inner.overwrites)
            self._host.memory.give_back(*self._copies.values())
        return place.copy_(found)
