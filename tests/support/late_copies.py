"""A stream of copies for tensors in host memory that behaves as badly as a GPU's may.

A copy does nothing before somebody waits for its end. Until then its target holds rubbish. So a test sees whether code
reads a tensor too early, or uses memory again too early.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from edt_runner import host_copies

RUBBISH = 0xEE


_DONE = (torch.empty(0), torch.empty(0))


class LateCopies:
    """Stands in for a ``host_copies.SideStream``.

    Args:
        may_end: while it is not set, no copy ends.
    """

    def __init__(self, may_end: threading.Event) -> None:
        self.may_end = may_end
        self._begun: list[tuple[Tensor, Tensor]] = []
        self._staged: list[Tensor] = []
        self.moments: list[Any] = []
        self.to_host = self.to_device = 0
        """Bytes that were copied to memory of ``memory``, and from there."""

    def after(self, moment: Any) -> None:
        assert not self._begun
        self.moments.append(moment)

    def contiguous(self, tensor: Tensor) -> Tensor:
        return tensor.detach().contiguous()

    def copy(self, target: Tensor, source: Tensor) -> None:
        assert self.moments, "a copy waits for nothing"
        from_host = any(source.untyped_storage().data_ptr() == own.data_ptr() for own in self._staged)
        if from_host:
            self.to_device += target.nbytes
        else:
            self.to_host += target.nbytes
        host_copies.bytes_of(target).fill_(RUBBISH)
        self._begun.append((target, source))

    def mark(self) -> Point:
        return Point(self, len(self._begun))

    def memory(self, size: int) -> Tensor:
        self._staged.append(torch.full((size,), RUBBISH, dtype=torch.uint8))
        return self._staged[-1]

    @property
    def memory_bytes(self) -> int:
        """Bytes of all memory on the host that was asked for."""
        return sum(map(len, self._staged))

    def end(self, copies: int) -> None:
        for number, (target, source) in enumerate(self._begun[:copies]):
            target.copy_(source)
            self._begun[number] = _DONE


class Point:
    """The point behind some copies of a stream."""

    def __init__(self, stream: LateCopies, copies: int) -> None:
        self._stream, self._copies = stream, copies

    def synchronize(self) -> None:
        assert self._stream.may_end.wait(60)
        self._stream.end(self._copies)


class StandIn:
    """Lets ``host_copies`` take some tensors in host memory for those of a GPU.

    Args:
        monkeypatch: pytest's.
        away: whether a tensor is one of them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, away: Callable[[Tensor], bool]) -> None:
        self.made: list[LateCopies] = []
        """The streams that were made."""
        self.may_end = threading.Event()
        """While it is not set, no copy ends."""
        self.may_end.set()
        monkeypatch.setattr(host_copies, "side_stream", self._make)
        monkeypatch.setattr(host_copies, "is_away", away)
        monkeypatch.setattr(host_copies, "moment", lambda tensors: "now" if any(map(away, tensors)) else None)

    def _make(self, device: torch.device, use: str) -> LateCopies:
        self.made.append(LateCopies(self.may_end))
        return self.made[-1]
