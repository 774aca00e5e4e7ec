"""Checks of a PyTorch user's arguments of FabricModel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.frameworks.pytorch.user_steps import ACCURACY, UserSteps, UserStepsTrainable
from fabric_model.arguments import check_callable, usage


def trainable(
    model: nn.Module, loss_function: Any, optimizer: Any, metrics: Any, keras_custom_objects: Any
) -> TorchTrainable:
    """Check the arguments.

    Raises:
        UsageError: an argument is wrong; the message names it, the value it got, and the values it takes.
    """
    check_parameters(model)
    check_callable("loss_function", loss_function)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise usage("optimizer", optimizer, "a torch.optim.Optimizer instance")
    check_optimizer_covers(model, optimizer)
    check_metrics(metrics)
    if keras_custom_objects is not None:
        raise UsageError("keras_custom_objects: got a value, takes None: the model is a torch.nn.Module")
    chosen = {"accuracy": top1_accuracy} if metrics is None else named(metrics)
    return TorchTrainable(model, optimizer, loss_function, chosen)


def with_steps(
    plain: TorchTrainable, fn_step_train: Any, fn_test: Any, metrics: Any
) -> tuple[UserStepsTrainable, UserSteps]:
    """Let functions of the user compute the micro-batches of a training.

    Args:
        plain: the training without them.
        fn_step_train, fn_test: the functions; None: the platform's own.
        metrics: what the user gave; it must be None, because the functions return the accuracy or nothing.

    Raises:
        UsageError: one of them is no function, or there are metrics.
    """
    given = {"fn_step_train": fn_step_train, "fn_test": fn_test}
    for name, function in given.items():
        if function is not None:
            check_callable(name, function)
    if metrics is not None:
        names = " and ".join(name for name, function in given.items() if function is not None)
        raise UsageError(f"metrics: got a value, takes None with {names}, whose one metric is the accuracy")
    steps = UserSteps(fn_step_train, fn_test, top1_accuracy)
    chosen = {ACCURACY: top1_accuracy}
    return UserStepsTrainable(plain.model, plain.optimizer, plain.loss_function, chosen, steps), steps


def check_parameters(model: nn.Module) -> None:
    """Check that no parameter is complex, because gradients are summed as real numbers.

    Raises:
        UsageError: a parameter is complex.
    """
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise UsageError(
                f"model: parameter {name} is complex, takes real parameters (torch.view_as_real keeps both parts)"
            )


def check_optimizer_covers(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that an optimizer can be used: it has only parameters of the model, since no other tensors get gradients.

    Raises:
        UsageError: it has other tensors, needs a closure, or accumulates gradients itself.
    """
    known = {id(parameter) for parameter in model.parameters()}
    foreign = sum(1 for group in optimizer.param_groups for parameter in group["params"] if id(parameter) not in known)
    if foreign:
        raise UsageError(
            f"optimizer: got {foreign} parameters that are not the model's, "
            "takes an optimizer built over model.parameters()"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise usage("optimizer", optimizer, "an optimizer whose step() needs no closure")
    if getattr(getattr(optimizer, "runai", None), "steps", 1) > 1:  # its sums would not be part of the engines' state
        raise usage("optimizer", optimizer, "one that does not accumulate: effective_batch_size does it over engines")


def check_metrics(metrics: object) -> None:
    """Check each metric.

    Raises:
        UsageError: ``metrics`` is no list of functions.
    """
    if metrics is None:
        return
    if not isinstance(metrics, Sequence) or isinstance(metrics, str):
        raise usage("metrics", metrics, "a list of functions (outputs, targets) -> number")
    for index, metric in enumerate(metrics):
        if not callable(metric) and not (isinstance(metric, str) and metric in _BY_NAME):
            raise usage(f"metrics[{index}]", metric, "a function (outputs, targets) -> number, or 'accuracy'")


Metric = Callable[[Any, Any], Any]


def top1_accuracy(outputs: Any, targets: Any) -> Any:
    """Share of samples whose highest score is at the target class; 0 if the outputs are not class scores."""
    if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
        return 0.0
    if outputs.dim() != 2 or targets.dim() != 1 or targets.is_floating_point():
        return 0.0
    return (outputs.argmax(dim=1) == targets).double().mean()


_BY_NAME: dict[str, Metric] = {"accuracy": top1_accuracy, "acc": top1_accuracy}
"""Metrics that a user may give by name."""


def named(metrics: Sequence[Metric | str]) -> dict[str, Metric]:
    """Metrics by their names: a function's own name, or the name that the user gave. If a name occurs again, a number
    is added to it."""
    found: dict[str, Metric] = {}
    for given in metrics:
        metric = _BY_NAME[given] if isinstance(given, str) else given
        base = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        name, number = base, 2
        while name in found or name == "loss":
            name, number = f"{base}_{number}", number + 1
        found[name] = metric
    return found
