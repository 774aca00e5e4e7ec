"""Notices whether a user's code changes gradients between ``backward()`` and ``optimizer.step()``.

Such a change would act on the gradients of one micro-batch. Only a linear change would be right then, and this cannot
be seen from outside. So every change is found. In-place operations of torch count up a tensor's version, which costs
nothing to look at. Those that go through ``.data`` or NumPy do not, so the norm of each gradient is compared, too. This
reads the gradients twice, so it is done for the first micro-batches of a process, and for some of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

_FIRST, _EACH = 16, 16
"""Norms are compared in so many micro-batches at first, and then in each of so many."""


class GradientMarks:
    """Marks of the gradients of some parameters, as the last backward pass has left them.

    Args:
        parameters: the trained parameters of a model.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._versions: dict[int, tuple[Tensor, int]] = {}
        """Number of a parameter -> its gradient and the gradient's version."""
        self._norms: dict[int, Tensor] = {}
        self._queued = self._spoiled = False
        self.active = False
        """Whether gradients are marked; they are while the body of a loop runs."""
        self._hooks: list[Any] = []
        self._begun = 0

    def begin(self) -> None:
        """Forget all marks, and begin to mark. Called before the body runs."""
        if not self._hooks:
            each: Any  # torch types neither of the two methods
            for index, each in enumerate(self._parameters):
                self._hooks.append(each.register_hook(functools.partial(self._comes, index)))
                self._hooks.append(each.register_post_accumulate_grad_hook(functools.partial(self._accumulated, index)))
        self.active = True
        self._begun += 1
        self._versions.clear()
        self._norms.clear()
        self._queued = self._spoiled = False

    def close(self) -> None:
        """Take the hooks off the parameters."""
        self.active = False
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def changed(self, numbers: Iterable[int]) -> bool:
        """Whether the gradient of one of these parameters is not what the last backward pass has left.

        Args:
            numbers: numbers of parameters.
        """
        if self._spoiled:
            return True
        now: dict[int, Tensor] = {}
        for index in numbers:
            gradient = self._parameters[index].grad
            if gradient is None:
                continue
            found = self._versions.get(index)
            if found is None or found[0] is not gradient or found[1] != gradient._version:
                return True
            now[index] = gradient
        dense = [index for index in now if index in self._norms]
        if not dense:
            return False
        return not torch.equal(_joined(_norms([now[i] for i in dense])), _joined([self._norms[i] for i in dense]))

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget the marks of these parameters, whose gradients have been taken."""
        for index in numbers:
            self._versions.pop(index, None)
            self._norms.pop(index, None)

    def _comes(self, index: int, addend: Tensor) -> None:
        """Look at a gradient before another one is added to it. Called in a backward pass."""
        found = self._versions.get(index)
        gradient = self._parameters[index].grad
        if self.active and found is not None and gradient is not None:
            self._spoiled |= found[0] is not gradient or found[1] != gradient._version

    def _accumulated(self, index: int, parameter: Tensor) -> None:
        gradient = parameter.grad
        if not self.active or gradient is None:
            return
        self._versions[index] = gradient, gradient._version
        if not self._queued and (self._begun <= _FIRST or self._begun % _EACH == 0):
            self._queued = True
            engine: Any = Variable._execution_engine  # torch has no public way to run code at a backward pass's end
            engine.queue_callback(self._end)

    def _end(self) -> None:
        """Compute the norms. Called at the end of a backward pass."""
        self._queued = False
        found = {i: gradient for i, (gradient, _) in self._versions.items() if gradient.layout is torch.strided}
        self._norms = dict(zip(found, _norms(list(found.values())), strict=True))


def _norms(gradients: list[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return list(torch._foreach_norm(gradients)) if gradients else []


def _joined(norms: Sequence[Tensor]) -> Tensor:
    """Norms in one tensor. Infinite ones and those that are no number become numbers, so that they can be compared."""
    return torch.nan_to_num(torch.stack([norm.to(norms[0].device, torch.float64) for norm in norms]))
