"""A user's own loop on the one device of a plain process. Room: runners; torch.

The engine's arithmetic without an engine: the same samples in the same order under the same seeds, and the gradients
summed by the same tree. So the weights are those of any number of engines, to the bit on one kind of device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import torch
from torch import Tensor, nn

from edt_runner.engine import shares
from edt_runner.engine.adapter import BatchRequest
from edt_runner.engine.schedule import Tick
from edt_runner.engine.seeds import step_seed
from edt_runner.engine.tree import Span, children
from edt_runner.loader import SampleLoader
from edt_runner.pytorch.own_adapter import OwnLoopAdapter, OwnLoopTrainable, leaf_for
from edt_runner.pytorch.turns import Turn
from edt_runner.training import Training


def turns(training: Training, model: nn.Module) -> Iterator[Turn]:
    """All micro-batches of a training, in order; each is to be closed before the next is asked for. The model stays on
    the device on which it is."""
    trainable = training.request.trainable
    assert isinstance(trainable, OwnLoopTrainable)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    work = _Work(training, trainable.adapter_on(device), device)
    try:
        for tick in range(training.schedule.ticks):
            yield from work.step(tick)
    finally:
        work.loader.close()


class _Work:
    def __init__(self, training: Training, adapter: OwnLoopAdapter, device: torch.device) -> None:
        self._training, self._schedule, self._adapter, self._device = training, training.schedule, adapter, device
        self.loader: SampleLoader = training.loader(training.request.loader_processes)
        self.loader.restart(self._requests())
        self._free: list[Tensor] = []

    def step(self, tick: int) -> Iterator[Turn]:
        where, workers = self._schedule.at(tick), self._schedule.logical_workers
        if self._training.request.observe_step is not None:
            self._training.request.observe_step(where, 1, workers, True)
        vector = yield from self._summed((0, workers), tick, where)
        self._adapter.apply(vector)
        self._free.append(vector)

    def _summed(self, span: Span, tick: int, where: Tick) -> Generator[Turn, None, Tensor]:
        """As ``GlooGroup`` sums a subtree."""
        if span[1] - span[0] == 1:
            return (yield from self._computed(span[0], tick, where))
        first, second = children(span)
        left = yield from self._summed(first, tick, where)
        right = yield from self._summed(second, tick, where)
        self._free.append(right)
        return left.add_(right)

    def _computed(self, worker: int, tick: int, where: Tick) -> Generator[Turn, None, Tensor]:
        leaf = self._free.pop() if self._free else leaf_for(self._adapter, self._device)
        sizes = shares.step_sizes(self._schedule, where.index)
        if not sizes[worker]:
            return leaf.zero_()
        seed = step_seed(self._training.seed, tick, worker)
        yield self._adapter.turn(self.loader.next(), sizes[worker], sum(sizes), seed, leaf)
        return leaf

    def _requests(self) -> Iterator[BatchRequest]:
        for tick in range(self._schedule.ticks):
            where = self._schedule.at(tick)
            for worker in range(self._schedule.logical_workers):
                indices = shares.samples(self._schedule, self._training.seed, where, worker)
                if len(indices):
                    yield BatchRequest(where.kind, where.epoch, indices)
