"""What the forward pass of a process without a share of an update would change. Room: runners; torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Idle:
    """Takes back what a pass that does not count did to a model's buffers, such as batch statistics, and to torch's
    random numbers.

    Args:
        model: whose passes.
        coming: whether the pass to come does not count.
    """

    def __init__(self, model: nn.Module, coming: Callable[[], bool]) -> None:
        self._model = model
        self._coming: Callable[[], bool] | None = coming
        self._buffers: dict[str, Tensor] | None = None
        self._random: list[tuple[torch.device | None, Tensor]] = []
        model.register_forward_pre_hook(self._before)

    def undo(self) -> None:
        """Put back what was before the pass, if there was one."""
        if self._buffers is None:
            return
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(self._buffers[name])
        for device, state in self._random:
            if device is None:
                torch.set_rng_state(state)
            else:
                torch.cuda.set_rng_state(state, device)
        self._buffers = None

    def _before(self, model: nn.Module, inputs: Any) -> None:
        if self._coming is None or self._buffers is not None or not model.training or not self._coming():
            return
        self._buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        devices = {tensor.device for tensor in [*model.parameters(), *self._buffers.values()] if tensor.is_cuda}
        self._random = [(None, torch.get_rng_state())]
        self._random += [(device, torch.cuda.get_rng_state(device)) for device in devices]

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model has a hook that does nothing: it is of no optimizer."""
        return {"_model": None, "_coming": None, "_buffers": None, "_random": []}
