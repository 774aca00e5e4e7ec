"""Two processes that accumulate under DistributedDataParallel: ``python -m support.accumulation_rank FOLDER``.

Each writes the weights that it ends with to ``weights-<rank>.json``: of a loop that leaves every micro-batch to
DistributedDataParallel, and of one that takes all but the last of an update within ``no_sync()``. ``uneven`` is the
second loop with a model of which rank 1 uses fewer parameters than rank 0, and nobody uses one.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from runai.ga.torch import optim

SIZE, STEPS, UPDATES, RATE = 2, 3, 4, 0.05


def data() -> tuple[np.ndarray, np.ndarray]:
    """Samples in the order of the updates, in each by micro-batch and in that by rank."""
    generator = np.random.default_rng(3)
    return generator.normal(size=(UPDATES * STEPS * SIZE, 5)), generator.normal(size=UPDATES * STEPS * SIZE)


def train(rank: int, *, no_sync: bool) -> list[float]:
    inputs, targets = (torch.tensor(each) for each in data())
    linear = nn.Linear(5, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(linear.weight)
    model = nn.parallel.DistributedDataParallel(linear)
    optimizer = optim.SGD(STEPS, model.parameters(), lr=RATE, momentum=0.9)
    for batch in range(UPDATES * STEPS):
        place = batch * SIZE + rank
        local = no_sync and batch % STEPS < STEPS - 1
        optimizer.zero_grad()
        with model.no_sync() if local else contextlib.nullcontext():
            loss = (model(inputs[place : place + 1]).flatten() - targets[place : place + 1]) ** 2
            loss.sum().backward()
        optimizer.step()
    weights: list[float] = linear.weight.detach().flatten().tolist()
    return weights


class Uneven(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        make = [nn.Linear(5, 1, bias=False, dtype=torch.float64) for _ in range(3)]
        self.both, self.first, self.nobody = make
        for layer in make:
            nn.init.zeros_(layer.weight)

    def forward(self, inputs: torch.Tensor, rank: int) -> torch.Tensor:
        found: torch.Tensor = self.both(inputs)
        return found if rank else found + self.first(inputs)


def train_unevenly(rank: int) -> dict[str, list[float] | None]:
    """The gradients that one update has, by parameter; all its micro-batches ran within ``no_sync()``."""
    inputs, targets = (torch.tensor(each) for each in data())
    net = Uneven()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.SGD(STEPS, model.parameters(), lr=RATE)
    for batch in range(STEPS):
        place = batch * SIZE + rank
        with model.no_sync():
            loss = (model(inputs[place : place + 1], rank).flatten() - targets[place : place + 1]) ** 2
            loss.sum().backward()
        optimizer.step()
    return {
        name: None if parameter.grad is None else parameter.grad.flatten().tolist()
        for name, parameter in net.named_parameters()
    }


def main(folder: Path) -> None:
    other = os.fork()
    rank = 0 if other else 1
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=datetime.timedelta(seconds=80))
    found: dict[str, Any] = {"sync": train(rank, no_sync=False), "no_sync": train(rank, no_sync=True)}
    found |= {"uneven": train_unevenly(rank)}
    (folder / f"weights-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()
    if not other:
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
