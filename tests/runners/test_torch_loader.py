"""Micro-batches do not depend on who loads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from edt_runner.engine.adapter import BatchRequest
from edt_runner.engine.schedule import TickKind
from edt_runner.torch_loader import TorchLoader

DATA = TensorDataset(torch.arange(12.0), torch.arange(12))


class Noisy(Dataset[Any]):
    """Draws from the global generators, and sums in a way that threads would show in."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.randn(3, 128, 128)
        return (image - image.mean()) / image.std(), index


def mixed_up(samples: list[Any]) -> torch.Tensor:
    """A collate function with a will of its own."""
    return torch.stack([sample[0] for sample in samples]) * torch.rand(())


def load(processes: int, train: Any, collate: Callable[[list[Any]], Any] | None, skip: int = 0) -> list[Any]:
    loader = TorchLoader(train, None, 7, collate, processes)
    requests = [BatchRequest(TickKind.TRAIN, 0, np.arange(n, n + 3)) for n in range(0, 12, 3)]
    try:
        if skip:  # batches on the way are forgotten
            loader.restart(iter(requests))
            loader.next()
        loader.restart(iter(requests[skip:]))
        torch.manual_seed(processes)  # what the engine's own generator did before makes no difference
        return [loader.next() for _ in requests[skip:]]
    finally:
        loader.close()


@pytest.mark.parametrize("train", [DATA, Noisy()])
@pytest.mark.parametrize("collate", [None, mixed_up])
def test_the_number_of_loader_processes_does_not_show(train: Any, collate: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        none, one, two = (load(processes, train, collate) for processes in (0, 1, 2))
    finally:
        torch.set_num_threads(before)
    for other in (one, two):
        for ours, theirs in zip(none, other, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_restart_forgets_what_was_on_its_way() -> None:
    for processes in (0, 2):
        [ours, *_] = load(processes, DATA, None, skip=2)
        assert ours[1].tolist() == [6, 7, 8]
