"""Metrics as sums, which can be added up over micro-batches, steps and engines.

A function's metric has two sums: value x samples, and samples. So a batch for which it returns None adds nothing. A
metric of ``torchmetrics`` has its own states, if these add up; its value is computed from their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from edt_runner.errors import UsageError

Function = Callable[[Any, Any], Any]


def top1_accuracy(outputs: Any, targets: Any) -> Any:
    """Share of samples whose highest score is at the target class; None if the outputs are not class scores."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return None
    if outputs.dim() != 2 or outputs.shape[1] < 2 or targets.dim() != 1 or targets.is_floating_point():
        return None
    return (outputs.argmax(dim=1) == targets).double().mean()


class Metric(Protocol):
    """One metric of a training."""

    width: int
    """How many sums it has."""

    def write(self, place: Tensor, outputs: Any, targets: Any, count: int) -> None:
        """Write the sums of a micro-batch of ``count`` samples to ``place``, of shape (``width``,)."""

    def values(self, name: str, sums: Sequence[float]) -> dict[str, float]:
        """Return the metric's values by name; none if no batch had one."""


class Mean:
    """A function (outputs, targets) -> mean over the micro-batch, or None."""

    width = 2

    def __init__(self, function: Function) -> None:
        self._function = function

    def write(self, place: Tensor, outputs: Any, targets: Any, count: int) -> None:
        write_mean(place, self._function(outputs, targets), count)

    def values(self, name: str, sums: Sequence[float]) -> dict[str, float]:
        return {name: sums[0] / sums[1]} if sums[1] else {}


def write_mean(place: Tensor, value: Any, count: int) -> None:
    """Write the two sums of a mean over ``count`` samples. ``value``: a number, a tensor of one number, or None."""
    if value is None:
        place.zero_()
        return
    place[0] = value * count
    place[1] = count


class States:
    """A metric of ``torchmetrics``, whose states are sums.

    Args:
        name: what errors call the metric.
        metric: the metric; it is reset for each micro-batch.

    Raises:
        UsageError: a state of the metric is no sum, so that states of several engines cannot be added.
    """

    def __init__(self, name: str, metric: Any) -> None:
        self._metric = metric
        self._names = list(metric._defaults)
        for state in self._names:
            reduction, default = metric._reductions.get(state), metric._defaults[state]
            if getattr(reduction, "__name__", "") != "dim_zero_sum" or not isinstance(default, Tensor):
                raise UsageError(
                    f"metrics: {name} keeps {state}, which engines cannot add up; takes a metric whose states are sums "
                    "(curves of torchmetrics have them with thresholds=200)"
                )
        self._shapes = [metric._defaults[state].shape for state in self._names]
        self.width = sum(shape.numel() for shape in self._shapes)

    def write(self, place: Tensor, outputs: Any, targets: Any, count: int) -> None:
        metric = self._metric
        if isinstance(outputs, Tensor) and metric.device != outputs.device:
            metric.to(outputs.device)
        metric.reset()
        metric.update(outputs, targets)
        states = [getattr(metric, state) - metric._defaults[state].to(metric.device) for state in self._names]
        place.copy_(torch.cat([state.reshape(-1).to(place.device, place.dtype) for state in states]))
        metric.reset()

    def values(self, name: str, sums: Sequence[float]) -> dict[str, float]:
        if not any(sums):
            return {}
        metric = self._metric
        metric.reset()
        parts = torch.split(torch.tensor(sums, dtype=torch.float64), [shape.numel() for shape in self._shapes])
        for state, part, shape in zip(self._names, parts, self._shapes, strict=True):
            default = metric._defaults[state]
            setattr(metric, state, (part.view(shape).to(default.dtype) + default).to(metric.device))
        metric._update_count = 1  # torchmetrics warns if compute() runs before update()
        found = metric.compute()
        metric.reset()
        return _numbers(name, found)


def _numbers(name: str, found: Any) -> dict[str, float]:
    """A computed value by name; several numbers, such as one for each class, get numbers behind the name."""
    if isinstance(found, Mapping):
        return {key: float(value) for key, value in found.items()}
    if isinstance(found, Tensor):
        flat = found.reshape(-1).tolist()
        return {name if len(flat) == 1 else f"{name}_{index}": number for index, number in enumerate(flat)}
    return {name: float(found)}


def is_of_torchmetrics(metric: Any) -> bool:
    """Whether an object is a metric with states, without importing ``torchmetrics``."""
    return all(hasattr(metric, name) for name in ("_defaults", "_reductions", "update", "compute", "reset"))


class MetricSet:
    """All metrics of a training, in the order of their sums.

    Args:
        metrics: name -> function or metric of ``torchmetrics``.
    """

    def __init__(self, metrics: Mapping[str, Any]) -> None:
        self._metrics: dict[str, Metric] = {
            name: States(name, metric) if is_of_torchmetrics(metric) else Mean(metric)
            for name, metric in metrics.items()
        }
        self.width = sum(metric.width for metric in self._metrics.values())

    def write(self, place: Tensor, outputs: Any, targets: Any, count: int) -> None:
        """Write the sums of a micro-batch to ``place``, of shape (``width``,)."""
        start = 0
        with torch.no_grad():
            for metric in self._metrics.values():
                metric.write(place[start : start + metric.width], outputs, targets, count)
                start += metric.width

    def add_told(self, names: Iterable[str]) -> None:
        """Add metrics that a function of the user returns, if there is none of that name."""
        for name in names:
            if name not in self._metrics:
                self._metrics[name] = Mean(_never_called)
                self.width += 2

    def write_told(self, place: Tensor, told: Mapping[str, Any], count: int) -> None:
        """Write metrics that are known by name, means over ``count`` samples, to ``place``, of shape (``width``,).

        Raises:
            UsageError: there is a name that no batch had at the beginning of the training.
        """
        unknown = [name for name in told if name not in self._metrics]
        if unknown:
            raise UsageError(
                f"metrics: a step returned {', '.join(unknown)}, which it had not returned for the first batch; takes "
                "the same names for every batch (None where there is no value)"
            )
        start = 0
        for name, metric in self._metrics.items():
            own = place[start : start + metric.width]
            if name in told and isinstance(metric, Mean):
                value = told[name]
                write_mean(own, value.detach() if isinstance(value, Tensor) else value, count)
            else:
                own.zero_()
            start += metric.width

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        """Return all values by name, from sums of shape (``width``,)."""
        found: dict[str, float] = {}
        start = 0
        for name, metric in self._metrics.items():
            found |= metric.values(name, sums[start : start + metric.width])
            start += metric.width
        return found


def _never_called(outputs: Any, targets: Any) -> Any:
    raise AssertionError("a function of the user returns this metric")
