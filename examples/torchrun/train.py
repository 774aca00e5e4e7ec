"""A small network, trained by several processes with DistributedDataParallel. The data is generated.

The processes find each other by the variables that torchrun sets, or that OpenEDT sets for distPyTorch. After SIGTERM
the job saves its state, and goes on from it when it starts again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

STEPS = 10
"""Steps of an epoch."""
SIDE = 12
"""Numbers of a point."""


def batch(step: int, rank: int, size: int) -> tuple[Tensor, Tensor]:
    """The points of one step on one rank, and the class of each, out of three."""
    generator = torch.Generator().manual_seed(step * 1000 + rank)
    points = torch.randn(size, SIDE, generator=generator)
    sums = points.reshape(size, 3, SIDE // 3).sum(2)
    return points, sums.argmax(1)


def leaves(asked: bool, device: torch.device) -> bool:
    """Whether any process was asked to leave. All ranks get the same answer, so all stop after the same step."""
    flag = torch.tensor([int(asked)], device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag.item())


def save(state: object, path: Path) -> None:
    """Write the file under another name first, so that ``path`` is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def train(options: argparse.Namespace, asked: list[int]) -> int:
    """Train until the end or until ``asked`` holds a signal, and return the exit status."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(SIDE, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    checkpoint, begin = Path(os.environ["CHECKPOINT_DIR"]) / "training.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    parallel = DistributedDataParallel(network)
    print(f"rank {rank} of {world} begins at step {begin}", flush=True)

    for step in range(begin, options.epochs * STEPS):
        points, classes = batch(step, rank, options.batch_size)
        loss = functional.cross_entropy(parallel(points.to(device)), classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.pace)
        last = step % STEPS == STEPS - 1
        if rank == 0 and last:
            print(f"epoch {step // STEPS + 1}, loss {loss.item():.4f}", flush=True)
        left = leaves(bool(asked), device)
        if rank == 0 and (last or left):
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            save(state, checkpoint)
        if left:
            print(f"rank {rank} leaves after step {step + 1}", flush=True)
            return 128 + signal.SIGTERM
    if rank == 0:
        save(network.state_dict(), Path(os.environ["RESULT_DIR"]) / "model" / "model.pt")
    return 0


def main() -> NoReturn:
    """Join the other processes, train, and end this one."""
    parser = argparse.ArgumentParser(description="Train a small network on generated points.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="points of one step on one rank")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds of rest after a step, to look on")
    options = parser.parse_args()
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    status = train(options, asked)
    dist.barrier()  # so that nobody closes its connections while another rank still needs them
    sys.stdout.flush()
    os._exit(status)  # at once: PyTorch 2.13 sometimes aborts while it takes down the connections of gloo


if __name__ == "__main__":
    main()
