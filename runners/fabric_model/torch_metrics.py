"""Metrics as the engine takes them: name -> function over one micro-batch. Room: runners; torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Metric = Callable[[Any, Any], Any]


def top1_accuracy(outputs: Any, targets: Any) -> Any:
    """Share of samples whose highest score is at the target class; 0 where outputs are not class scores."""
    if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
        return 0.0
    if outputs.dim() != 2 or targets.dim() != 1 or targets.is_floating_point():
        return 0.0
    return (outputs.argmax(dim=1) == targets).double().mean()


def named(metrics: Sequence[Metric]) -> dict[str, Metric]:
    """Each metric under its function's name; a second one of the same name gets a number."""
    found: dict[str, Metric] = {}
    for metric in metrics:
        base = getattr(metric, "__name__", type(metric).__name__)
        name, number = base, 2
        while name in found or name == "loss":
            name, number = f"{base}_{number}", number + 1
        found[name] = metric
    return found
