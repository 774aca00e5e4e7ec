"""A model's buffers in a training by several engines."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Buffers:
    """A model's buffers: state that a forward pass changes. Micro-batches are combined, and the result is committed.

    A buffer is known by its place in the model, since forward may put another tensor there.

    Every micro-batch starts from the committed values. A float buffer (a running mean) becomes the weighted mean of
    the values that the micro-batches left in it; if none of them changed it, it keeps its bits. An integer buffer (a
    count of batches) moves once, by the difference that every micro-batch made; all must have made the same
    difference.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places: dict[str, tuple[nn.Module, str]] = {}
        self._tensors: dict[str, Tensor] = {}
        self.refused: list[str] = []
        """Names of buffers that cannot be combined."""
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
        self.float_sizes = [b.numel() for b in self.floats.values()]
        self.integer_sizes = [b.numel() for b in self.integers.values()]
        self._own_steps: Tensor | None = None

    def restore(self) -> None:
        """Copy the committed values into the model."""
        for name, (owner, key) in self._places.items():
            if owner._buffers[key] is not self._tensors[name]:  # a forward pass may put another tensor there
                owner._buffers[key] = self._tensors[name]
        if self._tensors:
            with torch.no_grad():
                torch._foreach_copy_(list(self._tensors.values()), list(self.committed.values()))

    def recommit(self) -> None:
        """Commit the values that are in the model now."""
        for name, committed in self.committed.items():
            committed.copy_(self._now(name))
        self.restore()

    def write(self, floats: Tensor, changed: Tensor, integers: Tensor) -> None:
        """Write what this forward pass made of the buffers into sections of a flat vector (``frameworks.flat``)."""
        with torch.no_grad():
            if self.floats:
                now = [self._now(name) for name in self.floats]
                flags = [not torch.equal(each, self.floats[name]) for each, name in zip(now, self.floats, strict=True)]
                changed.copy_(torch.tensor(flags))
                parts = torch.split(floats, self.float_sizes)
                torch._foreach_copy_(list(parts), [each.reshape(-1) for each in now])
            if self.integers:
                steps = [self._now(name).long() - self.committed[name].long() for name in self.integers]
                self._own_steps = torch.cat([step.reshape(-1).cpu() for step in steps])
                integers.copy_(self._own_steps)

    def commit(self, floats: Tensor, changed: Tensor, integers: Tensor, active: int) -> str | None:
        """Commit these sections of a reduced vector, which are sums over ``active`` micro-batches.

        Returns:
            The names of integer buffers, if not all micro-batches moved them alike; else None.
        """
        odd: str | None = None
        flags, parts = changed.tolist(), torch.split(floats, self.float_sizes)
        pairs = [(kept, part) for kept, part, flag in zip(self.floats.values(), parts, flags, strict=True) if flag]
        if pairs:
            torch._foreach_copy_([kept for kept, _ in pairs], [part.view(kept.shape) for kept, part in pairs])
        if self.integers and active:
            steps = torch.round(integers.double() / active).long()
            if self._own_steps is not None and not torch.equal(self._own_steps * active, integers.long()):
                odd = ", ".join(self.integers)
            for name, part in zip(self.integers, torch.split(steps, self.integer_sizes), strict=True):
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
