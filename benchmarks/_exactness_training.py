"""One small training in PyTorch whose result is compared: with FabricModel, with DistributedDataParallel, or with
torchft. See ``exactness``.

All see the same samples in the same order and make the same global batches of 24. After each step, a process writes
down how far the training is, and waits until it may go on. In the end the parameters are written to a file.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as _distributed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

dist: Any = _distributed  # it has no type stubs for all that is used here

FOLDER = "EXACTNESS_FOLDER"
"""Environment variable: where a training's files are."""
MICRO_BATCHES, GLOBAL_BATCH, SAMPLES, EPOCHS = 4, 24, 1440, 8
STEPS = EPOCHS * SAMPLES // GLOBAL_BATCH
CLASSES = 5


class Notes:
    """How far the training may go, and how far it is."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[FOLDER])
        self._allowed = 0

    def step(self, number: int, workers: int) -> None:
        """Step ``number`` (from 1 on) is done by so many processes."""
        with (self._folder / f"steps-{os.getpid()}").open("a") as file:
            file.write(f"{number} {workers}\n")
        while number >= self._allowed:
            with suppress(OSError, ValueError):  # it is written anew just now
                self._allowed = int((self._folder / "allowed").read_text())
            if number >= self._allowed:
                time.sleep(0.002)

    def finish(self, model: nn.Module) -> None:
        """Leave the trained parameters and buffers, whole or not at all."""
        draft = self._folder / f"model-{os.getpid()}"
        torch.save(model.state_dict(), draft)
        draft.rename(self._folder / "model.pt")


def network(name: str) -> nn.Module:
    normalized = name == "normalized"
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16) if normalized else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25) if normalized else nn.Identity(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def samples() -> tuple[Tensor, Tensor]:
    """Each class has a pattern, and its images are that with noise: something that can be learned."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randn(CLASSES, 1, 16, 16, generator=generator)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    return patterns[labels] + 2 * torch.randn(SAMPLES, 1, 16, 16, generator=generator), labels


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 1e-3)


def ours(name: str, reduction: str) -> None:
    from fabric_model import FabricModel

    notes = Notes()

    class Logger:
        def on_train_begin(self) -> None: ...
        def on_train_end(self) -> None: ...
        def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
        def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
            notes.step(iteration, engines)

    model = network(name)
    edt = FabricModel(
        model,
        lambda: (TensorDataset(*samples()), None),
        cross_entropy,
        optimizer_of(model),
        metrics=[],
        worker_logger_callback=Logger(),
    )
    edt.train(EPOCHS, GLOBAL_BATCH // MICRO_BATCHES, MICRO_BATCHES, checkpoint_freq=0, reduction=reduction)
    notes.finish(model)


def ddp(name: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, world, notes = dist.get_rank(), dist.get_world_size(), Notes()
    model = DistributedDataParallel(network(name))
    optimizer, everything = optimizer_of(model), samples()
    for step in range(STEPS):
        inputs, targets = share(everything, step, rank, world)
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        notes.step(step + 1, world)
    if rank == 0:
        notes.finish(model.module)


def torchft(name: str) -> None:
    """Each process is a replica group; the first one also has the lighthouse, with a short timeout of its heartbeats.
    A step that is not committed is computed again, with the same samples."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo  # type: ignore[import-not-found]
    from torchft.coordination import LighthouseServer  # type: ignore[import-not-found]

    rank, port, notes = int(os.environ["RANK"]), os.environ["MASTER_PORT"], Notes()
    lighthouse = LighthouseServer(f"127.0.0.1:{port}", 1, 10_000, None, 500) if rank == 0 else None
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    plain = network(name)
    inner = optimizer_of(plain)

    def load(state: dict[str, Any]) -> None:
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(),
        load_state_dict=load,
        state_dict=lambda: {"model": plain.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=f"http://127.0.0.1:{port}",
        replica_id=f"replica-{rank}",
        hostname="127.0.0.1",
    )
    model, optimizer = DistributedDataParallel(manager, plain), Optimizer(manager, inner)
    everything = samples()
    folder = Path(os.environ[FOLDER])
    (folder / f"manager-{rank}").touch()
    while not all((folder / f"manager-{other}").exists() for other in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.01)  # so that the first quorum has all
    while manager.current_step() < STEPS:
        inputs, targets = share(everything, manager.current_step(), rank, int(os.environ["WORLD_SIZE"]))
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(inputs), targets))
        optimizer.step()
        notes.step(manager.current_step(), manager.num_participants())
    if rank == 0:
        notes.finish(plain)
    del lighthouse


def share(everything: tuple[Tensor, Tensor], step: int, rank: int, world: int) -> tuple[Tensor, Tensor]:
    """A rank's part of a step's global batch."""
    images, labels = everything
    epoch, first = divmod(step * GLOBAL_BATCH, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    mine = order[first : first + GLOBAL_BATCH].chunk(world)[rank]
    return images[mine], labels[mine]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("exact", "fast", "ddp", "torchft"))
    parser.add_argument("network", choices=("plain", "normalized"))
    chosen = parser.parse_args()
    if chosen.who in ("exact", "fast"):
        ours(chosen.network, chosen.who)
        return
    torch.manual_seed(1)
    torch.set_num_threads(1)
    {"ddp": ddp, "torchft": torchft}[chosen.who](chosen.network)


if __name__ == "__main__":
    main()
