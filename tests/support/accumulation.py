"""One weight and micro-batches of a known gradient, for optimizers that accumulate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def one(value: float = 0.0) -> Tensor:
    return torch.tensor([value], requires_grad=True)


def call(optimizer: Any, weight: Tensor, slope: float = 1.0, **options: Any) -> float:
    """A micro-batch whose gradient is ``slope``; the weight afterwards."""
    optimizer.zero_grad()
    (slope * weight).sum().backward()
    optimizer.step(**options)
    return weight.item()
