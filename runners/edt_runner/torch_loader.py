"""Micro-batches out of a user's map-style data sets. Room: runners; torch.

The random state under which a sample is loaded depends on (seed, epoch, index), so neither the number of loader
processes nor the number of engines shows in it. Loader processes are forked when this object is made, before the
engine has threads or a network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from edt_runner import processes
from edt_runner.engine.adapter import BatchRequest
from edt_runner.engine.schedule import TickKind
from edt_runner.engine.seeds import sample_seed, seed_python

Collate = Callable[[list[Any]], Any]
_Key = tuple[bool, int, int]
"""(of the training set, epoch, index)"""


class _Samples(Dataset[Any]):
    """Training and test set in one, by key; a list of keys gives a whole batch."""

    def __init__(self, train: Any, test: Any, seed: int, collate: Collate) -> None:
        self._train, self._test, self._seed, self._collate = train, test, seed, collate
        self._pure = {True: type(train) is TensorDataset, False: type(test) is TensorDataset}

    def __getitem__(self, key: _Key) -> Any:
        of_train, _, index = key
        if not self._pure[of_train]:
            self._seed_for(key)
        return self._train[index] if of_train else self._test[index]

    def __getitems__(self, keys: list[_Key]) -> Any:
        """A batch: each sample under its own seed, then the collate function under the first one's."""
        samples = [self[key] for key in keys]
        if self._collate is not default_collate:
            self._seed_for(keys[0])
        return self._collate(samples)

    def _seed_for(self, key: _Key) -> None:
        of_train, epoch, index = key
        seed = sample_seed(self._seed, epoch if of_train else -1, index)
        seed_python(seed)
        torch.default_generator.manual_seed(seed)  # data are made on the host


class TorchLoader:
    """See ``Loader``.

    Args:
        train, test: map-style data sets; test may be None.
        seed: of the training.
        collate: list of samples -> batch; None: torch's default.
        processes: loader processes; 0: load in the engine.
    """

    def __init__(self, train: Any, test: Any, seed: int, collate: Collate | None, processes: int) -> None:
        self._collate = collate or default_collate
        self._samples = _Samples(train, test, seed, self._collate)
        self._requests: Iterator[BatchRequest] = iter(())
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] | None = None
        if processes:
            self._loader = DataLoader(
                self._samples,
                batch_sampler=_Requested(self),
                num_workers=processes,
                collate_fn=_as_it_is,
                persistent_workers=True,
                multiprocessing_context="fork",
                worker_init_fn=_Worker(os.getpid()),
            )
            self._batches = iter(self._loader)  # forks now; nothing has been asked for

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        self._requests = requests
        if self._loader is not None:
            self._batches = iter(self._loader)  # the same processes; what they had in hand is dropped

    def next(self) -> Any:
        if self._loader is not None:
            return next(self._batches)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a loader process: sums over threads have other bits
        try:
            return self._samples.__getitems__(_keys(next(self._requests)))
        finally:
            torch.set_num_threads(threads)

    def probe(self) -> Any:
        """The first training sample as a batch of one would hold it: for comparison and warming up."""
        return self._samples[(True, 0, 0)]

    def batch_of(self, samples: Sequence[Any]) -> Any:
        return self._collate(list(samples))

    def close(self) -> None:
        self._batches = iter(())
        self._loader = None

    def pending(self) -> Iterator[list[_Key]]:
        """What is asked for, in order, as keys."""
        for request in self._requests:
            yield _keys(request)


class _Requested:
    """A batch sampler that asks its loader what is wanted now; endless in length."""

    def __init__(self, owner: TorchLoader) -> None:
        self._owner = owner

    def __iter__(self) -> Iterator[list[_Key]]:
        return self._owner.pending()


class _Worker:
    """What a loader process does first: it ends with its engine, and uses one thread."""

    def __init__(self, engine: int) -> None:
        self._engine = engine

    def __call__(self, number: int) -> None:
        processes.die_with(self._engine)
        torch.set_num_threads(1)


def _as_it_is(batch: Any) -> Any:
    """The data set has collated it already."""
    return batch


def _keys(request: BatchRequest) -> list[_Key]:
    return [(request.kind is TickKind.TRAIN, request.epoch, int(index)) for index in request.indices]
