"""Loads micro-batches of a user's samples, in loader processes or in the engine itself.

The contents of a batch depend on its samples alone. So neither the number of loader processes nor the number of engines
changes them. The loader processes are those of torch's DataLoader. They are forked when the loader is made, before the
engine has threads or a network.

Batches come to the engine in memory that it shares with the loader processes, without /dev/shm. torch normally sends
tensors between processes in files in /dev/shm, which has only 64 MB in a container by default. The buffers here are
memory without a file system (memfd). They are made before the loader processes are forked, and are used again and
again. So their pages exist already, and the kernel need not clear or map pages for each batch. The engine chooses the
buffer to which a batch is written, and uses the batch in that place. The buffer is free again when nothing refers to
the batch. If no buffer is free, a batch is sent through the pipe.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""How many batches each loader process prepares in advance."""
_IN_USE = 4
"""How many more buffers there are, for batches that the engine uses or has kept."""


_LoadRequest = tuple[BatchRequest, int | None]
"""A batch that a loader process shall make, and the number of the shared buffer for it (None: the pipe)."""


def batch_requests(schedule: Schedule, seed: int, step: Step, micro_batches: Iterable[int]) -> Iterator[BatchRequest]:
    """Yield a request for each of these micro-batches of ``step`` that has samples.

    Args:
        schedule: schedule of the training.
        seed: seed of the job.
        step: the step.
        micro_batches: numbers of micro-batches of the step.
    """
    for index in micro_batches:
        indices = schedule.samples(seed, step, index)
        if len(indices):
            yield BatchRequest(step.kind, step.epoch, indices)


class SampleLoader:
    """Loads micro-batches. With loader processes, it loads them in advance.

    Args:
        samples: the user's data.
        processes: number of loader processes; 0: load in the engine.
    """

    def __init__(self, samples: Samples, processes: int) -> None:
        self._samples = samples
        self._requests: Iterator[BatchRequest] = iter(())
        self._prepared: list[tuple[Any, Exception | None]] = []
        """The batch of the next request, or the error that came in its place; empty: it is not loaded yet."""
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] | None = None
        self._shared = SharedBuffers(processes * _AHEAD + _IN_USE if processes else 0)
        if processes:
            self._loader = DataLoader(
                _Loads(self._samples, self._shared),
                batch_sampler=self,  # type: ignore[arg-type]  # a request is more than a list of keys
                num_workers=processes,
                prefetch_factor=_AHEAD,
                collate_fn=lambda batch: batch,  # the batch is collated already
                persistent_workers=True,
                multiprocessing_context="fork",
                worker_init_fn=functools.partial(_enter_loader, os.getpid(), samples),
            )
            self._batches = iter(self._loader)  # forks the processes now, before there are requests

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        """Forget earlier requests, and load the batches of ``requests`` in order."""
        self._requests = requests
        self._prepared.clear()
        if self._loader is not None:
            self._batches = iter(self._loader)  # the same processes; the batches in work are dropped

    def next(self) -> Any:
        """Return the batch of the next request, with tensors in host memory, or what ``prepare`` has made of it.

        Raises:
            HelperLost: a loader process was killed.
        """
        if not self._prepared:
            return self._load()
        batch, error = self._prepared.pop()
        if error is not None:
            raise error
        return batch

    def prepare(self, place: Callable[[Any], Any]) -> None:
        """Load the batch of the next request now, while a GPU computes.

        Args:
            place: is called with the batch; ``next`` returns what it returns.
        """
        if self._prepared:
            return
        try:
            self._prepared.append((place(self._load()), None))
        except StopIteration:
            pass  # it was the last
        except Exception as error:
            self._prepared.append((None, error))  # for the step that needs the batch

    def _load(self) -> Any:
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
            end()  # after an exception in a sample, the destructor would run late: the exception refers to the object
        self._shared.close()

    def __iter__(self) -> Iterator[_LoadRequest]:
        """Yield the requests since the last ``restart``, in order, as torch's batch sampler. Earlier requests have been
        dropped."""
        self._shared.release_reserved()
        for request in self._requests:
            yield request, self._shared.reserve()


class _Loads(Dataset[Any]):
    """Makes and packs the batch of a request, in a loader process."""

    def __init__(self, samples: Samples, shared: SharedBuffers) -> None:
        self._samples, self._shared = samples, shared

    def __getitems__(self, wanted: _LoadRequest) -> PackedBatch:
        request, buffer = wanted
        return self._shared.pack(_batch(self._samples, request), buffer)


def _batch(samples: Samples, request: BatchRequest) -> Any:
    return samples.batch(request.kind is StepKind.TRAIN, request.epoch, request.indices.tolist())


def _enter_loader(engine: int, samples: Samples, number: int) -> None:
    """Start a loader process: let it end together with its engine, and prepare the samples."""
    processes.die_with(engine)
    samples.enter_loader()


_ALIGNED = 64
_SLACK = 1.25
"""A buffer that must grow becomes larger than needed by this factor, because batches differ in size."""
_SPARSE = 4
"""A tensor whose memory spans more than this many times its number of elements is sent without the gaps between its
elements."""


@dataclass(frozen=True)
class PackedBatch:
    """A batch in the form in which a loader process sends it to its engine."""

    pickled: bytes
    """The pickled batch without the arrays that are in the shared buffer."""
    buffer: int | None
    """The number of the shared buffer that holds the arrays; None: they are in ``pickled``."""
    places: tuple[tuple[int, int], ...] = ()
    """Offset and length of each array in the shared buffer, in bytes."""


class SharedBuffers:
    """A fixed number of buffers in shared memory. The engine calls ``reserve``, ``release_reserved`` and ``unpack``;
    its loader processes call ``pack``.

    Args:
        number: number of buffers; 0: every batch is sent through the pipe.
    """

    def __init__(self, number: int) -> None:
        self._files = [os.memfd_create(f"edt-batch-{n}", os.MFD_CLOEXEC) for n in range(number)]
        self._maps: dict[int, mmap.mmap] = {}
        self._free = list(range(number))
        self._reserved: set[int] = set()

    def reserve(self) -> int | None:
        """Reserve a buffer for a batch that will be requested. Returns its number; None: all buffers are in use."""
        if not self._free:
            return None
        buffer = self._free.pop()
        self._reserved.add(buffer)
        return buffer

    def release_reserved(self) -> None:
        """Free the buffers of batches that were requested and have not arrived. These batches will not arrive any
        more."""
        self._free.extend(self._reserved)
        self._reserved.clear()

    def pack(self, batch: Any, buffer: int | None) -> PackedBatch:
        """Pickle ``batch`` in a loader process. Its arrays are written to the shared buffer number ``buffer``; None:
        the arrays are part of the pickle."""
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
        """Return the batch, in the engine. Its buffer stays in use as long as anything refers to a part of the
        batch."""
        if packed.buffer is None:
            return pickle.loads(packed.pickled)  # noqa: S301 - written by our own child
        self._reserved.discard(packed.buffer)
        memory = self._memory(packed.buffer, sum(packed.places[-1]) if packed.places else 0)
        weakref.finalize(memory, self._free.append, packed.buffer).atexit = False
        views = [memory[offset : offset + length] for offset, length in packed.places]
        return pickle.loads(packed.pickled, buffers=views)  # noqa: S301 - written by our own child

    def close(self) -> None:
        """Close the buffers' files. No further batch can come; batches that have arrived stay valid."""
        for file in self._files:
            os.close(file)
        self._files, self._free = [], []

    def _memory(self, buffer: int, size: int, *, grow: bool = False) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a view of a buffer's first ``size`` bytes. ``grow``: enlarge the buffer if it is smaller; this does
        not change the views of other processes."""
        file = self._files[buffer]
        if grow and os.fstat(file).st_size < size:
            os.ftruncate(file, -(-int(size * _SLACK) // mmap.PAGESIZE) * mmap.PAGESIZE)
        known = self._maps.get(buffer)
        if known is None or len(known) < size:
            known = self._maps[buffer] = mmap.mmap(file, max(os.fstat(file).st_size, mmap.PAGESIZE))
        return np.frombuffer(known, np.uint8, count=size)


class _Pickler(pickle.Pickler):
    """Pickles a plain tensor as its bytes, dtype, shape and strides, and all other objects in pickle's usual way."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not torch.Tensor or not _is_plain(obj):
            return NotImplemented
        # The strides stay the same, because the bits of a convolution's result depend on them.
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
    """Yield offset and length, in bytes, of arrays that are stored one after the other, each aligned to 64 bytes."""
    offset = 0
    for length in lengths:
        yield offset, length
        offset += -(-length // _ALIGNED) * _ALIGNED
