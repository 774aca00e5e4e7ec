"""Micro-batches made of a user's samples, by loader processes or in the engine itself.

What a batch holds depends on its samples alone, so neither the number of loader processes nor the number of engines
changes it. Loader processes are those of torch's DataLoader. They are forked when the loader is made, before the engine
has threads of its own or a network.

Their batches come in memory that they share with the engine, without /dev/shm: torch carries tensors between processes
in files there, which in a container has 64 MB unless somebody asks for more. The buffers here are memory without a file
system (memfd), made before the loader processes are forked and used again and again: their pages are there already, so
that nothing is cleared or faulted in for each batch. The engine names the buffer that a batch is to be written to, and
works on the batch where it lies; the buffer is free again when nothing refers to the batch any more. A batch for which
no buffer is free goes through the pipe.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from edt_contract import processes
from edt_runner.adapter import BatchRequest
from edt_runner.errors import HelperLost, is_lost_helper
from edt_runner.frameworks.trainable import Samples
from edt_runner.schedule import Schedule, Step, StepKind

_AHEAD = 2
"""Batches that each loader process prepares."""
_IN_USE = 4
"""Batches that an engine may be working on, or has kept."""


_LoadRequest = tuple[BatchRequest, int | None]
"""A batch that a loader process shall make, and the shared buffer for it."""


def batch_requests(schedule: Schedule, seed: int, step: Step, micro_batches: Iterable[int]) -> Iterator[BatchRequest]:
    """Of these micro-batches of a step those that have samples."""
    for index in micro_batches:
        indices = schedule.samples(seed, step, index)
        if len(indices):
            yield BatchRequest(step.kind, step.epoch, indices)


class SampleLoader:
    """Loads micro-batches, ahead of the training where it has processes.

    Args:
        samples: the user's data, as batches.
        processes: loader processes; 0: load in the engine.
    """

    def __init__(self, samples: Samples, processes: int) -> None:
        self._samples = samples
        self._requests: Iterator[BatchRequest] = iter(())
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] | None = None
        self._shared = SharedBuffers(processes * _AHEAD + _IN_USE if processes else 0)
        if processes:
            self._loader = DataLoader(
                _Loads(self._samples, self._shared),
                batch_sampler=self,  # type: ignore[arg-type]  # a request is more than a list of keys
                num_workers=processes,
                prefetch_factor=_AHEAD,
                collate_fn=lambda batch: batch,  # the samples have collated it already
                persistent_workers=True,
                multiprocessing_context="fork",
                worker_init_fn=functools.partial(_enter_loader, os.getpid(), samples),
            )
            self._batches = iter(self._loader)  # forks now; nothing has been asked for

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        """Forget earlier requests, and load these, in order."""
        self._requests = requests
        if self._loader is not None:
            self._batches = iter(self._loader)  # the same processes; what they were making is dropped

    def next(self) -> Any:
        """The batch of the next request, as the samples make it: tensors in host memory.

        Raises:
            HelperLost: a loader process was killed.
        """
        if self._loader is not None:
            try:
                return self._shared.unpack(next(self._batches))
            except RuntimeError as error:
                if is_lost_helper(error):
                    raise HelperLost(f"a loader process was ended: {error}") from error
                raise
        return _batch(self._samples, next(self._requests))

    def close(self) -> None:
        """End the loader processes."""
        batches, self._batches, self._loader = self._batches, iter(()), None
        if end := getattr(batches, "_shutdown_workers", None):
            end()  # its destructor runs late once a sample has raised: an exception refers to it
        self._shared.close()

    def __iter__(self) -> Iterator[_LoadRequest]:
        """As torch's batch sampler: the requests since the last ``restart``, in order. Those before it have been
        dropped by now."""
        self._shared.release_reserved()
        for request in self._requests:
            yield request, self._shared.reserve()


class _Loads(Dataset[Any]):
    """In a loader process: makes the batch of a request and packs it."""

    def __init__(self, samples: Samples, shared: SharedBuffers) -> None:
        self._samples, self._shared = samples, shared

    def __getitems__(self, wanted: _LoadRequest) -> PackedBatch:
        request, buffer = wanted
        return self._shared.pack(_batch(self._samples, request), buffer)


def _batch(samples: Samples, request: BatchRequest) -> Any:
    return samples.batch(request.kind is StepKind.TRAIN, request.epoch, request.indices.tolist())


def _enter_loader(engine: int, samples: Samples, number: int) -> None:
    """What a loader process does first: it arranges to end with its engine, and prepares the samples."""
    processes.die_with(engine)
    samples.enter_loader()


_ALIGNED = 64
_SLACK = 1.25
"""A buffer that grows becomes larger than it must be by this factor, since batches differ in size."""
_SPARSE = 4
"""A tensor whose elements lie further apart than so many elements is sent without what is between them."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch on its way from a loader process to its engine."""

    pickled: bytes
    """Everything but the arrays that are in the shared buffer."""
    buffer: int | None
    """The number of the shared buffer that holds the arrays; None: they are in ``pickled``."""
    places: tuple[tuple[int, int], ...] = ()
    """Offset and length of each array in the shared buffer, in bytes."""


class SharedBuffers:
    """A fixed number of buffers in shared memory. ``reserve``, ``release_reserved`` and ``unpack`` are called by the
    engine, ``pack`` by its loader processes.

    Args:
        number: of buffers; 0: every batch goes through the pipe.
    """

    def __init__(self, number: int) -> None:
        self._files = [os.memfd_create(f"edt-batch-{n}", os.MFD_CLOEXEC) for n in range(number)]
        self._maps: dict[int, mmap.mmap] = {}
        self._free = list(range(number))
        self._reserved: set[int] = set()

    def reserve(self) -> int | None:
        """The number of a buffer for a batch that will be requested; None: all are in use."""
        if not self._free:
            return None
        buffer = self._free.pop()
        self._reserved.add(buffer)
        return buffer

    def release_reserved(self) -> None:
        """Free the buffers of batches that were requested and have not come: they never will."""
        self._free.extend(self._reserved)
        self._reserved.clear()

    def pack(self, batch: Any, buffer: int | None) -> PackedBatch:
        """In a loader process: pickle ``batch``, with its arrays written to a shared buffer (None: through the
        pipe)."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = io.BytesIO()
        _Pickler(pickled, protocol=5, buffer_callback=None if buffer is None else buffers.append).dump(batch)
        if buffer is None:
            return PackedBatch(pickled.getvalue(), None)
        arrays = [each.raw() for each in buffers]
        places = tuple(_places([array.nbytes for array in arrays]))
        memory = self._memory(buffer, sum(places[-1]) if places else 0, grow=True)
        for (offset, length), array in zip(places, arrays, strict=True):
            if length:
                memory[offset : offset + length] = np.frombuffer(array, np.uint8)
        return PackedBatch(pickled.getvalue(), buffer, places)

    def unpack(self, packed: PackedBatch) -> Any:
        """In the engine: the batch. Its buffer is in use as long as anything refers to a part of it."""
        if packed.buffer is None:
            return pickle.loads(packed.pickled)  # noqa: S301 - written by our own child
        self._reserved.discard(packed.buffer)
        memory = self._memory(packed.buffer, sum(packed.places[-1]) if packed.places else 0)
        weakref.finalize(memory, self._free.append, packed.buffer).atexit = False
        views = [memory[offset : offset + length] for offset, length in packed.places]
        return pickle.loads(packed.pickled, buffers=views)  # noqa: S301 - written by our own child

    def close(self) -> None:
        """No batch will come any more; those that have come stay as they are."""
        for file in self._files:
            os.close(file)
        self._files, self._free = [], []

    def _memory(self, buffer: int, size: int, *, grow: bool = False) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A view of a buffer's first ``size`` bytes. ``grow``: make it larger if it is smaller; other processes' views
        stay as they are."""
        file = self._files[buffer]
        if grow and os.fstat(file).st_size < size:
            os.ftruncate(file, -(-int(size * _SLACK) // mmap.PAGESIZE) * mmap.PAGESIZE)
        known = self._maps.get(buffer)
        if known is None or len(known) < size:
            known = self._maps[buffer] = mmap.mmap(file, max(os.fstat(file).st_size, mmap.PAGESIZE))
        return np.frombuffer(known, np.uint8, count=size)


class _Pickler(pickle.Pickler):
    """Pickles a plain tensor as its bytes and its shape, and everything else as always."""

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
    """Offset and length of arrays that lie one after the other, each aligned to 64 bytes."""
    offset = 0
    for length in lengths:
        yield offset, length
        offset += -(-length // _ALIGNED) * _ALIGNED
