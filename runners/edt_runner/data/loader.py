"""Micro-batches made of a user's samples, by loader processes or in the engine itself.

What a batch holds depends on its samples alone, so neither the number of loader processes nor the number of engines
changes it. Loader processes are those of torch's DataLoader. They are forked when the loader is made, before the engine
has threads of its own or a network. Their batches come through ``shared_batches``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset

from edt_contract import processes
from edt_runner.adapter import BatchRequest
from edt_runner.data.shared_batches import PackedBatch, SharedBuffers
from edt_runner.errors import HelperLost, is_lost_helper
from edt_runner.frameworks.trainable import Samples
from edt_runner.schedule.schedule import StepKind

_AHEAD = 2
"""Batches that each loader process prepares."""
_IN_USE = 4
"""Batches that an engine may be working on, or has kept."""


_LoadRequest = tuple[BatchRequest, int | None]
"""A batch that a loader process shall make, and the shared buffer for it."""


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
