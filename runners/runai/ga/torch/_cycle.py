"""What the micro-batches of one update have brought so far. Room: runners; torch.

They are kept apart from ``.grad``, which then is of one micro-batch only: so a GradScaler divides each by its own
scale and once, micro-batches of different sizes get their weights when their sizes are known, and ``zero_grad()``
takes nothing away. It costs one more copy of the gradients while a cycle is under way.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from runai._arguments import usage, whole
from runai.ga.torch._neighbours import Neighbours
from runai.ga.torch._state import State

REDUCTIONS = ("mean", "sum")


class Cycle:
    """Weighted sums of gradients by place of the parameter in the optimizer's groups, and their weight.

    Args:
        steps: micro-batches of one update.
        reduction: ``mean`` divides by the weight, ``sum`` takes every micro-batch once.
        sizes: samples of each micro-batch of a cycle; None: they count alike, unless a step says its samples.
    """

    def __init__(self, steps: object, reduction: object, sizes: Sequence[int] | None) -> None:
        self.state = State(whole("steps", steps))
        if reduction not in REDUCTIONS:
            raise usage("reduction", reduction, f"one of {', '.join(map(repr, REDUCTIONS))}")
        self.reduction = reduction
        self.sizes = None if sizes is None else tuple(whole("sizes", size) for size in sizes)
        if self.sizes is not None and len(self.sizes) != self.state.steps:
            raise usage("sizes", sizes, f"as many numbers of samples as there are steps, {self.state.steps}")
        self.sums: dict[int, Tensor] = {}
        self.weight = 0
        self.neighbours = Neighbours()
        self.counted: bool | None = None
        """Whether the micro-batches of this cycle came with their numbers of samples."""
        self.keeps_tensors = False
        """The user's ``zero_grad`` keeps the tensors of ``.grad`` and writes zeros."""

    # ── one micro-batch ───────────────────────────────────────────────────────────────────────────────────────
    def take(self, parameters: Sequence[Tensor], samples: int | None) -> None:
        """Move the gradients from ``.grad`` into the sums."""
        weight = self._weight(samples)
        self.neighbours.note(parameters)
        for index, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is None:
                continue
            if index in self.sums:
                self.sums[index].add_(gradient.detach(), alpha=weight)
            else:  # a copy: .grad may be a view of a buffer that the next backward pass writes
                self.sums[index] = gradient.detach().clone() if weight == 1 else gradient.detach() * weight
        self.weight += weight
        self.clear(parameters)

    def put_back(self, parameters: Sequence[Tensor]) -> None:
        """The cycle's gradient into ``.grad``, and begin another cycle."""
        self.neighbours.average(self.sums, parameters)
        for index, parameter in enumerate(parameters):
            total = self.sums.get(index)
            if total is None:
                continue
            if self.reduction == "mean" and self.weight != 1:
                total.div_(self.weight)
            if self.keeps_tensors and parameter.grad is not None:
                parameter.grad.copy_(total)
            else:
                parameter.grad = total
        self.restart()

    def clear(self, parameters: Sequence[Tensor]) -> None:
        """As ``zero_grad`` does; the sums stay."""
        for parameter in parameters:
            if parameter.grad is not None:
                if self.keeps_tensors:
                    parameter.grad.detach_().zero_()
                else:
                    parameter.grad = None

    def restart(self) -> None:
        self.sums, self.weight, self.counted = {}, 0, None
        self.neighbours.forget()
        self._forget_exported()

    def _weight(self, samples: int | None) -> int:
        counted = samples is not None or self.sizes is not None
        if self.counted is not None and self.counted != counted:
            raise usage("samples", samples, "a number of samples at each step of an update, or at none")
        if samples is not None:
            samples = whole("samples", samples)
        elif self.sizes is not None:
            if len(self.sizes) != self.state.steps:
                raise usage(
                    "samples", samples, "a number of samples, now that steps are others than sizes was made for"
                )
            samples = self.sizes[self.state.within]
        self.counted = counted
        return samples if samples is not None and self.reduction == "mean" else 1

    # ── checkpoints ───────────────────────────────────────────────────────────────────────────────────────────
    def export(self) -> State:
        """The state, with the sums while a cycle is under way. References, as in torch's own state dicts."""
        if self.state.within:
            self.state.update(gradients=dict(self.sums), weight=self.weight, counted=self.counted)
        return self.state

    def _forget_exported(self) -> None:
        for name in ("gradients", "weight", "counted"):
            self.state.pop(name, None)

    def restore(self, saved: Mapping[str, Any] | None, parameters: Sequence[Tensor]) -> None:
        """Go on from a checkpoint; ``saved`` None or empty: one of an optimizer that does not accumulate.

        This optimizer's ``steps`` stay. A cycle that was under way with another number of steps, or in a checkpoint
        without its gradients, begins anew, with a warning.
        """
        self.restart()
        steps, step = (int(saved["steps"]), int(saved["step"])) if saved else (1, 0)
        updates, within = divmod(step, steps)
        self.state["step"] = updates * self.state.steps if saved else 0
        if not within or not saved:
            return
        if steps != self.state.steps or "gradients" not in saved:
            why = "without its gradients" if steps == self.state.steps else f"for {self.state.steps} steps"
            warnings.warn(
                f"the checkpoint was made after {within} of {steps} micro-batches of an update and is loaded {why}: "
                "they are left out",
                RuntimeWarning,
                stacklevel=3,
            )
            return
        self.state["step"] = step
        self.weight, self.counted = int(saved["weight"]), saved.get("counted")
        for index, total in saved["gradients"].items():
            place = parameters[index]
            self.sums[index] = total.detach().to(place.device, place.dtype, copy=True)
