"""A model's buffers in a training by several engines."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from edt_runner.frameworks.flat import Sections


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
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        """(buffers, committed values) of one type each: one call copies all of them."""
        for dtype in {b.dtype for b in self._tensors.values()}:
            names = [name for name, b in self._tensors.items() if b.dtype is dtype]
            self._groups.append(([self._tensors[name] for name in names], [self.committed[name] for name in names]))

    def restore(self) -> None:
        """Copy the committed values into the model."""
        for name, (owner, key) in self._places.items():
            if owner._buffers[key] is not self._tensors[name]:  # a forward pass may put another tensor there
                owner._buffers[key] = self._tensors[name]
        with torch.no_grad():
            for buffers, committed in self._groups:
                torch._foreach_copy_(buffers, committed)

    def recommit(self) -> None:
        """Commit the values that are in the model now."""
        for name, committed in self.committed.items():
            committed.copy_(self._now(name))
        self.restore()

    def write(self, floats: Tensor, changed: Tensor, integers: Tensor) -> None:
        """Write what this forward pass made of the buffers into sections of a flat vector (``frameworks.flat``)."""
        with torch.no_grad():
            if self.floats:
                now = [self._now(name).reshape(-1) for name in self.floats]
                before = [kept.reshape(-1) for kept in self.floats.values()]
                torch._foreach_copy_(list(torch.split(floats, self.float_sizes)), now)
                if floats.device.type == "cpu":
                    flags = [not torch.equal(*pair) for pair in zip(now, before, strict=True)]
                    changed.copy_(torch.tensor(flags))
                else:
                    changed.copy_(self._differ(floats, torch.cat(before)))
            if self.integers:
                self._own_steps = _flat_integers(map(self._now, self.integers)) - _flat_integers(self.integers.values())
                integers.copy_(self._own_steps)

    def _differ(self, floats: Tensor, before: Tensor) -> Tensor:
        """Whether each float buffer has another value than before, of shape (buffers,), without waiting for a GPU."""
        parts = torch.split((floats != before).to(floats.dtype), self.float_sizes)
        if not all(self.float_sizes):
            return torch.stack([part.any() for part in parts])
        return torch.stack(torch._foreach_norm(list(parts), math.inf))

    @property
    def own_steps(self) -> Tensor | None:
        """How far the integer buffers have moved in this process's last micro-batch, of shape (integers,)."""
        return self._own_steps

    def commit(self, vector: Sections, on_host: Sections, own_steps: Tensor | None) -> str | None:
        """Commit the sections of a reduced vector.

        Args:
            vector: the sections where the model is.
            on_host: the same in host memory.
            own_steps: ``own_steps`` in host memory.

        Returns:
            The names of integer buffers, if not all micro-batches moved them alike; else None.
        """
        odd: str | None = None
        flags, parts, active = (
            on_host.changed.tolist(),
            torch.split(vector.floats, self.float_sizes),
            int(on_host.active),
        )
        pairs = [(kept, part) for kept, part, flag in zip(self.floats.values(), parts, flags, strict=True) if flag]
        if pairs:
            torch._foreach_copy_([kept for kept, _ in pairs], [part.view(kept.shape) for kept, part in pairs])
        if self.integers and active:
            steps = torch.round(vector.integers.double() / active).long()
            if own_steps is not None and not torch.equal(own_steps.long() * active, on_host.integers.long()):
                odd = ", ".join(self.integers)
            parts = torch.split(steps, self.integer_sizes)
            kept = list(self.integers.values())
            sums = [each.long() for each in kept]
            moved = torch._foreach_add(sums, [part.view(each.shape) for part, each in zip(parts, kept, strict=True)])
            torch._foreach_copy_(kept, moved)
        self.restore()
        return odd

    def _now(self, name: str) -> Tensor:
        owner, key = self._places[name]
        tensor = owner._buffers[key]
        assert tensor is not None
        return tensor.detach()


def _flat_integers(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([each.reshape(-1).long() for each in tensors])
