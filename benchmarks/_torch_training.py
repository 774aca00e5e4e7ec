"""One training in PyTorch, as a user writes it: with FabricModel, or with DistributedDataParallel. See ``throughput``.

Model, data, optimizer, batches and threads are the same; each step is a global batch of E micro-batches, and each
process does its E/W of them, DDP under no_sync up to the last one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).parent))  # engines run this file from another place

from _turns import Turn

E = 4
BATCH = {"conv-1M": 8, "linear-25M": 16}
"""Samples of a micro-batch."""
EPOCHS, SAMPLES, IMAGES = 100, 1 << 18, 4096
"""The images come again and again: the end of an epoch, at which an engine writes a checkpoint, lies out of the way."""


class Images(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._images = torch.randn(IMAGES, 3, 32, 32, generator=generator)
        self._labels = torch.randint(10, (IMAGES,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._images[index % IMAGES], self._labels[index % IMAGES]


def network(name: str) -> nn.Module:
    """1.1 million parameters behind convolutions on 32 x 32 images, or 25 million in linear layers."""
    if name == "conv-1M":
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 8 * 8, 256),
            nn.ReLU(),
            nn.Linear(256, 10),
        )
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * 32 * 32, 2048), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(2048, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 1000), nn.ReLU(), nn.Linear(1000, 10))


def ours(name: str, reduction: str, workers: int, turn: Turn) -> None:
    from fabric_model import FabricModel

    class Logger:
        def on_train_begin(self) -> None: ...
        def on_train_end(self) -> None: ...
        def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
        def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
            turn.step(iteration, whole=engines == workers)

    model = network(name)
    FabricModel(
        model,
        lambda: (Images(), None),
        nn.functional.cross_entropy,
        torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9),
        metrics=[],
        worker_logger_callback=Logger(),
    ).train(EPOCHS, BATCH[name], E, checkpoint_freq=0, reduction=reduction, recovery_interval=1e6)


def ddp(name: str, workers: int, turn: Turn) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model, samples = DistributedDataParallel(network(name)), Images()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    sampler: DistributedSampler[tuple[Tensor, Tensor]] = DistributedSampler(samples)
    step = micro = 0
    each = E // workers
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(samples, BATCH[name], sampler=sampler):
            micro += 1
            if micro % each:
                with model.no_sync():
                    (nn.functional.cross_entropy(model(inputs), targets) / each).backward()
                continue
            (nn.functional.cross_entropy(model(inputs), targets) / each).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            turn.step(step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("exact", "fast", "ddp"))
    parser.add_argument("network", choices=list(BATCH))
    parser.add_argument("workers", type=int, help="W")
    parser.add_argument("turn", type=int)
    chosen = parser.parse_args()
    turn = Turn(chosen.turn)
    if chosen.who == "ddp":
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        ddp(chosen.network, chosen.workers, turn)
    else:
        ours(chosen.network, chosen.who, chosen.workers, turn)


if __name__ == "__main__":
    main()
