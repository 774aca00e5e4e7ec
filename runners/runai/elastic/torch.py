"""Elastic batches for PyTorch. Room: runners; torch.

    runai.elastic.torch.init(256, 64)
    optimizer = runai.ga.torch.optim.SGD(runai.elastic.steps, model.parameters(), lr=0.1)
    model = nn.DataParallel(model)
    loader = DataLoader(dataset, batch_sampler=runai.elastic.torch.batches(dataset, shuffle=True))
    for inputs, targets in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step(samples=len(inputs))

``runai.elastic.batch_size`` is what ONE GPU computes at a time. ``nn.DataParallel`` divides what it is given among all
of them, so a loader in front of it has to bring ``batch_size * gpus`` samples: with ``batch_size=batch_size``, as the
original's examples had it, a training on four GPUs has a quarter of the global batch. ``data_parallel_batch()`` is
that number, and ``batches()`` gives the right samples also where the global batch does not divide evenly.

A loop that goes on through resizes, by one engine a GPU:

    runai.elastic.torch.init(256, 64)
    optimizer = runai.ga.torch.optim.SGD(runai.elastic.steps, model.parameters(), lr=0.1)
    loader = runai.elastic.torch.loader(dataset, model, optimizer, epochs=3)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        loader.report(loss)                 # for logs and pages; it may be left out

In a job of OpenEDT, and in a plain process that sees several GPUs (or whose EDT_CPU_SLOTS says so), engines share every
update: the body runs in each of them for its own micro-batches, the gradients are summed in one order whatever their
number is, and joins, leaves and crashes change no weight. ``gpus`` and ``steps`` are those of the present batch,
``loader.epoch`` and ``loader.step`` its place. Elsewhere the body runs in this process, with the same arithmetic.

What is behind the loop runs once, with the trained weights: in a job's driver, where the body has not run. So the body
computes gradients and nothing else: a variable that it sets is not there after the loop; ``lr_scheduler=`` moves
learning rates; ``break``, and a second loop in one script, are errors in a job. After a crash a micro-batch may be
computed twice; it counts once. A loss that is a sum over the samples: ``reduction="sum"`` of the optimizer.
Outside of a job ``break`` ends the training with its last whole update, and no checkpoints are written.
"""

from __future__ import annotations

import torch
import torch.distributed

from edt_runner.pytorch.own_loop import seed_for_local_engines
from runai import elastic
from runai.elastic._batches import Batches
from runai.elastic._loader import loader

__all__ = ["batches", "data_parallel_batch", "init", "loader"]

batches = Batches


def init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Set the attributes of ``runai.elastic``; see there.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one GPU can hold at a time.
        gpus: devices; None: those that torch sees, which respects CUDA_VISIBLE_DEVICES, or this CPU as one.

    Raises UsageError, a ValueError, and leaves the attributes as they were.
    """
    if gpus is None:
        gpus = torch.cuda.device_count() or 1
    elastic._init(global_batch_size, max_gpu_batch_size, gpus)
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    elastic._set(master=not several or torch.distributed.get_rank() == 0)
    seed_for_local_engines()


def data_parallel_batch() -> int:
    """Samples that a loader in front of ``nn.DataParallel`` gives at a time, over all GPUs; of uneven steps the most.

    ``DataLoader(dataset, batch_size=runai.elastic.torch.data_parallel_batch())`` is exactly the global batch in
    ``runai.elastic.steps`` steps where that divides evenly; elsewhere use ``batches()``.
    """
    return int(max(elastic.sizes))
