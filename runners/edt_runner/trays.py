"""Trays: how a batch comes from a loader process to its engine without /dev/shm. Room: runners; torch, shared memory.

torch carries tensors between processes in files on /dev/shm, which in a container has 64 MB unless somebody asks for
more. A tray is memory without a file system (memfd), made before the loader processes are forked and used again and
again: its pages are there already, so that nothing is cleared or faulted in for each batch. The engine says which tray
a batch is to be put on, and works on it where it lies; the tray is free again when nothing of the batch is referred to
any more. A batch for which none is free goes through the pipe.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

_ALIGNED = 64
_SLACK = 1.25
"""Batches differ in size: a tray that grows gets some more."""
_SPARSE = 4
"""A tensor whose elements lie further apart travels without what is between them."""


@dataclass(frozen=True)
class Load:
    """A batch on its way: everything but the large arrays, and where these lie."""

    words: bytes
    tray: int | None
    places: tuple[tuple[int, int], ...] = ()
    """Offset and length of each array on its tray."""
    arrays: tuple[bytes, ...] = ()
    """The arrays themselves, where there is no tray."""


class Trays:
    """A fixed number of them. ``order`` and ``take`` belong to the engine, ``put`` to its loader processes."""

    def __init__(self, number: int) -> None:
        self._files = [os.memfd_create(f"edt-tray-{n}", os.MFD_CLOEXEC) for n in range(number)]
        self._maps: dict[int, mmap.mmap] = {}
        self._free = list(range(number))
        self._ordered: set[int] = set()

    def order(self) -> int | None:
        """A tray for a batch that is about to be asked for; None: all are in use."""
        if not self._free:
            return None
        tray = self._free.pop()
        self._ordered.add(tray)
        return tray

    def forget_orders(self) -> None:
        """Whatever was asked for and has not come never will."""
        self._free.extend(self._ordered)
        self._ordered.clear()

    def put(self, batch: Any, tray: int | None) -> Load:
        """In a loader process: the batch, its arrays on the tray."""
        buffers: list[pickle.PickleBuffer] = []
        words = io.BytesIO()
        _Pickler(words, protocol=5, buffer_callback=buffers.append).dump(batch)
        arrays = [buffer.raw() for buffer in buffers]
        if tray is None:
            return Load(words.getvalue(), None, arrays=tuple(bytes(array) for array in arrays))
        places = tuple(_places([array.nbytes for array in arrays]))
        memory = self._memory(tray, sum(places[-1]) if places else 0, grow=True)
        for (offset, length), array in zip(places, arrays, strict=True):
            if length:
                memory[offset : offset + length] = np.frombuffer(array, np.uint8)
        return Load(words.getvalue(), tray, places)

    def take(self, load: Load) -> Any:
        """In the engine: the batch. Its tray is in use as long as anything refers to it."""
        if load.tray is None:
            return pickle.loads(load.words, buffers=[bytearray(array) for array in load.arrays])  # noqa: S301 - ours
        self._ordered.discard(load.tray)
        memory = self._memory(load.tray, sum(load.places[-1]) if load.places else 0)
        weakref.finalize(memory, self._free.append, load.tray).atexit = False
        buffers = [memory[offset : offset + length] for offset, length in load.places]
        return pickle.loads(load.words, buffers=buffers)  # noqa: S301 - written by our own child

    def close(self) -> None:
        """No batch will come any more; those that are here stay as they are."""
        for file in self._files:
            os.close(file)
        self._files, self._free = [], []

    def _memory(self, tray: int, size: int, *, grow: bool = False) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A view of a tray's first ``size`` bytes. Whoever grows it leaves what is mapped elsewhere as it is."""
        file = self._files[tray]
        if grow and os.fstat(file).st_size < size:
            os.ftruncate(file, _pages(int(size * _SLACK)))
        known = self._maps.get(tray)
        if known is None or len(known) < size:
            known = self._maps[tray] = mmap.mmap(file, max(os.fstat(file).st_size, mmap.PAGESIZE))
        return np.frombuffer(known, np.uint8, count=size)


class _Pickler(pickle.Pickler):
    """As always, but a plain tensor is its bytes and its shape."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor or not _is_plain(obj):
            return NotImplemented
        # It arrives with the strides that it had: a convolution's bits depend on them.
        strides = tuple(obj.stride())
        extent = 1 + sum((size - 1) * stride for size, stride in zip(obj.shape, strides, strict=True))
        far_apart = extent > _SPARSE * obj.numel() and 0 not in strides
        flat = obj.contiguous().view(-1) if far_apart else obj.detach().as_strided((extent,), (1,))
        data: Any = flat.view(torch.uint8).numpy()
        return _rebuilt, (pickle.PickleBuffer(data), obj.dtype, tuple(obj.shape), strides, far_apart)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _rebuilt(
    data: Any, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], far_apart: bool
) -> torch.Tensor:
    flat = torch.frombuffer(data, dtype=dtype)
    if far_apart:
        return torch.empty_strided(shape, strides, dtype=dtype).copy_(flat.view(shape))
    return flat.as_strided(shape, strides)


def _places(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    offset = 0
    for length in lengths:
        yield offset, length
        offset += -(-length // _ALIGNED) * _ALIGNED


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
