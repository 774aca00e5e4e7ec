"""The gradients of one update: micro-batches' gradients become their mean over all processes, and are measured. Also
restores a model after a pass that does not count, in a process without a share of an update.

While an update is measured, each micro-batch's gradient is moved from ``.grad`` to a separate sum. Its norm is then
computed from the gradient itself, not from a difference of sums. This costs memory for one set of gradients, but only
if this process has several micro-batches of an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.lr_scaling.update import Norms
from variable_batch_size.collective import Collective

_SAME = 1e-9
"""Relative difference up to which sums of weights count as equal. Rounding differs between kinds of devices."""
Groups = Sequence[Sequence[Tensor]]
"""Parameters by parameter group."""


class Gradients:
    """What this process has of the coming update.

    Args:
        measure: compute the norm of each micro-batch's gradient.
        differences: measure the first micro-batch of an update as its difference from the previous update's sum. This
            repeats a defect of ETH's library, for users who need its numbers.
    """

    def __init__(self, *, measure: bool, differences: bool = False) -> None:
        self.measure = measure
        self._differences = differences
        self._sums: dict[Tensor, Tensor] = {}
        self._before: dict[Tensor, Tensor] = {}
        self._squares: Tensor | None = None
        self._count = 0
        self._overflows = 0
        self._compared = False
        """Whether the processes' weights have been compared, which happens before the first update."""
        self.overflowed = False
        """Whether a GradScaler found infinite gradients in a micro-batch, of any process, of the last update."""

    def add(self, groups: Groups, scale: Tensor | None = None, infinite: Tensor | None = None) -> None:
        """Add the gradients of one micro-batch, which are in ``.grad``.

        Args:
            groups: the parameters by parameter group.
            scale: a GradScaler's factor on the gradients, which may change after each micro-batch; None: no factor.
            infinite: above 0 if the GradScaler found an infinite gradient.
        """
        self._count += 1
        self._overflows += infinite is not None and bool(infinite.item())
        if scale is not None:
            factor = scale.double().reciprocal().to(scale.dtype)
            for parameter in (parameter for group in groups for parameter in group):
                if parameter.grad is not None:
                    parameter.grad.mul_(factor.to(parameter.grad.device))
        if self.measure:
            squares = torch.stack([_squared_norm(group, self._before) for group in groups])
            self._squares = squares if self._squares is None else self._squares + squares
        elif infinite is None:
            return
        for parameter in (parameter for group in groups for parameter in group):
            if parameter.grad is None:
                continue
            if parameter in self._sums:
                self._sums[parameter].add_(parameter.grad)
            else:
                self._sums[parameter] = parameter.grad.detach()
            parameter.grad = None
        self._before = {}

    def reduce(
        self, groups: Groups, collective: Collective, *, count: int, samples: int, mean: bool, index: int
    ) -> Norms | None:
        """Put the update's gradient into ``.grad``: the sum over all processes, or the mean over its micro-batches.

        Args:
            groups: the parameters by parameter group.
            collective: the processes.
            count: micro-batches of the update, over all processes.
            samples: samples of these micro-batches.
            mean: divide by ``count``.
            index: number of the update, to find processes that are at another update.

        Returns:
            The measured norms; None if nothing was measured or a gradient is not finite.

        Raises:
            RuntimeError: the processes are at different updates, or began with different weights.
        """
        parameters = [parameter for group in groups for parameter in group]
        for parameter, total in self._sums.items():
            parameter.grad = total
        squares = self._squares
        if squares is None:
            squares = torch.zeros(len(groups), dtype=_wide(parameters[0]), device=parameters[0].device)
        if self._differences:
            self._before = {p: p.grad.detach().clone() for p in parameters if p.grad is not None}
        self.overflowed = bool(self._overflows)
        if collective.size > 1:
            squares = self._add_up(parameters, squares, collective, count, index)
        if mean and count > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(1.0 / count)
        self._forget()
        return self._norms(groups, squares, count, samples, mean) if self.measure else None

    def drop(self, groups: Groups) -> None:
        """Discard all micro-batches of the coming update."""
        self._forget()
        for group in groups:
            for parameter in group:
                parameter.grad = None

    def _forget(self) -> None:
        self._sums, self._squares, self._count, self._overflows = {}, None, 0, 0

    def _add_up(
        self, parameters: Sequence[Tensor], squares: Tensor, collective: Collective, count: int, index: int
    ) -> Tensor:
        """Add up the gradients and the squared norms over the processes.

        If a parameter has a gradient in any process, it gets one in every process. If it has none in any process, it
        stays without, and the optimizer ignores it.
        """
        present = [float(parameter.grad is not None) for parameter in parameters]
        weights = 0.0 if self._compared else sum(float(p.detach().sum(dtype=_wide(p))) for p in parameters)
        alike = [value for fact in (count, index, weights) for value in (fact, fact**2)]
        facts = squares.new_tensor([*present, self._overflows, self._count, *alike])
        numbers = torch.cat([facts, squares])
        collective.add_up([numbers])
        *there, overflows, made, counts, count_squares, indices, index_squares, sums, sum_squares = numbers[
            : len(facts)
        ].tolist()
        # Sums of squares show to all processes whether all gave the same, so that none of them waits for others.
        size = collective.size
        same_update = count_squares * size == counts**2 and index_squares * size == indices**2
        if not same_update or made * size != counts:
            raise RuntimeError(
                f"update {index}: the processes brought {made:.0f} micro-batches, and it has {count}: each needs the "
                "same trace, seed and epoch, a rank of its own, and one step() for every batch of its sampler"
            )
        if sum_squares * size - sums**2 > _SAME * sums**2:
            raise RuntimeError(
                "the processes begin with different weights: seed them alike, or broadcast those of rank 0"
            )
        self.overflowed, self._compared = bool(overflows), True
        shared = [parameter for parameter, anywhere in zip(parameters, there, strict=True) if anywhere]
        for parameter in shared:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        collective.add_up([parameter.grad for parameter in shared if parameter.grad is not None])
        return numbers[len(facts) :]

    def _norms(self, groups: Groups, squares: Tensor, count: int, samples: int, mean: bool) -> Norms | None:
        """Compute the norms, with a single read from the device for all numbers."""
        whole = torch.stack([_squared_norm(group, {}) for group in groups])
        both = torch.stack([squares.to(whole.device), whole]).double().cpu()
        if not bool(torch.isfinite(both).all()):
            return None
        mean_square, square_mean = both.numpy()
        return Norms(count, samples, mean_square / count, square_mean if mean else square_mean / count**2)


def _squared_norm(group: Sequence[Tensor], minus: Mapping[Tensor, Tensor]) -> Tensor:
    """Squared norm of a group's gradients, after ``minus`` is subtracted from them."""
    values = [
        torch.linalg.vector_norm(
            _values(parameter.grad - minus[parameter] if parameter in minus else parameter.grad), dtype=_wide(parameter)
        ).square()
        for parameter in group
        if parameter.grad is not None
    ]
    if values:
        return torch.stack([value.to(values[0].device) for value in values]).sum()
    place = group[0] if group else torch.empty(0)
    return torch.zeros((), dtype=_wide(place), device=place.device)


def _values(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _wide(tensor: Tensor) -> torch.dtype:
    """The dtype of sums of squares. Apple's devices have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


class Idle:
    """Undoes the effects of a pass that does not count, on a model's buffers, such as batch statistics, and on torch's
    random numbers.

    Args:
        model: the model that computes the pass.
        coming: () -> whether the coming pass does not count.
    """

    def __init__(self, model: nn.Module, coming: Callable[[], bool]) -> None:
        self._model = model
        self._coming: Callable[[], bool] | None = coming
        self._buffers: dict[str, Tensor] | None = None
        self._random: list[tuple[torch.device | None, Tensor]] = []
        model.register_forward_pre_hook(self._before)

    def undo(self) -> None:
        """Restore the values from before the pass, if there was one."""
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
        """A copy of the model gets a hook that does nothing, because the copy belongs to no optimizer."""
        return {"_model": None, "_coming": None, "_buffers": None, "_random": []}
