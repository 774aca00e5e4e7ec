"""The trainings of ``prove_gpu``, as a user writes them: with FabricModel in an engine, or with DDP beside it.

paced NETWORK E STEPS     rests after each step until the file ``go`` lies in PROVE_GPU_FOLDER
noted NETWORK E           notes the time of each committed step
turns NETWORK E LENGTH    computes in turn with others, so many steps each
profiled NETWORK          profiles some steps, and writes down what was copied between host and GPU
ddp NETWORK W LENGTH      a process of DistributedDataParallel that computes in turn with others; DETERMINISTIC
                          follows
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as _distributed
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))  # engines run this file from another place

from _gpu_copies import Profile
from _gpu_networks import TASKS, loss
from _resize_notes import Notes
from _turns import Turn

dist: Any = _distributed  # it has no type stubs for all that is used here

FOLDER = "PROVE_GPU_FOLDER"
"""The variable with the folder in which a training and ``prove_gpu`` leave files for each other."""
GO, SETTINGS = "go", "settings.json"
MANY = 1 << 24
"""Samples of a training that is ended from outside: the end of its epoch is far away."""
NEVER = 1e6
"""Seconds between two recovery checkpoints."""
_REST_SECONDS, _LONG_REST_SECONDS, _SHORT_RESTS = 0.02, 0.5, 120
_DDP_BATCHES = 8


class Logger:
    """What an engine calls after each committed step."""

    def __init__(self, at_step: Callable[[int, int], None]) -> None:
        self._at_step = at_step

    def on_train_begin(self) -> None: ...
    def on_train_end(self) -> None: ...
    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
        self._at_step(iteration, engines)


def ours(
    name: str,
    micro_batches: int,
    samples: int,
    at_step: Callable[[int, int], None],
    loss_function: Callable[[Tensor, Tensor], Tensor] = loss,
    **more: Any,
) -> None:
    from fabric_model import FabricModel

    task = TASKS[name]
    model = task.network()
    FabricModel(
        model,
        lambda: (task.data(samples), None),
        loss_function,
        task.optimizer(model),
        metrics=[],
        worker_logger_callback=Logger(at_step),
    ).train(1, task.batch, micro_batches, checkpoint_freq=0, **more)


def paced(name: str, micro_batches: int, steps: int) -> None:
    """The last step is uneven. In the first pass an engine writes down how its determinism is set."""
    folder = Path(os.environ[FOLDER])
    told: list[dict[str, Any]] = []

    def telling_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if not told:
            told.append(settings())
            (folder / SETTINGS).write_text(json.dumps(told[0]))
        return loss(outputs, targets)

    def at_step(step: int, engines: int) -> None:
        if not (folder / GO).exists():
            time.sleep(_REST_SECONDS if step < _SHORT_RESTS else _LONG_REST_SECONDS)

    samples = steps * micro_batches * TASKS[name].batch - 5
    ours(name, micro_batches, samples, at_step, telling_loss, recovery_interval=1.0)


def noted(name: str, micro_batches: int) -> None:
    notes, batch = Notes(), micro_batches * TASKS[name].batch
    ours(
        name,
        micro_batches,
        MANY,
        lambda step, engines: notes.step(step, engines, (step - 1) * batch, batch),
        num_dataloader_threads=_loaders(),
    )


def in_turns(name: str, micro_batches: int, length: int) -> None:
    turn = Turn(length)

    def at_step(step: int, engines: int) -> None:
        _settle(step, length)
        turn.step(step, whole=engines == micro_batches)

    ours(
        name,
        micro_batches,
        MANY,
        at_step,
        num_dataloader_threads=_loaders(),
        recovery_interval=NEVER,
        audit_interval=int(NEVER),
    )


def profiled(name: str) -> None:
    task = TASKS[name]
    profile = Profile(Path(os.environ[FOLDER]), [task.data(MANY)[0]], task.batch, task.network())
    ours(
        name,
        1,
        MANY,
        lambda step, engines: profile.step(step),
        num_dataloader_threads=_loaders(),
        recovery_interval=NEVER,
        audit_interval=int(NEVER),
    )


def ddp(name: str, workers: int, length: int, *, deterministic: bool) -> None:
    """Batches are stacked before and lie in pinned memory, so that no loader takes time."""
    from torch.nn.parallel import DistributedDataParallel

    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    on_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    device = torch.device("cuda:0" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    task, rank, turn = TASKS[name], dist.get_rank(), Turn(length)
    data = task.data(MANY)
    batches: list[tuple[Tensor, Tensor]] = []
    for number in range(_DDP_BATCHES):
        first = (number * workers + rank) * task.batch
        samples = [data[first + each] for each in range(task.batch)]
        inputs, targets = torch.stack([each[0] for each in samples]), torch.stack([each[1] for each in samples])
        batches.append((inputs.pin_memory(), targets.pin_memory()) if on_gpu else (inputs, targets))
    model = DistributedDataParallel(task.network().to(device), device_ids=[0] if on_gpu else None)
    optimizer = task.optimizer(model)
    step = 0
    while True:
        inputs, targets = batches[step % _DDP_BATCHES]
        optimizer.zero_grad()
        outputs = model(inputs.to(device, non_blocking=True))
        torch.autograd.backward(loss(outputs, targets.to(device, non_blocking=True)))
        optimizer.step()
        step += 1
        _settle(step, length)
        turn.step(step)


def settings() -> dict[str, Any]:
    """What makes this process's results repeatable, as it is set."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "only warnings where there is none": torch.is_deterministic_algorithms_warn_only_enabled(),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "not set"),
        "cuDNN deterministic": cudnn.deterministic,
        "cuDNN benchmark": cudnn.benchmark,
        "TF32 in matrix products": matmul.allow_tf32,
        "TF32 in cuDNN": cudnn.allow_tf32,
    }


def _settle(step: int, length: int) -> None:
    """Wait for the GPU after the first and after the last step of a turn, between which time is taken."""
    if step % length in (0, 1) and torch.cuda.is_available():
        torch.cuda.synchronize()


def _loaders() -> int:
    return 2 if torch.cuda.is_available() else 0


def main() -> None:
    who, name, *rest = sys.argv[1:]
    if who == "paced":
        paced(name, int(rest[0]), int(rest[1]))
    elif who == "noted":
        noted(name, int(rest[0]))
    elif who == "turns":
        in_turns(name, int(rest[0]), int(rest[1]))
    elif who == "profiled":
        profiled(name)
    else:
        ddp(name, int(rest[0]), int(rest[1]), deterministic=rest[2:] == ["DETERMINISTIC"])


if __name__ == "__main__":
    main()
