"""One training in PyTorch, as a user writes it: with FabricModel, with DistributedDataParallel, or with torchft. See
``throughput`` and ``memory``.

Model, data, optimizer, batches and threads are the same; each step is a global batch of E micro-batches, and each
process does its E/W of them, the peers under no_sync up to the last one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as _distributed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

sys.path.insert(0, str(Path(__file__).parent))  # engines run this file from another place

from _turns import Turn

dist: Any = _distributed  # it has no type stubs for all that is used here

BATCH = {"conv-1M": 8, "linear-25M": 16, "transformer-10M": 4}
"""Samples of a micro-batch."""
EPOCHS, SAMPLES, DIFFERENT = 100, 1 << 18, 4096
"""The samples come again and again, so that the end of an epoch, where an engine writes a checkpoint, is far away."""
WORDS, TOKENS, WIDTH, HEADS, LAYERS = 4096, 64, 384, 6, 4
NEVER = 1e6
"""Seconds between two recovery checkpoints."""
_MANAGER_SECONDS = 3600
"""A training that waits for its turn is not lost."""


Samples = DistributedSampler[tuple[Tensor, Tensor]]


class Images(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._images = torch.randn(DIFFERENT, 3, 32, 32, generator=generator)
        self._labels = torch.randint(10, (DIFFERENT,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._images[index % DIFFERENT], self._labels[index % DIFFERENT]


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Of random words; to predict is the next one."""

    def __init__(self) -> None:
        self._words = torch.randint(WORDS, (DIFFERENT + TOKENS,), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index % DIFFERENT
        return self._words[start : start + TOKENS], self._words[start + 1 : start + TOKENS + 1]


class LanguageModel(nn.Module):
    """A transformer of 10.3 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(TOKENS), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.words(words) + self.places.weight
        logits: Tensor = self.head(self.layers(hidden, mask=self.mask, is_causal=True))
        return logits.transpose(1, 2)


def network(name: str) -> nn.Module:
    """1.1 million parameters behind convolutions on 32 x 32 images, 25 million in linear layers, or a transformer."""
    if name == "transformer-10M":
        return LanguageModel()
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


def data(name: str) -> Dataset[tuple[Tensor, Tensor]]:
    return Text() if name == "transformer-10M" else Images()


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(model.parameters(), 1e-4)
    return torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)


def ours(chosen: argparse.Namespace, turn: Turn) -> None:
    from fabric_model import FabricModel

    class Logger:
        def on_train_begin(self) -> None: ...
        def on_train_end(self) -> None: ...
        def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
        def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
            turn.step(iteration, whole=engines == chosen.workers)

    model = network(chosen.network)
    FabricModel(
        model,
        lambda: (data(chosen.network), None),
        cross_entropy,
        optimizer_of(model, chosen.optimizer),
        metrics=[],
        worker_logger_callback=Logger(),
    ).train(
        EPOCHS,
        BATCH[chosen.network],
        chosen.micro_batches,
        checkpoint_freq=0,
        reduction=chosen.who,
        recovery_interval=chosen.recovery,
        audit_interval=chosen.audit,
    )


def ddp(chosen: argparse.Namespace, turn: Turn) -> None:
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(network(chosen.network), gradient_as_bucket_view=chosen.who == "ddp-view")
    optimizer = optimizer_of(model, chosen.optimizer)
    _loop(chosen, model, optimizer, DistributedSampler(data(chosen.network)), turn)


def torchft(chosen: argparse.Namespace, turn: Turn) -> None:
    """Each process is a replica group. The first one also has the lighthouse."""
    from datetime import timedelta

    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo  # type: ignore[import-not-found]
    from torchft.coordination import LighthouseServer  # type: ignore[import-not-found]

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    port = os.environ["MASTER_PORT"]
    lighthouse = LighthouseServer(f"127.0.0.1:{port}", min_replicas=world) if rank == 0 else None
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    plain = network(chosen.network)
    inner = optimizer_of(plain, chosen.optimizer)

    def load(state: dict[str, Any]) -> None:
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=_MANAGER_SECONDS)),
        load_state_dict=load,
        state_dict=lambda: {"model": plain.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=world,
        timeout=timedelta(seconds=_MANAGER_SECONDS),
        quorum_timeout=timedelta(seconds=_MANAGER_SECONDS),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=f"http://127.0.0.1:{port}",
        replica_id=f"replica-{rank}",
        hostname="127.0.0.1",
    )
    sampler: Samples = DistributedSampler(data(chosen.network), num_replicas=world, rank=rank)
    _loop(chosen, DistributedDataParallel(manager, plain), Optimizer(manager, inner), sampler, turn)
    del lighthouse


def _loop(
    chosen: argparse.Namespace,
    model: Any,
    optimizer: torch.optim.Optimizer,
    sampler: Samples,
    turn: Turn,
) -> None:
    each, step, micro = chosen.micro_batches // chosen.workers, 0, 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(sampler.dataset, BATCH[chosen.network], sampler=sampler):
            if micro % each == 0:
                optimizer.zero_grad()
            micro += 1
            with nullcontext() if micro % each == 0 else model.no_sync():
                (cross_entropy(model(inputs), targets) / each).backward()
            if micro % each == 0:
                optimizer.step()
                step += 1
                turn.step(step)


PEERS: dict[str, Callable[[argparse.Namespace, Turn], None]] = {"ddp": ddp, "ddp-view": ddp, "torchft": torchft}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("exact", "fast", *PEERS))
    parser.add_argument("network", choices=list(BATCH))
    parser.add_argument("micro_batches", type=int, help="E")
    parser.add_argument("workers", type=int, help="W")
    parser.add_argument("turn", type=int)
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument(
        "--recovery", type=float, default=NEVER, help="seconds between two recovery checkpoints of ours"
    )
    parser.add_argument("--audit", type=int, help="steps between two audits of ours; by default once a minute")
    chosen = parser.parse_args()
    turn = Turn(chosen.turn)
    if chosen.who not in PEERS:
        ours(chosen, turn)
        return
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    PEERS[chosen.who](chosen, turn)


if __name__ == "__main__":
    main()
