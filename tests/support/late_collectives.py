"""Collectives that break as NCCL's do, between threads of one process, on tensors in host memory.

* What is launched runs later, on a device: a thread that works in order. Until then outputs have other values.
* Operations have no tags: the n-th of one rank belongs to the n-th of each other rank, whatever it is.
* An operation waits for all ranks for ever. An abort ends it, and leaves its output undefined. It also ends the same
  operation of the other ranks, which wait for what the aborted rank would have passed on to them, without an error.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edt_runner.comm.collectives import Wait

LATE_SECONDS = 0.003
"""By which each operation is late."""


class Hub:
    """What connects the devices of ``size`` ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.orders: list[list[str]] = [[] for _ in range(size)]
        """What each rank's device has begun, in its order."""
        self._told = threading.Condition()
        self._given: dict[tuple[int, int], Sequence[torch.Tensor]] = {}
        self._broken: set[int] = set()
        """Operations that an abort has ended."""
        self.dead: int | None = None
        """The rank whose device does nothing any more from its next operation on."""

    def exchange(
        self, rank: int, number: int, given: Sequence[torch.Tensor], aborted: threading.Event
    ) -> list[Sequence[torch.Tensor]] | None:
        """Give what this rank sends in its operation ``number``, and wait for the others. None: it was aborted."""
        with self._told:
            while self.dead == rank and not aborted.is_set():
                self._told.wait(0.005)
            self._given[rank, number] = given
            self._told.notify_all()
            while not all((other, number) in self._given for other in range(self.size)):
                if aborted.is_set():
                    self._broken.add(number)
                    self._told.notify_all()
                    return None
                if number in self._broken:
                    break
                self._told.wait(0.005)
            undefined = [torch.full_like(each, torch.nan) for each in given]
            return [self._given.get((other, number), undefined) for other in range(self.size)]


@dataclass(frozen=True)
class LateEvent:
    """Of what has been launched so far, as a CUDA event."""

    stream: LateStream
    launched: int

    def query(self) -> bool:
        return self.stream.has_done(self.launched)


class LateStream:
    """A device: what is launched on it runs late, on a thread, in order."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._launched = self._done = 0
        threading.Thread(target=self._run, daemon=True).start()

    def launch(self, work: Callable[[], None]) -> None:
        self._launched += 1
        self._work.put(work)

    def record_event(self) -> LateEvent:
        return LateEvent(self, self._launched)

    def wait_event(self, event: LateEvent) -> None:
        """The thread that trains computes at once."""

    def has_done(self, launched: int) -> bool:
        return self._done >= launched

    @contextmanager
    def launching(self) -> Iterator[None]:
        with _Later(self):
            yield

    def synchronize(self) -> None:
        while self._done < self._launched:
            time.sleep(0.001)

    def record_use(self, tensor: torch.Tensor) -> None:
        """Python keeps it."""

    def _run(self) -> None:
        while True:
            work = self._work.get()
            time.sleep(LATE_SECONDS)
            work()
            self._done += 1


class _Later(TorchDispatchMode):
    """Lets every operation of torch that writes into a tensor run on a device, later."""

    def __init__(self, stream: LateStream) -> None:
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if not func._schema.is_mutable:
            return func(*args, **named)
        self._stream.launch(lambda: func(*args, **named))
        return named.get("out", args[0])


class LateCollectives:
    """One rank's collectives."""

    name = "late"

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self._rank, self._number = hub, rank, 0
        self.stream = LateStream()
        self._aborted = threading.Event()

    def connect_all(self) -> None:
        """Nothing."""

    def all_to_all(
        self, wait: Wait, out: torch.Tensor, source: torch.Tensor, out_sizes: Sequence[int], sizes: Sequence[int]
    ) -> None:
        def take(others: list[Sequence[torch.Tensor]]) -> None:
            for place, other in zip(torch.split(out, list(out_sizes)), others, strict=True):
                place.copy_(other[self._rank])

        self._launch("all-to-all", torch.split(source, list(sizes)), out, take)

    def all_gather(self, wait: Wait, out: torch.Tensor, rank: int) -> None:
        parts = torch.chunk(out, self._hub.size)

        def take(others: list[Sequence[torch.Tensor]]) -> None:
            for place, other in zip(parts, others, strict=True):
                place.copy_(other[0])

        self._launch("all-gather", [parts[rank]], out, take)

    def all_reduce(self, wait: Wait, tensor: torch.Tensor) -> None:
        def take(others: list[Sequence[torch.Tensor]]) -> None:
            tensor.copy_(torch.stack([other[0] for other in others]).sum(0))

        self._launch("all-reduce", [tensor], tensor, take)

    def abort(self) -> None:
        self._aborted.set()

    def _launch(
        self,
        kind: str,
        given: Sequence[torch.Tensor],
        out: torch.Tensor,
        take: Callable[[list[Sequence[torch.Tensor]]], None],
    ) -> None:
        number, self._number = self._number, self._number + 1

        def work() -> None:
            self._hub.orders[self._rank].append(kind)
            sent = [each.clone() for each in given]
            out.fill_(torch.nan)
            others = None if self._aborted.is_set() else self._hub.exchange(self._rank, number, sent, self._aborted)
            if others is not None:
                take(others)

        self.stream.launch(work)
