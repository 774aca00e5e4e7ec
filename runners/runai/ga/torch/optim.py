"""torch's optimizers, updating once in ``steps`` micro-batches. Room: runners; torch.

    optimizer = runai.ga.torch.optim.Adam(4, model.parameters(), lr=1e-3)       # or
    optimizer = runai.ga.torch.optim.Optimizer(optimizer, 4)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_function(model(inputs), targets).backward()
        optimizer.step()                    # each fourth call updates

``reduction="mean"``, the default, is right for a loss that is a mean over its micro-batch, as torch's are: the update
is that of one batch with all the samples, whatever ``steps`` is. The original adds the micro-batches' gradients up,
which makes the update ``steps`` times as large, so that the number of GPUs changes the training; for a loss with
``reduction="sum"`` that is right, and ``reduction="sum"`` here does it.

Micro-batches of different sizes: ``optimizer.step(samples=len(inputs))``, or ``sizes=runai.elastic.sizes`` where it
is known beforehand. An epoch that ends within a cycle is gone on with in the next one; ``optimizer.flush()`` updates
with what there is. With a GradScaler, ``scaler.step(optimizer)`` and ``scaler.update()`` after each micro-batch; one
whose gradients overflow is not counted. Under DistributedDataParallel all micro-batches but a cycle's last may run
within ``no_sync()``: what it leaves to each process is averaged at the update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from runai.ga.torch._accumulating import Accumulating, accumulate
from runai.ga.torch._state import Driver, State


def Optimizer(  # noqa: N802 - the original's name
    optimizer: torch.optim.Optimizer, steps: int, *, reduction: str = "mean", sizes: Sequence[int] | None = None
) -> Accumulating:
    """Make ``optimizer`` update once in ``steps`` calls of its ``step``. It is changed itself, and returned.

    Args:
        optimizer: any torch optimizer but LBFGS; what it has learnt so far stays.
        steps: micro-batches of an update, at least 1.
        reduction: ``mean`` or ``sum``; see the module.
        sizes: samples of each of the ``steps`` micro-batches; None: alike.

    Raises UsageError, a ValueError.
    """
    return accumulate(optimizer, steps, reduction, sizes)


def _named(name: str) -> Callable[..., Accumulating]:
    """``(steps, *arguments of torch.optim.<name>, reduction=, sizes=, **its options)``."""
    kind: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, name)

    def build(
        steps: int, *args: Any, reduction: str = "mean", sizes: Sequence[int] | None = None, **options: Any
    ) -> Accumulating:
        return accumulate(kind(*args, **options), steps, reduction, sizes)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"``Optimizer(torch.optim.{name}(*args, **options), steps, reduction=, sizes=)``."
    return build


Adadelta = _named("Adadelta")
Adagrad = _named("Adagrad")
Adam = _named("Adam")
AdamW = _named("AdamW")
Adamax = _named("Adamax")
ASGD = _named("ASGD")
NAdam = _named("NAdam")
RAdam = _named("RAdam")
RMSprop = _named("RMSprop")
Rprop = _named("Rprop")
SGD = _named("SGD")
SparseAdam = _named("SparseAdam")

__all__ = [
    "ASGD",
    "SGD",
    "Accumulating",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Driver",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "State",
]

if hasattr(torch.optim, "Adafactor"):  # since torch 2.5
    Adafactor = _named("Adafactor")
    __all__ += ["Adafactor"]
if hasattr(torch.optim, "Muon"):  # since torch 2.9
    Muon = _named("Muon")
    __all__ += ["Muon"]

torch.serialization.add_safe_globals([State])  # in the original's checkpoints
