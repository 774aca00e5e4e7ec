"""Copies between a GPU and host memory that run beside the training.

A GPU runs the training's kernels in one stream, in their order. A copy in that stream would wait for every kernel
before it, and every later kernel would wait for the copy. So copies have a stream of their own. It waits only for the
moment from which on the tensors hold what is to be copied. Memory on the host is pinned; otherwise the thread that
begins a copy would have to wait for its end.

Tensors in host memory are used as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from edt_runner.adapter import State

PIECE_BYTES = 8 << 20
"""The most bytes of a tensor that go through pinned memory at a time."""


class Copied(Protocol):
    """A point of a stream of copies."""

    def synchronize(self) -> None:
        """Wait until all copies before this point are complete."""


class SideStream:
    """A stream of copies between a GPU and host memory. Only one thread at a time uses it.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def after(self, moment: Any) -> None:
        """Let all later copies wait for a ``moment``."""
        self.stream.wait_event(moment)

    def contiguous(self, tensor: Tensor) -> Tensor:
        """The tensor itself, or a copy of it on the GPU if it is not contiguous."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            tensor.record_stream(self.stream)
            return tensor.detach().contiguous()

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Begin a copy. The tensors must not change before it is complete, which ``mark`` tells. If they are dropped
        before that, nobody gets their memory."""
        with torch.no_grad(), torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)
            for tensor in (target, source):
                if tensor.is_cuda:
                    tensor.record_stream(self.stream)

    def mark(self) -> Copied:
        """The point behind all copies that have begun."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # who waits for it, sleeps
        event.record(self.stream)
        return event

    def memory(self, size: int) -> Tensor:
        """New pinned memory of ``size`` bytes, as a tensor of shape (size,) and type uint8."""
        return pinned((size,), torch.uint8)


@functools.cache
def side_stream(device: torch.device, use: str) -> SideStream:
    """The stream of copies for one use. It is made once: memory that a stream frees on the GPU is its own again.

    Args:
        device: the GPU.
        use: a name; copies for different uses do not wait for each other.
    """
    return SideStream(device)


def is_away(tensor: Tensor) -> bool:
    """Whether a tensor is on a GPU."""
    return tensor.is_cuda


def pinned(shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """New memory on the host, pinned if the machine allows that. With other memory, copies only take longer."""
    try:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
    except RuntimeError:  # no more memory can be pinned
        return torch.empty(tuple(shape), dtype=dtype)


def moment(tensors: Iterable[Tensor]) -> Any:
    """The present point of the stream in which this thread computes on the GPU of ``tensors``. Everything that has been
    begun there comes before it. None: no tensor is on a GPU."""
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    return torch.cuda.current_stream(device).record_event() if device is not None else None


def marked(export: Callable[[], State]) -> Callable[[], State]:
    """A function that exports a state as ``export`` does, and notes since which moment the tensors hold it.

    The thread that trains calls it. Another thread can then copy the state beside everything that the training has
    begun since then.
    """

    def run() -> State:
        state = export()
        return replace(state, ready=moment(state.tensors.values()))

    return run


@contextmanager
def beside(ready: Any) -> Iterator[None]:
    """A context in which this thread computes and copies beside the training, and at whose end all of it is done.

    Args:
        ready: the ``moment`` after which it begins; None: there is nothing on a GPU.
    """
    if ready is None:
        yield
        return
    side = side_stream(ready.device, "files")
    side.after(ready)
    with torch.cuda.stream(side.stream):
        yield
    side.mark().synchronize()


def bytes_of(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, as a view of shape (bytes,) and type uint8."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def in_host_memory(tensors: Iterable[Tensor], ready: Any = None) -> Iterator[Tensor]:
    """Yield each tensor, contiguous and in host memory. One that is there already is not copied.

    A tensor on a GPU goes through two pieces of pinned memory: while one is moved to its place, the next one arrives.

    Args:
        tensors: the tensors, which do not change meanwhile.
        ready: the ``moment`` since when the tensors hold what is to be copied; None: that of this call.
    """
    side: SideStream | None = None
    pieces: list[Tensor] = []
    for tensor in tensors:
        if not is_away(tensor):
            yield tensor.detach().contiguous()
            continue
        if side is None:
            side = side_stream(tensor.device, "reading")
            side.after(ready or moment([tensor]))
            pieces = [side.memory(PIECE_BYTES), side.memory(PIECE_BYTES)]
        found = torch.empty(tensor.shape, dtype=tensor.dtype)
        if tensor.numel():
            _copy(side, pieces, bytes_of(found), bytes_of(side.contiguous(tensor)))
        yield found


def _copy(side: SideStream, pieces: list[Tensor], target: Tensor, source: Tensor) -> None:
    """Copy bytes from a GPU to host memory that need not be pinned."""
    parts = list(zip(torch.split(target, PIECE_BYTES), torch.split(source, PIECE_BYTES), strict=True))
    arriving: list[tuple[Tensor, Tensor, Copied]] = []
    for number, (place, part) in enumerate(parts):
        piece = pieces[number % 2][: len(part)]
        side.copy(piece, part)
        arriving.append((place, piece, side.mark()))
        if number:
            _arrive(*arriving.pop(0))
    _arrive(*arriving.pop())


def _arrive(place: Tensor, piece: Tensor, copied: Copied) -> None:
    copied.synchronize()
    place.copy_(piece)
