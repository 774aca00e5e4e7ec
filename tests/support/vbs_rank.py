"""What each process of a group does with ``variable_batch_size``, and what it saw.

Run as ``python -m support.vbs_rank FOLDER`` it forks groups of 2 and of 3 processes, which meet in FOLDER and write
there what they saw: torch is imported once for all of them. One process alone calls ``everything``.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import variable_batch_size as vbs
from support import regression

SIZES = (2, 3)
SAVED_AT = (3, 14, 30, 33, 37)
"""Micro-steps of rank 0, over all epochs, after which it saves."""
ADA = [8, 8, 16, 16, 8, 12, 20, 32, 8, 8, 24, 16, 24, 24, 8, 8, 64]
"""The trace of AdaScale: 17 updates."""


class Training:
    """One training of the regression, from zero weights or a state."""

    def __init__(
        self,
        rank: int,
        size: int,
        make: Callable[..., vbs.CustomOptimizer] = vbs.LinearRuleOptimizer,
        trace: Any = None,
        inner: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        inner_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        inputs, targets = regression.data()
        self.inputs, self.targets = torch.tensor(inputs), torch.tensor(targets)
        self.weights = torch.zeros(regression.WEIGHTS, dtype=torch.float64, requires_grad=True)
        self.sampler = vbs.CustomSampler(
            self.inputs,
            regression.MAIN if trace is None else trace,
            num_replicas=size,
            rank=rank,
            minibatch_size=regression.MICRO_BATCH,
            verbose=False,
        )
        within = inner([self.weights], lr=regression.LEARNING_RATE, **(inner_options or {}))
        self.optimizer = make(within, self.sampler, ref_batchsize=regression.REFERENCE, **options)
        self.returned: list[list[bool]] = []
        self.seen: list[list[float]] = []
        """Weights after each update."""

    def run(self, epochs: int = 5) -> Iterator[None]:
        """Yields after each micro-step."""
        for epoch in range(self.sampler.epoch, epochs):
            self.sampler.set_epoch(epoch)
            self.optimizer.set_epoch(epoch)
            self.returned.append([])
            for indices in self.sampler:
                loss = ((self.inputs[indices] @ self.weights - self.targets[indices]) ** 2).mean()
                loss.backward()  # type: ignore[no-untyped-call]
                self.returned[-1].append(self.optimizer.step())
                if self.returned[-1][-1]:
                    self.seen.append(self.weights.tolist())
                yield

    def finish(self) -> Training:
        for _ in self.run():
            pass
        return self

    def save(self) -> bytes:
        file = io.BytesIO()
        torch.save({"weights": self.weights.detach(), "optimizer": self.optimizer.state_dict()}, file)
        return file.getvalue()

    def load(self, saved: bytes) -> Training:
        state = torch.load(io.BytesIO(saved), weights_only=True)
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        return self


def everything(rank: int, size: int, folder: Path) -> dict[str, Any]:
    """All that one process of ``size`` has to show. States are saved to and loaded from ``folder``."""
    linear = Training(rank, size).finish()
    momentum = Training(rank, size, inner_options={"momentum": 0.9}).finish()
    saving = Training(rank, size, inner_options={"momentum": 0.9})
    for step, _ in enumerate(saving.run(), start=1):
        if step in SAVED_AT and rank == 0:
            (folder / f"state-{size}-{step}").write_bytes(saving.save())
    shares = linear.sampler.get_batch_assignments
    return {
        "assignments": [shares(batches) for batches in regression.EPOCHS],
        "returned": linear.returned,
        "linear": linear.seen,
        "momentum": momentum.seen,
        "root": Training(rank, size, vbs.RootRuleOptimizer).finish().seen,
        "adam": Training(rank, size, vbs.AdamSquareRootOptimizer, inner=torch.optim.AdamW).finish().seen,
        "adascale": _adascale(rank, size, False),
        "adascale_averages": _adascale(rank, size, "averages"),
        "noise_scale": linear.optimizer.noise_scale,
        "batch_statistics": _batch_statistics(rank, size),
        "some_unused": _some_unused(rank, size),
        "resumed": {
            path.name: Training(rank, size, inner_options={"momentum": 0.9}).load(path.read_bytes()).finish().seen[-1]
            for path in sorted(folder.glob("state-1-*"))
        },
        "astray": _astray(rank, size) if size > 1 else "",
        "unlike": _unlike(rank, size) if size > 1 else "",
        "wrapped": _wrapped(rank, size) if size > 1 else "",
    }


def _adascale(rank: int, size: int, compat: bool | str) -> dict[str, Any]:
    training = Training(rank, size, vbs.AdaScaleOptimizer, ADA, compat=compat)
    gains = []
    for _ in training.run():
        if training.returned[-1][-1]:
            gains.append(training.optimizer.gain()[0])  # type: ignore[attr-defined]
    iterations = training.optimizer.scale_invariant_iterations  # type: ignore[attr-defined]
    return {"gains": gains, "weights": training.seen, "iterations": iterations}


def _batch_statistics(rank: int, size: int) -> dict[str, Any]:
    """An update of two micro-batches, then two of one: whoever is idle in those keeps statistics and random numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 1)).double()
    sampler = vbs.CustomSampler(range(16), [8, 4, 4], num_replicas=size, rank=rank, minibatch_size=4, verbose=False)
    optimizer = vbs.ConstantOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), sampler, 4, model=model)
    inputs = torch.tensor(regression.data()[0])
    torch.manual_seed(rank)
    seen = []
    for indices in sampler:
        idle, before = optimizer.idle, (model[0].num_batches_tracked.item(), torch.get_rng_state())
        model(inputs[indices]).mean().backward()
        optimizer.step()
        kept = model[0].num_batches_tracked.item() == before[0] and bool((torch.get_rng_state() == before[1]).all())
        seen.append((idle, kept))
    return {"idle_and_kept": seen, "weight": model[2].weight.tolist()}


def _some_unused(rank: int, size: int) -> dict[str, Any]:
    """One weight that only rank 0's samples touch, one that none do: the second keeps out of the weight decay."""
    used, here, nowhere = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    inner = torch.optim.SGD([{"params": [nowhere, used]}, {"params": [here], "lr": 0.5}], lr=0.1, weight_decay=0.1)
    sampler = vbs.CustomSampler(
        dataset_size=12, trace=12, num_replicas=size, rank=rank, minibatch_size=4, verbose=False
    )
    optimizer = vbs.ConstantOptimizer(inner, sampler, 12)
    for minibatch in sampler.get_batch_assignments([12])[0]:
        loss: Tensor = (used * minibatch).sum() + (here.sum() if minibatch == 0 else 0.0)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {"used": used.tolist(), "here": here.tolist(), "nowhere": nowhere.tolist()}


def _astray(rank: int, size: int) -> str:
    """Rank 1 takes the traces' second epoch for the first."""
    training = Training(rank, size, trace=[8] * 8 + [24, 24, 16, 64] * 4)
    if rank == 1:
        training.sampler.set_epoch(1)
        training.optimizer.set_epoch(1)
    try:
        for indices in training.sampler:
            ((training.inputs[indices] @ training.weights) ** 2).mean().backward()
            training.optimizer.step()
    except RuntimeError as error:
        return str(error)
    return ""


def _unlike(rank: int, size: int) -> str:
    """Rank 1 begins with other weights."""
    training = Training(rank, size)
    with torch.no_grad():
        training.weights.fill_(1.0 + 0.01 * (rank == 1))
    try:
        training.finish()
    except RuntimeError as error:
        return str(error)
    return ""


def _wrapped(rank: int, size: int) -> str:
    """The model is in a DistributedDataParallel."""
    linear = torch.nn.Linear(regression.WEIGHTS, 1, bias=False, dtype=torch.float64)
    model = torch.nn.parallel.DistributedDataParallel(linear)
    sampler = Training(rank, size).sampler
    optimizer = vbs.LinearRuleOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), sampler, regression.REFERENCE)
    model(torch.ones(1, regression.WEIGHTS, dtype=torch.float64)).sum().backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        return str(error)
    return ""


def _rank(rank: int, size: int, folder: Path) -> None:
    store = dist.FileStore(str(folder / f"meeting-{size}"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))
    (folder / f"saw-{size}-{rank}.json").write_text(json.dumps(everything(rank, size, folder)))
    dist.destroy_process_group()


def main() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # an optimizer's beginning imports it, which takes as long as torch
    started = []
    for rank, size in [(rank, count) for count in SIZES for rank in range(count)]:
        if pid := os.fork():
            started.append(pid)
            continue
        try:
            _rank(rank, size, Path(sys.argv[1]))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started))


if __name__ == "__main__":
    main()
