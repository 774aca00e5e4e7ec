"""The order of work on a device, seen from two threads: the one that trains, and the one that exchanges sums.

On a processor, work is done when the call that does it returns, so there is nothing to order. On a GPU, calls only
launch work. A *stream* is the order in which the exchanging thread's work runs there. It waits for events, which the
training thread records when it has launched what the exchange needs. The names are those of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch


class Stream(Protocol):
    """The order of an exchange's work on one device."""

    def record_event(self) -> Any:
        """Return an event that has happened when all work is done that the calling thread has launched elsewhere."""

    def wait_event(self, event: Any) -> None:
        """Let all later work of this stream run after an ``event``."""

    def launching(self) -> AbstractContextManager[Any]:
        """A context in which the calling thread launches work of this stream."""

    def synchronize(self) -> None:
        """Wait until all work of this stream is done, also if it failed. The calling thread may hold no lock."""

    def record_use(self, tensor: torch.Tensor) -> None:
        """Keep the memory of ``tensor`` until this stream's work is done, also if nobody refers to the tensor."""


class HostStream:
    """A stream on processors."""

    def record_event(self) -> None:
        return None

    def wait_event(self, event: None) -> None:
        """Nothing: the work is done."""

    def launching(self) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronize(self) -> None:
        """Nothing: the work is done."""

    def record_use(self, tensor: torch.Tensor) -> None:
        """Nothing: no work goes on without a reference."""


class CudaStream:
    """A stream on a GPU. Its work goes before that of passes, since other engines wait for it.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]

    def record_event(self) -> torch.cuda.Event:
        found = torch.cuda.Event()  # type: ignore[no-untyped-call]
        found.record(torch.cuda.current_stream(self._device))
        return found

    def wait_event(self, event: torch.cuda.Event) -> None:
        self._stream.wait_event(event)

    def launching(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return found

    def synchronize(self) -> None:
        self._stream.synchronize()

    def record_use(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(self._stream)


def stream_on(device: torch.device) -> Stream:
    """Return a stream on a device."""
    return CudaStream(device) if device.type == "cuda" else HostStream()


def wait_for_device(device: torch.device) -> Callable[[], None]:
    """Return a function that waits for all that the calling thread has launched on a device so far."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
