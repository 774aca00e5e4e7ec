"""Which samples each step takes, so that every update has its global batch. Room: runners; torch."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from runai import elastic
from runai._arguments import usage
from runai.elastic._split import shares


class Batches(Sampler[list[int]]):
    """A batch sampler that follows ``runai.elastic.sizes``: ``DataLoader(dataset, batch_sampler=Batches(dataset))``.

    Each ``runai.elastic.steps`` batches in a row are one global batch. Where samples are left over at an epoch's end,
    they make a last, smaller global batch, again of ``steps`` batches as far as there are samples, which weigh right
    if the optimizer is told of their size: ``optimizer.step(samples=len(inputs))``.

    Args:
        dataset: anything with a length.
        shuffle: another order each epoch.
        sampler: an order of its own, instead of ``shuffle``.
        generator: of the shuffling; None: torch's global one.
        drop_last: leave out the samples that make no whole global batch.
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        shuffle: bool = False,
        sampler: Sampler[int] | None = None,
        generator: torch.Generator | None = None,
        drop_last: bool = False,
    ) -> None:
        if sampler is not None and shuffle:
            raise usage("shuffle", shuffle, "False beside a sampler, which has an order of its own")
        if sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self._sampler: Any = sampler  # torch types no length of samplers
        self._drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self._sampler)
        while cycle := list(islice(order, elastic.global_batch_size)):
            whole = len(cycle) == elastic.global_batch_size
            if self._drop_last and not whole:
                return
            samples = iter(cycle)
            for size in elastic.sizes if whole else shares(len(cycle), elastic.steps):
                if size:
                    yield list(islice(samples, size))

    def __len__(self) -> int:
        """Batches of an epoch."""
        cycles, rest = divmod(len(self._sampler), elastic.global_batch_size)
        return int(cycles * elastic.steps + (0 if self._drop_last else min(rest, elastic.steps)))
