"""What torch's optimizers do not offer: a step with other hyperparameters than their own, and a way to find the
DistributedDataParallel that holds their parameters."""

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
    """Whether the optimizer keeps moving averages of its gradients, as Adam and RMSprop do."""
    return any("betas" in group for group in optimizer.param_groups) or isinstance(optimizer, torch.optim.RMSprop)


def scaled_values(optimizer: torch.optim.Optimizer, scaling: Scaling) -> list[dict[str, Any]]:
    """The hyperparameters that are different under ``scaling``, by parameter group.

    These are lr, betas (RMSprop's alpha) and eps, as new objects, even if they are tensors. Velocities need no change,
    because they hold gradients without the learning rate.
    """
    averages = isinstance(optimizer, torch.optim.RMSprop)
    groups = enumerate(optimizer.param_groups)
    return [_scaled(group, scaling, scaling.of(number), averages=averages) for number, group in groups]


@contextlib.contextmanager
def rescaled(optimizer: torch.optim.Optimizer, scaling: Scaling) -> Iterator[list[float]]:
    """A context in which the optimizer has the scaled hyperparameters.

    The context yields the learning rates by group. At its end, even after an error, the groups hold the same objects
    as before, except those that the optimizer itself has replaced. This is already so for hooks that run after the
    step: a scheduler that such a hook moves must see the user's learning rates.
    """
    groups = optimizer.param_groups
    changes = scaled_values(optimizer, scaling)
    before = [{key: group[key] for key in change} for group, change in zip(groups, changes, strict=True)]

    def put_back(*_: Any) -> None:
        for group, change, kept in zip(groups, changes, before, strict=True):
            group.update({key: value for key, value in kept.items() if group.get(key) is change[key]})

    hook = optimizer.register_step_post_hook(put_back)
    hooks: Any = optimizer._optimizer_step_post_hooks  # torch has no public way to run a hook before all others
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
    if scaling.eps != 1.0 and isinstance(group.get("eps"), int | float):  # Adafactor's eps is a pair of other meaning
        found["eps"] = group["eps"] * scaling.eps
    return found


def _beta(beta: Any, scaling: Scaling) -> Any:
    if isinstance(beta, Tensor):
        return (1.0 - scaling.beta * (1.0 - beta)).clamp(min=0.0)
    return scaling.betas(float(beta))


def in_group() -> bool:
    """Whether this process is one of several in a torch.distributed group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def wrapping(parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
    """The DistributedDataParallel models that hold one of ``parameters``.

    Neither parameters nor optimizers refer to such a model, so this looks through all objects of the process, which
    takes some hundredths of a second.
    """
    wanted = {id(parameter) for parameter in parameters}
    if _holding(wanted):
        gc.collect()  # one that is no longer used may still exist
    return _holding(wanted)


def _holding(wanted: set[int]) -> list[DistributedDataParallel]:
    return [
        model
        for model in gc.get_objects()
        if issubclass(type(model), DistributedDataParallel) and any(id(each) in wanted for each in model.parameters())
    ]
