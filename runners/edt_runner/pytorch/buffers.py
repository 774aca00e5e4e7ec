"""State that a forward pass changes: a model's buffers, combined over micro-batches and committed. Room: runners.

Every micro-batch starts from the committed values. Float buffers (running means) become the weighted mean of what
the micro-batches left in them; one that none of them touched stays as it is, to the bit. Integer buffers (a count
of batches) must have been moved alike by all, and move once, by as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


class Buffers:
    """The buffers of one model. A buffer is known by its place, since forward may put another tensor there."""

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[str, tuple[nn.Module, str]] = {}
        self._tensors: dict[str, Tensor] = {}
        self.refused: list[str] = []
        """Names of those that cannot be combined."""
        for name, buffer in model.named_buffers():
            owner, _, key = name.rpartition(".")
            if buffer.is_complex():
                self.refused.append(name)
            else:
                self._places[name] = (model.get_submodule(owner), key)
                self._tensors[name] = buffer
        self.committed = {name: b.detach().clone() for name, b in self._tensors.items()}
        self.floats = {name: b for name, b in self.committed.items() if b.is_floating_point()}
        self.integers = {name: b for name, b in self.committed.items() if not b.is_floating_point()}
        self.float_size = sum(b.numel() for b in self.floats.values())
        self.integer_size = sum(b.numel() for b in self.integers.values())
        self._own_steps: Tensor | None = None

    def restore(self) -> None:
        """Put the committed values into the model."""
        with torch.no_grad():
            for name, (owner, key) in self._places.items():
                owner._buffers[key] = self._tensors[name]
                self._tensors[name].copy_(self.committed[name])

    def recommit(self) -> None:
        """Take what is in the model as the committed values."""
        for name, committed in self.committed.items():
            committed.copy_(self._now(name))
        self.restore()

    def write(self, floats: Tensor, changed: Tensor, integers: Tensor) -> None:
        """What this forward made of them: float values, one flag each whether it changed, integer steps."""
        with torch.no_grad():
            for index, (name, part) in enumerate(zip(self.floats, _split(floats, self.floats), strict=True)):
                now = self._now(name)
                changed[index] = not torch.equal(now, self.committed[name])
                part.copy_(now.reshape(-1))
            if self.integers:
                steps = [self._now(name).long() - self.committed[name].long() for name in self.integers]
                self._own_steps = torch.cat([step.reshape(-1).cpu() for step in steps])
                integers.copy_(self._own_steps)

    def commit(self, floats: Tensor, changed: Tensor, integers: Tensor, active: int) -> str | None:
        """Take the sums over ``active`` micro-batches, floats weighted, as the committed values.

        Returns the names of integer buffers that were not moved alike.
        """
        odd: str | None = None
        flags = changed.tolist()
        for index, (name, part) in enumerate(zip(self.floats, _split(floats, self.floats), strict=True)):
            if flags[index]:
                self.committed[name].copy_(part.view(self.committed[name].shape))
        if self.integers and active:
            steps = torch.round(integers.double() / active).long()
            if self._own_steps is not None and not torch.equal(self._own_steps * active, integers.long()):
                odd = ", ".join(self.integers)
            for name, part in zip(self.integers, _split(steps, self.integers), strict=True):
                committed = self.committed[name]
                moved = committed.long() + part.view(committed.shape).to(committed.device)
                committed.copy_(moved.to(committed.dtype))
        self.restore()
        return odd

    def _now(self, name: str) -> Tensor:
        owner, key = self._places[name]
        tensor = owner._buffers[key]
        assert tensor is not None
        return tensor.detach()


def _split(flat: Tensor, like: Mapping[str, Tensor]) -> Sequence[Tensor]:
    return torch.split(flat, [tensor.numel() for tensor in like.values()])
