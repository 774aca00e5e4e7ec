"""One training in PyTorch, as a user of each system writes it. See ``resize_pause``.

    _resize_training.py ours SIZE WORKERS          in an engine: with FabricModel
    _resize_training.py torchrun SIZE CHECKPOINT   under torch.distributed.run: DDP over gloo, checkpoints each 20 steps
    _resize_training.py torchft SIZE               a replica of torchft
    _resize_training.py lighthouse PORT            torchft's lighthouse

Network, optimizer, micro-batches and data are the same. WORKERS is the largest world size: with so many the global
batch is the same, too. With fewer OpenEDT keeps the global batch; with the others it shrinks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).parent))  # engines run this file from another place

from _resize_notes import Notes

SIZES = {"small": ([256, 1024, 1024], 24), "large": ([512, 2048, 1536], 256)}
"""Features of the layers, and samples of a micro-batch."""
MICRO_BATCHES = 2
"""Of each worker, where all are there."""
CLASSES, SAMPLES, STORED = 10, 1 << 24, 1 << 13
"""The stored samples come again and again: the end of an epoch lies out of the way."""
CHECKPOINT_STEPS = 20
TORCHFT_TIMEOUT = timedelta(seconds=5)
"""torchft's own is 60 s; only after it a survivor goes on that waits for a stopped process."""


class Data(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, features: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(STORED, features, generator=generator)
        self.y = torch.randint(CLASSES, (STORED,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index % STORED], self.y[index % STORED]

    def batch(self, first: int, samples: int) -> tuple[Tensor, Tensor]:
        begin = first % (STORED - samples)
        return self.x[begin : begin + samples], self.y[begin : begin + samples]


def network(size: str) -> nn.Module:
    torch.manual_seed(1)
    features = SIZES[size][0]
    layers: list[nn.Module] = []
    for inner, outer in itertools.pairwise(features):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(features[-1], CLASSES))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 1e-4)


def ours(size: str, workers: int, notes: Notes) -> None:
    from fabric_model import FabricModel

    features, micro_batch = SIZES[size]
    batch = MICRO_BATCHES * workers * micro_batch

    class Logger:
        def on_train_begin(self) -> None: ...
        def on_train_end(self) -> None: ...
        def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
        def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
            notes.step(iteration, engines, (iteration - 1) * batch, batch)

    model = network(size)
    FabricModel(
        model,
        lambda: (Data(features[0]), None),
        nn.functional.cross_entropy,
        optimizer_of(model),
        metrics=[],
        worker_logger_callback=Logger(),
    ).train(1, micro_batch, MICRO_BATCHES * workers, checkpoint_freq=0)


def backward(replica: DistributedDataParallel, data: Data, first: int, micro_batch: int) -> None:
    """The gradients of a worker's micro-batches, reduced with the last one."""
    for number in range(MICRO_BATCHES):
        x, y = data.batch(first + number * micro_batch, micro_batch)
        last = number == MICRO_BATCHES - 1
        with contextlib.nullcontext() if last else replica.no_sync():
            (nn.functional.cross_entropy(replica(x), y) / MICRO_BATCHES).backward()


def torchrun(size: str, checkpoint: Path, notes: Notes) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    features, micro_batch = SIZES[size]
    each, data, model = MICRO_BATCHES * micro_batch, Data(features[0]), network(size)
    optimizer = optimizer_of(model)
    step = position = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, position = state["step"], state["position"]
    replica = DistributedDataParallel(model)
    notes.begins_after(step)
    while True:
        optimizer.zero_grad()
        backward(replica, data, position + rank * each, micro_batch)
        optimizer.step()
        step, first, position = step + 1, position, position + world * each
        notes.step(step, world, first, world * each)
        if rank == 0 and step % CHECKPOINT_STEPS == 0:
            draft = checkpoint.with_suffix(f".{os.getpid()}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step, "position": position}, draft)
            draft.replace(checkpoint)


def torchft(size: str, notes: Notes) -> None:
    from torchft import DistributedDataParallel as ManagedDataParallel
    from torchft import Manager, ProcessGroupGloo

    torch.set_num_threads(1)
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    features, micro_batch = SIZES[size]
    each, data, model = MICRO_BATCHES * micro_batch, Data(features[0]), network(size)
    optimizer = optimizer_of(model)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(found: dict[str, Any]) -> None:
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TORCHFT_TIMEOUT),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        timeout=TORCHFT_TIMEOUT,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"replica_{os.getpid()}",
    )
    replica = ManagedDataParallel(manager, model)
    while not leaving.is_set():
        manager.start_quorum()
        optimizer.zero_grad()
        first = (manager.batches_committed() + (manager.participating_rank() or 0)) * each
        backward(replica, data, first, micro_batch)
        if manager.should_commit():
            optimizer.step()
            workers = manager.num_participants()
            before = manager.batches_committed() - workers
            notes.step(manager.current_step(), workers, before * each, workers * each)
    manager.shutdown()
    os._exit(0)


def lighthouse(port: int) -> None:
    from torchft.coordination import LighthouseServer

    # torchft's own: 60 s, 100 ms, 5 s
    server = LighthouseServer(
        bind=f"[::]:{port}", min_replicas=1, join_timeout_ms=100, quorum_tick_ms=10, heartbeat_timeout_ms=500
    )
    print(server.address(), flush=True)
    signal.pause()


def main() -> None:
    who, size, *rest = sys.argv[1:]
    if who == "lighthouse":
        lighthouse(int(size))
    elif who == "ours":
        ours(size, int(rest[0]), Notes())
    elif who == "torchrun":
        torchrun(size, Path(rest[0]), Notes())
    else:
        torchft(size, Notes())


if __name__ == "__main__":
    main()
