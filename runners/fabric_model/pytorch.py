"""Checks of a PyTorch user's arguments of FabricModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from edt_runner.errors import UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.pytorch.metrics import States, is_of_torchmetrics, top1_accuracy
from edt_runner.frameworks.pytorch.passes import ACCURACY
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from fabric_model.arguments import check_callable, usage


def trainable(model: nn.Module, optimizer: Any, keras_custom_objects: Any, asked: Asked) -> TorchTrainable:
    """Check the arguments.

    Raises:
        UsageError: an argument is wrong; the message names it, the value it got, and the values it takes.
    """
    check_parameters(model)
    check_computing(asked)
    optimizers = optimizers_of(model, optimizer)
    if keras_custom_objects is not None:
        raise UsageError("keras_custom_objects: got a value, takes None: the model is a torch.nn.Module")
    return TorchTrainable(model, optimizers, asked, metrics_of(asked))


def optimizers_of(model: nn.Module, optimizer: Any) -> tuple[torch.optim.Optimizer, ...]:
    """Check an optimizer, or a list of several, and return them.

    Raises:
        UsageError: one of them cannot be used, or a parameter belongs to two of them.
    """
    optimizers = tuple(optimizer) if isinstance(optimizer, list | tuple) else (optimizer,)
    for index, each in enumerate(optimizers):
        name = f"optimizer[{index}]" if isinstance(optimizer, list | tuple) else "optimizer"
        if not isinstance(each, torch.optim.Optimizer):
            raise usage(name, each, "a torch.optim.Optimizer instance, or a list of them")
        check_optimizer_covers(model, each)
    if not optimizers:
        raise UsageError("optimizer: got an empty list, takes a torch.optim.Optimizer instance, or a list of them")
    _check_apart(optimizers)
    return optimizers


def check_computing(asked: Asked) -> None:
    """Check the arguments that say how loss and metrics are computed.

    Raises:
        UsageError: one of them is wrong, or two contradict each other.
    """
    functions = ("training_step", "validation_step", "fn_step_train", "fn_test", "token_count")
    for name in functions:
        if getattr(asked, name) is not None:
            check_callable(name, getattr(asked, name))
    if asked.loss_function is not None:
        check_callable("loss_function", asked.loss_function)
    for own, wmla in (("training_step", "fn_step_train"), ("validation_step", "fn_test")):
        if getattr(asked, own) is not None and getattr(asked, wmla) is not None:
            raise UsageError(f"{wmla}: got a value, takes None with {own}, which does the same")
    takes = ("sample", "token", "sum")
    if asked.loss_reduction not in takes:
        raise usage("loss_reduction", asked.loss_reduction, "'sample', 'token' or 'sum'")
    if asked.token_count is not None and asked.loss_reduction != "token":
        raise UsageError(f"token_count: got a value, takes None with loss_reduction={asked.loss_reduction!r}")
    if asked.fn_step_train is not None and asked.loss_reduction != "sample":
        raise usage("loss_reduction", asked.loss_reduction, "'sample' with fn_step_train; training_step takes all")
    check_metrics(asked.metrics)
    if asked.metrics is not None and (asked.fn_step_train is not None or asked.fn_test is not None):
        names = " and ".join(name for name in ("fn_step_train", "fn_test") if getattr(asked, name) is not None)
        raise UsageError(f"metrics: got a value, takes None with {names}, whose one metric is the accuracy")
    if asked.metrics is not None and asked.training_step is not None:
        raise UsageError("metrics: got a value, takes None with training_step, which returns them in its dict")


def metrics_of(asked: Asked) -> dict[str, Any]:
    """The metrics by name. Those that the user's steps return are not known yet."""
    if asked.training_step is not None:
        return {}
    if asked.fn_step_train is not None or asked.fn_test is not None:
        return {ACCURACY: top1_accuracy}
    return {"accuracy": top1_accuracy} if asked.metrics is None else named(asked.metrics)


def _check_apart(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Check that no parameter belongs to two optimizers, which would both change it in each step.

    Raises:
        UsageError: a parameter does.
    """
    seen: set[int] = set()
    for optimizer in optimizers:
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if own & seen:
            raise UsageError(f"optimizer: got {len(own & seen)} parameters in two optimizers, takes each in one")
        seen |= own


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
        UsageError: ``metrics`` is neither a list nor a dict of functions or metrics of ``torchmetrics``.
    """
    if metrics is None:
        return
    each = "a function (outputs, targets) -> number, a metric of torchmetrics, or 'accuracy'"
    if isinstance(metrics, Mapping):
        items = [(f"metrics[{name!r}]", metric) for name, metric in metrics.items()]
        if not all(isinstance(name, str) and name != "loss" for name in metrics):
            raise usage("metrics", metrics, "a dict whose keys are names, none of them 'loss'")
    elif isinstance(metrics, Sequence) and not isinstance(metrics, str):
        items = [(f"metrics[{index}]", metric) for index, metric in enumerate(metrics)]
    else:
        raise usage("metrics", metrics, f"a list, or a dict by name, each item {each}")
    for name, metric in items:
        if isinstance(metric, type) or not (callable(metric) or (isinstance(metric, str) and metric in _BY_NAME)):
            raise usage(name, metric, each)
        if is_of_torchmetrics(metric):
            States(name, metric)


_BY_NAME: dict[str, Any] = {"accuracy": top1_accuracy, "acc": top1_accuracy}
"""Metrics that a user may give by name."""


def named(metrics: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Metrics by their names: a function's own name, a class's name, or the name that the user gave. If a name occurs
    again, a number is added to it."""
    if isinstance(metrics, Mapping):
        return {name: _BY_NAME[metric] if isinstance(metric, str) else metric for name, metric in metrics.items()}
    found: dict[str, Any] = {}
    for given in metrics:
        metric = _BY_NAME[given] if isinstance(given, str) else given
        base = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        name, number = base, 2
        while name in found or name == "loss":
            name, number = f"{base}_{number}", number + 1
        found[name] = metric
    return found
