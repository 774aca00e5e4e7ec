"""What torch's optimizers do not offer: a step with other hyperparameters than their own, and which
DistributedDataParallel their parameters are in."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from edt_runner.lr_scaling.update import Scaling


def has_betas(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it keeps moving averages of its gradients as Adam or RMSprop does."""
    return any("betas" in group for group in optimizer.param_groups) or isinstance(optimizer, torch.optim.RMSprop)


def scaled_values(optimizer: torch.optim.Optimizer, scaling: Scaling) -> list[dict[str, Any]]:
    """By parameter group, what of lr, betas (RMSprop's alpha) and eps is another under ``scaling``: new objects, also
    where it is a tensor. Velocities hold gradients without the learning rate and need nothing."""
    averages = isinstance(optimizer, torch.optim.RMSprop)
    groups = enumerate(optimizer.param_groups)
    return [_scaled(group, scaling, scaling.of(number), averages=averages) for number, group in groups]


@contextlib.contextmanager
def rescaled(optimizer: torch.optim.Optimizer, scaling: Scaling) -> Iterator[list[float]]:
    """Inside, hyperparameters are the scaled ones; yields the learning rates by group. Outside, whatever happens, they
    are the very objects that they were, save what the optimizer has itself replaced meanwhile. So they are for hooks
    that run after the step: a scheduler that is moved by one goes on from the learning rates that it finds."""
    groups = optimizer.param_groups
    changes = scaled_values(optimizer, scaling)
    before = [{key: group[key] for key in change} for group, change in zip(groups, changes, strict=True)]

    def put_back(*_: Any) -> None:
        for group, change, kept in zip(groups, changes, before, strict=True):
            group.update({key: value for key, value in kept.items() if group.get(key) is change[key]})

    hook = optimizer.register_step_post_hook(put_back)
    hooks: Any = optimizer._optimizer_step_post_hooks  # torch has no public way to be the first of them
    hooks.move_to_end(hook.id, last=False)
    try:
        for group, change in zip(groups, changes, strict=True):
            group.update(change)
        yield [float(group["lr"]) for group in groups if "lr" in group]
    finally:
        hook.remove()
        put_back()


def _scaled(group: Mapping[str, Any], scaling: Scaling, lr: float, *, averages: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if lr != 1.0 and "lr" in group:
        found["lr"] = group["lr"] * lr
    if scaling.beta != 1.0:
        if "betas" in group:
            found["betas"] = tuple(_beta(beta, scaling) for beta in group["betas"])
        if averages:
            found["alpha"] = _beta(group["alpha"], scaling)
    if scaling.eps != 1.0 and isinstance(group.get("eps"), int | float):  # Adafactor has a pair, of another meaning
        found["eps"] = group["eps"] * scaling.eps
    return found


def _beta(beta: Any, scaling: Scaling) -> Any:
    if isinstance(beta, Tensor):
        return (1.0 - scaling.beta * (1.0 - beta)).clamp(min=0.0)
    return scaling.betas(float(beta))


def in_group() -> bool:
    """Whether this process is one of several of torch.distributed."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def wrapping(parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
    """Those that hold one of ``parameters``. Neither parameters nor optimizers know it, so all objects of the process
    are looked through, which takes some hundredths of a second."""
    wanted = {id(parameter) for parameter in parameters}
    if _holding(wanted):
        gc.collect()  # one that nobody uses any more may not have gone yet
    return _holding(wanted)


def _holding(wanted: set[int]) -> list[DistributedDataParallel]:
    return [
        model
        for model in gc.get_objects()
        if issubclass(type(model), DistributedDataParallel) and any(id(each) in wanted for each in model.parameters())
    ]
