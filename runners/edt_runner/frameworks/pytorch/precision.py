"""Mixed precision: the type in which passes compute, and the scale of the loss with "fp16".

The scale is the same in all engines, and part of the training's state. Whether a gradient has overflowed is judged on
the reduced gradient alone, which all engines hold, so all leave the same steps out. The rule is that of torch's
GradScaler: half the scale after an overflow, twice the scale after 2000 steps without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALE = 2.0**16
_GROWTH_STEPS = 2000
_LEAST_SCALE = 2.0**-14
"""If the gradient overflows even with this scale, it is not the scale that is too large."""


class Precision:
    """The precision of one training.

    Args:
        name: "fp32", "bf16" or "fp16".
        device: the device that the model computes on.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self._type, self._device = _TYPES.get(name), device
        self.scales = name == "fp16"
        """Whether the loss is scaled."""
        self.scale = _FIRST_SCALE if self.scales else 1.0
        """The factor on losses, and so on the gradients in flat vectors."""
        self._good_steps = 0
        """Steps without an overflow since the scale has changed."""

    def autocast(self) -> AbstractContextManager[Any]:
        """A context for a forward pass and its loss."""
        if self._type is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._type)

    @property
    def may_shrink(self) -> bool:
        """Whether an overflow may be due to the scale."""
        return self.scales and self.scale > _LEAST_SCALE

    def overflowed(self) -> None:
        """Note that a step was left out because its gradient has overflowed."""
        self.scale, self._good_steps = self.scale / 2.0, 0

    def stepped(self) -> None:
        """Note that a step was taken."""
        if not self.scales:
            return
        self._good_steps += 1
        if self._good_steps >= _GROWTH_STEPS:
            self.scale, self._good_steps = self.scale * 2.0, 0

    def to_json_object(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self._good_steps}

    def load(self, stored: Mapping[str, Any]) -> None:
        self.scale, self._good_steps = float(stored["scale"]), int(stored["good_steps"])
