"""A straight line, found by several ranks under mpirun. Each rank has its own share of generated points.

mpirun tells each process its rank. torch.distributed connects the ranks at MASTER_ADDR:MASTER_PORT, which OpenEDT sets.
After SIGTERM the job saves its state, and goes on from it when it starts again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 20
"""Steps of an epoch."""


def mean(values: torch.Tensor, world: int) -> torch.Tensor:
    """The mean over all ranks."""
    dist.all_reduce(values)
    return values / world


def save(state: object, path: Path) -> None:
    """Write the file under another name first, so that ``path`` is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(description="Find a line through generated points.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds of rest after a step, to look on")
    options = parser.parse_args()

    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    rank, world = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group(
        "gloo", rank=rank, world_size=world
    )  # MASTER_ADDR and MASTER_PORT come from the environment

    generator = torch.Generator().manual_seed(rank)
    points = torch.randn(64, generator=generator)
    targets = 3 * points - 1 + 0.1 * torch.randn(64, generator=generator)
    line = torch.zeros(2)  # slope and height
    checkpoint, begin = Path(os.environ["CHECKPOINT_DIR"]) / "training.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        line, begin = state["line"], state["step"]
    print(f"rank {rank} of {world} begins at step {begin}", flush=True)

    for step in range(begin, options.epochs * STEPS):
        errors = line[0] * points + line[1] - targets
        # Loss, gradient, and whether a rank was asked to leave, in one message. So all ranks stop after the same step.
        found = torch.stack(
            [errors.square().mean(), (2 * errors * points).mean(), (2 * errors).mean(), torch.zeros(())]
        )
        found[3] = float(bool(asked))
        loss, slope, height, left = mean(found, world)
        line = line - 0.02 * torch.stack([slope, height])
        time.sleep(options.pace)
        last = step % STEPS == STEPS - 1
        if rank == 0 and last:
            print(f"epoch {step // STEPS + 1}, loss {loss.item():.4f}", flush=True)
        if rank == 0 and (last or left > 0):
            save({"line": line, "step": step + 1}, checkpoint)
        if left > 0:
            print(f"rank {rank} leaves after step {step + 1}", flush=True)
            dist.barrier()
            dist.destroy_process_group()
            return 128 + signal.SIGTERM
    if rank == 0:
        save(line, Path(os.environ["RESULT_DIR"]) / "model" / "line.pt")
        print(f"The line has slope {line[0]:.2f} and height {line[1]:.2f}.", flush=True)
    dist.barrier()  # so that nobody closes its connections while another rank still needs them
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
