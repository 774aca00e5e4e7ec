"""One reduction of a step over all engines of a group, bucket by bucket, while the backward pass goes on.

Two threads work on it. The thread that trains says which numbers of its sums are final (``ready``), and sends them. The
group's second thread (``connections.Watchdog``) receives the other engines' sums, adds this rank's shard of a bucket up
in the order of the tree, and sends the result to all. In a fast reduction each bucket is one all-reduce of gloo.

With the last bucket, each rank sends a row of whole numbers to all ranks, its *notes*: the generation that it
announces, and what all engines must know of each other to decide alike.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context
from edt_runner.comm.buckets import Arrivals, Bucket, shard_of
from edt_runner.comm.tree_reduction import PartialSums, sum_upper_tree
from edt_runner.errors import PeerLost
from edt_runner.splits import ReductionPlan, Span

MOST_NOTE = (1 << 24) - 1
"""The largest number in notes. A fast reduction carries notes as float32."""
TAG_NOTES, _TAG_SHARDS, _TAG_SPANS = 1 << 20, 1 << 21, 1 << 24
_WINDOW = 4
"""Number of buckets for which other engines' sums may arrive at the same time. It limits the memory for them."""
_POLL_SECONDS = 0.02


class Transport(Protocol):
    """What connects the ranks of a group. The operations return works with a method ``wait(timeout)``."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any: ...

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any: ...


class Exchange:
    """What is common to both kinds of reductions: buckets, waits, and what one thread tells the other.

    Args:
        sums: this rank's sums of the step.
        buckets: the buckets, in the order in which they are reduced.
        rank, size: of the group.
        notes: how many numbers each rank's notes have.
        stopped: whether the connections have been shut, so that nothing will arrive any more.
    """

    def __init__(
        self,
        sums: PartialSums,
        buckets: Sequence[Bucket],
        rank: int,
        size: int,
        notes: int,
        stopped: Callable[[], bool],
    ) -> None:
        self._sums, self._buckets, self._rank, self._size, self._stopped = sums, buckets, rank, size, stopped
        self.table = torch.zeros((size, notes), dtype=torch.int64)
        """Each rank's notes. They are complete when the reduction is."""
        self.overwrites = False
        """Whether the result of the step before is being overwritten. Every other rank has applied it then."""
        self.failure: PeerLost | None = None
        """Why nothing more can be sent. The sums are completed nevertheless."""
        self._told = threading.Condition()
        self._launched: dict[Span, int] = {}
        """For each subtree, how many buckets of its sum are final."""
        self._noted = False
        self._asked: float | None = None
        """When the thread that trains began to wait for the result."""
        self.waited = 0.0
        """Seconds for which the training had to wait because another engine had not sent its sums."""

    # ── for the thread that trains ────────────────────────────────────────────────────────────────────────────
    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        """Note that the numbers from ``start`` to ``end`` - 1 of ``total``, the sum of ``span``, are final, and send
        each bucket that is complete."""
        raise NotImplementedError

    def note(self, notes: Sequence[int]) -> None:
        """Give this rank's notes. Everything else that it sends is final."""
        self._asked = time.monotonic()
        self._write_notes(torch.tensor([max(0, min(MOST_NOTE, each)) for each in notes]))
        with self._told:
            self._noted = True
            self._told.notify()

    def _write_notes(self, row: torch.Tensor) -> None:
        """Put this rank's notes, int64 of shape (notes,), where they are sent from."""
        raise NotImplementedError

    def _launch(self, span: Span, number: int) -> None:
        with self._told:
            self._launched[span] = number + 1
            self._told.notify()

    def post(self, operation: Any, *arguments: Any) -> Any:
        """Start an operation. Returns None if the connection has already broken."""
        if self.failure is None:
            try:
                return operation(*arguments)
            except RuntimeError as error:
                self.failure = PeerLost(f"the data plane broke off: {error}")
        return None

    # ── for the group's second thread ─────────────────────────────────────────────────────────────────────────
    def run(self, wait: Callable[[Any], None]) -> None:
        """Take part in the reduction until it is complete. ``wait`` waits for a work.

        Raises:
            PeerLost, RuntimeError: it cannot be completed.
        """
        raise NotImplementedError

    def result(self) -> torch.Tensor:
        """Return the sum over all ranks, of shape (length,), when ``run`` has returned."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Drop all operations and all memory but what the one uses in which ``run`` is stuck. When that one is over,
        ``run`` ends with an error."""
        raise NotImplementedError

    @staticmethod
    def _crash_point(point: CrashPoint) -> None:
        crash_point(point, at=context.page.offset, who=context.page.engine)

    def _forget_sums(self) -> None:
        del self._sums

    def _until(self, happened: Callable[[], bool]) -> None:
        with self._told:
            while not happened():
                self._check()
                self._told.wait(_POLL_SECONDS)

    def _check(self) -> None:
        """Raise PeerLost if the group is lost."""
        if self._stopped() or self.failure is not None:
            raise self.failure or PeerLost("the data plane was shut")


class TreeExchange(Exchange):
    """An exact reduction: every number is added in the order of the canonical tree.

    Args:
        transport: connects the ranks.
        plan: the subtrees of each rank.
        others: as in ``Exchange``.
    """

    def __init__(self, transport: Transport, plan: ReductionPlan, *others: Any) -> None:
        super().__init__(*others)
        self._transport, self._plan, self._owners = transport, plan, plan.owners
        self._own = plan.spans[self._rank]
        self._arrivals = {span: Arrivals(self._buckets) for span in self._own}
        self._numbers = {span: index for index, span in enumerate(self._owners)}
        self._peers = [(self._rank + distance) % self._size for distance in range(1, self._size)]
        """The other ranks. Each rank starts with another one."""
        self._totals: dict[Span, torch.Tensor] = {}
        """The sums of the own subtrees."""
        self._received: dict[int, dict[Span, tuple[torch.Tensor, Any]]] = {}
        self._gathered: list[Any] = []
        self._sent: list[Any] = []
        self._result: torch.Tensor | None = None

    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        self._totals[span] = total
        for number in self._arrivals[span].add(start, end):
            tag = self._tag(number, span)
            for peer in self._peers:
                low, high = shard_of(self._buckets[number], peer, self._size)
                if low < high:
                    self._sent.append(self.post(self._transport.send, [total[low:high]], peer, tag))
                if peer == self._peers[0] and span == self._own[-1]:
                    self._crash_point(CrashPoint.ENGINE_IN_REDUCE)
            self._launch(span, number)
            if number < len(self._buckets) - 1:
                self._crash_point(CrashPoint.ENGINE_BUCKET)

    def _write_notes(self, row: torch.Tensor) -> None:
        self.table[self._rank] = row

    def run(self, wait: Callable[[Any], None]) -> None:
        received = self._received
        foreign = [span for span, owner in self._owners.items() if owner != self._rank]
        for number in range(min(_WINDOW, len(self._buckets))):
            received[number] = self._receive(number, foreign)
        for number, bucket in enumerate(self._buckets):
            began = time.monotonic()
            for _, work in received[number].values():
                wait(work)
            if self._asked is not None:
                self.waited += time.monotonic() - max(began, self._asked)
            if number == 0:
                self._begin_result()
            self._until(lambda: all(self._launched.get(span, 0) > number for span in self._own))  # noqa: B023
            self._sum(number, bucket, {span: shard for span, (shard, _) in received.pop(number).items()})
            if number + _WINDOW < len(self._buckets):
                received[number + _WINDOW] = self._receive(number + _WINDOW, foreign)
        self._until(lambda: self._noted)
        for peer in self._peers:
            self._sent.append(self.post(self._transport.send, [self.table[self._rank]], peer, TAG_NOTES))
        for works in (self._gathered, self._sent):
            while works:
                wait(works.pop())

    def result(self) -> torch.Tensor:
        assert self._result is not None
        return self._result

    def abandon(self) -> None:
        for held in (self._received, self._gathered, self._sent, self._totals):
            held.clear()
        self._result = None
        self._forget_sums()

    def _receive(self, number: int, spans: Sequence[Span]) -> dict[Span, tuple[torch.Tensor, Any]]:
        low, high = shard_of(self._buckets[number], self._rank, self._size)
        if low == high:
            return {}
        found = {}
        for span in spans:
            shard = self._sums.memory.arriving(number % _WINDOW, self._numbers[span], high - low)
            work = self.post(self._transport.recv, [shard], self._owners[span], self._tag(number, span))
            found[span] = shard, work
        return found

    def _begin_result(self) -> None:
        """Begin to receive the other ranks' shards of the result.

        Once every other rank has sent a sum of this step, it has applied the step before. So the memory of that step's
        result can be used again, unless there is a rank that sends no sums.
        """
        low, high = shard_of(self._buckets[0], self._rank, self._size)
        again = low < high and all(self._plan.spans)  # a rank without a shard has waited for nobody
        self.overwrites = again
        result = self._result = self._sums.memory.result(again=again)
        works = self._gathered
        for peer in self._peers:
            for number, bucket in enumerate(self._buckets):
                low, high = shard_of(bucket, peer, self._size)
                if low < high:
                    works.append(self.post(self._transport.recv, [result[low:high]], peer, _TAG_SHARDS + number))
            works.append(self.post(self._transport.recv, [self.table[peer]], peer, TAG_NOTES))

    def _sum(self, number: int, bucket: Bucket, arrived: dict[Span, torch.Tensor]) -> None:
        """Sum this rank's shard of a bucket, and send it to all other ranks."""
        assert self._result is not None
        low, high = shard_of(bucket, self._rank, self._size)
        if low < high:
            parts = arrived | {span: self._totals[span][low:high] for span in self._own}
            sum_upper_tree(self._plan.root, parts, frozenset(self._own), self._result[low:high])
        if number == len(self._buckets) - 1:
            self._crash_point(CrashPoint.ENGINE_BEFORE_GATHER)
        if low < high:
            for peer in self._peers:
                shard = self._result[low:high]
                self._sent.append(self.post(self._transport.send, [shard], peer, _TAG_SHARDS + number))

    def _tag(self, number: int, span: Span) -> int:
        return _TAG_SPANS + number * len(self._owners) + self._numbers[span]


class FastExchange(Exchange):
    """A reduction by gloo's all-reduce. Its bits depend on the number of ranks.

    Args:
        all_reduce: starts to sum a tensor over all ranks in place, and returns a work.
        others: as in ``Exchange``. The total of ``sums`` has room for each rank's notes at its end.
    """

    def __init__(self, all_reduce: Callable[[torch.Tensor], Any], *others: Any) -> None:
        super().__init__(*others)
        self._all_reduce = all_reduce
        self._arrivals = Arrivals(self._buckets)
        self._works: deque[Any] = deque()

    def ready(self, span: Span, total: torch.Tensor, start: int, end: int) -> None:
        assert self._sums.total is not None
        for number in self._arrivals.add(start, end):
            if number < len(self._buckets) - 1:  # the last bucket waits for the notes
                low, high = self._buckets[number]
                self._works.append(self.post(self._all_reduce, self._sums.total[low:high]))
                self._launch(span, number)

    def _write_notes(self, row: torch.Tensor) -> None:
        """Put them into the last bucket, and begin to reduce it."""
        assert self._sums.total is not None
        room = self._sums.total[self._sums.length :].view(self.table.shape)
        room.zero_()
        room[self._rank].copy_(row)
        self._works.append(self.post(self._all_reduce, self._sums.total[self._buckets[-1][0] :]))

    def run(self, wait: Callable[[Any], None]) -> None:
        for _ in self._buckets:
            self._until(lambda: bool(self._works))
            wait(self._works.popleft())
        assert self._sums.total is not None
        self.table.copy_(self._sums.total[self._sums.length :].view(self.table.shape))

    def result(self) -> torch.Tensor:
        return self._sums.whole

    def abandon(self) -> None:
        self._works.clear()
        self._forget_sums()
