"""The order of work on a device, seen from two threads: the one that trains, and the one that exchanges sums.

On a processor, work is done when the call that does it returns, so there is nothing to order. On a GPU, calls only
launch work. A *lane* is the order in which the exchanging thread's work runs there. It waits for marks, which the
training thread sets when it has launched what the exchange needs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch


class Lane(Protocol):
    """The order of an exchange's work on one device."""

    def mark(self) -> Any:
        """Return a mark of all work that the calling thread has launched."""

    def after(self, mark: Any) -> None:
        """Let all later work of this lane run after the work of ``mark``."""

    def running(self) -> AbstractContextManager[Any]:
        """A context in which the calling thread launches work of this lane."""

    def finish(self) -> None:
        """Wait until all work of this lane is done, also if it failed. The calling thread may hold no lock."""

    def uses(self, tensor: torch.Tensor) -> None:
        """Keep the memory of ``tensor`` until this lane's work is done, also if nobody refers to the tensor."""


class HostLane:
    """A lane on processors."""

    def mark(self) -> None:
        return None

    def after(self, mark: None) -> None:
        """Nothing: the work is done."""

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self) -> None:
        """Nothing: the work is done."""

    def uses(self, tensor: torch.Tensor) -> None:
        """Nothing: no work goes on without a reference."""


class CudaLane:
    """A lane on a GPU: a CUDA stream. Its work goes before that of passes, since other engines wait for it.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event:
        found = torch.cuda.Event()  # type: ignore[no-untyped-call]
        found.record(torch.cuda.current_stream(self._device))
        return found

    def after(self, mark: torch.cuda.Event) -> None:
        self._stream.wait_event(mark)

    def running(self) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return found

    def finish(self) -> None:
        self._stream.synchronize()

    def uses(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(self._stream)


def lane_on(device: torch.device) -> Lane:
    """Return a lane on a device."""
    return CudaLane(device) if device.type == "cuda" else HostLane()


def wait_for_device(device: torch.device) -> Callable[[], None]:
    """Mark what the calling thread has launched on a device. Returns a function that waits for it."""
    if device.type != "cuda":
        return lambda: None
    mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
    mark.record(torch.cuda.current_stream(device))
    return mark.synchronize
