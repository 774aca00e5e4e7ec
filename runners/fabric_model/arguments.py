"""Checks of what a user gave: each error names the argument, what it got and what it takes. Room: runners; pure."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from edt_runner.errors import UsageError

_LOGGER_METHODS = ("log_train_metrics", "log_test_metrics", "on_train_begin", "on_train_end")


def usage(name: str, got: object, takes: str) -> UsageError:
    """The one form of these errors."""
    return UsageError(f"{name}: got {_describe(got)}, takes {takes}")


def check_instance(name: str, value: object, kind: type, takes: str) -> None:
    if not isinstance(value, kind):
        raise usage(name, value, takes)


def check_callable(name: str, value: object) -> None:
    if not callable(value):
        raise usage(name, value, "a function")


def check_count(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise usage(name, value, f"a whole number, at least {least}")


def check_metrics(metrics: object) -> None:
    if metrics is None:
        return
    if not isinstance(metrics, Sequence) or isinstance(metrics, str):
        raise usage("metrics", metrics, "a list of functions (outputs, targets) -> number")
    for index, metric in enumerate(metrics):
        if not callable(metric):
            raise usage(f"metrics[{index}]", metric, "a function (outputs, targets) -> number")


def check_logger(name: str, logger: object) -> None:
    missing = [
        method for method in _LOGGER_METHODS if logger is not None and not callable(getattr(logger, method, None))
    ]
    if missing:
        raise usage(name, logger, f"a callbacks.LoggerCallback instance (it has no {', '.join(missing)})")
    if isinstance(logger, type):
        raise usage(name, logger, "an instance, not the class")


def check_parameters(model: nn.Module) -> None:
    """Gradients are summed as real numbers."""
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise UsageError(
                f"model: parameter {name} is complex, takes real parameters (torch.view_as_real keeps both parts)"
            )


def check_optimizer_covers(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients are only made for the model's parameters: an optimizer of other tensors would stand still."""
    known = {id(parameter) for parameter in model.parameters()}
    foreign = sum(1 for group in optimizer.param_groups for parameter in group["params"] if id(parameter) not in known)
    if foreign:
        raise UsageError(
            f"optimizer: got {foreign} parameters that are not the model's, "
            "takes an optimizer built over model.parameters()"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise usage("optimizer", optimizer, "an optimizer whose step() needs no closure")


def refuse_later(save_to_onnx: object, keras_custom_objects: object) -> None:
    if save_to_onnx:
        raise UsageError("save_to_onnx: got True, takes False: ONNX export comes with a later release")
    if keras_custom_objects is not None:
        raise UsageError("keras_custom_objects: got a value, takes None: Keras models come with edtTensorflow")


def logical_workers(engines_number: object, effective_batch_size: object, batch_size: int) -> int | None:
    """E by WMLA's rule; None: the slots offered."""
    if engines_number is not None:
        check_count("engines_number", engines_number, least=1)
    if effective_batch_size is None:
        return engines_number if isinstance(engines_number, int) else None
    check_count("effective_batch_size", effective_batch_size, least=1)
    assert isinstance(effective_batch_size, int)
    workers, rest = divmod(effective_batch_size, batch_size)
    if rest:
        near = [value for value in (workers * batch_size, (workers + 1) * batch_size) if value]
        raise usage(
            "effective_batch_size",
            effective_batch_size,
            f"a multiple of batch_size {batch_size}; the nearest are {' and '.join(map(str, near))}",
        )
    return max(workers, engines_number) if isinstance(engines_number, int) else workers


def _describe(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
