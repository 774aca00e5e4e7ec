"""Micro-batches out of a user's samples, by loader processes or in the engine. Room: runners; torch's processes.

What a batch holds depends on its samples alone (``framework.Samples``), so neither the number of loader processes nor
the number of engines shows in it. Loader processes are forked when this object is made, before the engine has threads
of its own or a network; how their batches come here: ``trays``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from edt_runner import processes
from edt_runner.engine.adapter import BatchRequest
from edt_runner.engine.schedule import TickKind
from edt_runner.errors import HelperLost, is_lost_helper
from edt_runner.trainable import Samples
from edt_runner.trays import Load, Trays

_AHEAD = 2
"""Batches that each loader process prepares."""
_IN_USE = 4
"""Batches that an engine may be at work on, or has kept."""


@dataclass(frozen=True)
class _Order:
    """A batch that a loader process shall make, and the tray for it."""

    of_train: bool
    epoch: int
    indices: list[int]
    tray: int | None


class SampleLoader:
    """See ``Loader``.

    Args:
        samples: what to load from.
        processes: loader processes; 0: load in the engine.
    """

    def __init__(self, samples: Samples, processes: int) -> None:
        self._samples = samples
        self._requests: Iterator[BatchRequest] = iter(())
        self._batches: Iterator[Any] = iter(())
        self._loader: DataLoader[Any] | None = None
        self._trays = Trays(processes * _AHEAD + _IN_USE if processes else 0)
        if processes:
            self._loader = DataLoader(
                _Loads(self._samples, self._trays),
                batch_sampler=_Requested(self),  # type: ignore[arg-type]  # an order is more than a list of keys
                num_workers=processes,
                prefetch_factor=_AHEAD,
                collate_fn=_as_it_is,
                persistent_workers=True,
                multiprocessing_context="fork",
                worker_init_fn=_Worker(os.getpid(), samples),
            )
            self._batches = iter(self._loader)  # forks now; nothing has been asked for

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        self._requests = requests
        if self._loader is not None:
            self._batches = iter(self._loader)  # the same processes; what they had in hand is dropped

    def next(self) -> Any:
        if self._loader is not None:
            try:
                return self._trays.take(next(self._batches))
            except RuntimeError as error:
                if is_lost_helper(error):
                    raise HelperLost(f"a loader process was ended: {error}") from error
                raise
        request = next(self._requests)
        return self._samples.batch(request.kind is TickKind.TRAIN, request.epoch, request.indices.tolist())

    def close(self) -> None:
        batches, self._batches, self._loader = self._batches, iter(()), None
        if end := getattr(batches, "_shutdown_workers", None):
            end()  # whoever waits for its destructor waits for the garbage collector, once a sample has raised
        self._trays.close()

    def pending(self) -> Iterator[_Order]:
        """What is asked for, in order. What was asked for before has been dropped by now."""
        self._trays.forget_orders()
        for request in self._requests:
            of_train = request.kind is TickKind.TRAIN
            yield _Order(of_train, request.epoch, request.indices.tolist(), self._trays.order())


class _Requested:
    """A batch sampler that asks its loader what is wanted now; endless in length."""

    def __init__(self, owner: SampleLoader) -> None:
        self._owner = owner

    def __iter__(self) -> Iterator[_Order]:
        return self._owner.pending()


class _Loads(Dataset[Any]):
    """In a loader process: a batch for an order, ready for its way."""

    def __init__(self, samples: Samples, trays: Trays) -> None:
        self._samples, self._trays = samples, trays

    def __getitems__(self, order: _Order) -> Load:
        return self._trays.put(self._samples.batch(order.of_train, order.epoch, order.indices), order.tray)


class _Worker:
    """What a loader process does first: it ends with its engine, and does what its samples ask for."""

    def __init__(self, engine: int, samples: Samples) -> None:
        self._engine, self._samples = engine, samples

    def __call__(self, number: int) -> None:
        processes.die_with(self._engine)
        self._samples.enter_loader()


def _as_it_is(batch: Any) -> Any:
    """The samples have collated it already."""
    return batch
