"""What the micro-batches of one update have brought so far.

They are kept apart from ``.grad``, which then is of one micro-batch only: so a GradScaler divides each by its own
scale and once, micro-batches of different sizes get their weights when their sizes are known, and ``zero_grad()``
takes nothing away. It costs one more copy of the gradients while a cycle is under way.

DistributedDataParallel's usual backward pass averages a micro-batch's gradients over the processes. Within
``no_sync()`` it does not; torch then expects them in ``.grad``, from where the next pass without ``no_sync()`` takes
them along. Here they are in a cycle's sums by then, so those are averaged at the update (``Neighbours``). What was
averaged before is alike everywhere and stays.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from edt_runner.errors import usage, whole
from edt_runner.frameworks.pytorch.optimizers import in_group, wrapping

if TYPE_CHECKING:
    from runai.ga.torch.optim import Accumulating

REDUCTIONS = ("mean", "sum")


class Driver(Protocol):
    """Who takes a loop's steps in the optimizer's place; ``optimizer.runai.driver`` holds it."""

    def step(self, optimizer: Accumulating, closure: Any, samples: int | None) -> Any:
        """What ``optimizer.step(closure, samples=samples)`` does and returns. The micro-batch's gradients are in
        ``.grad``; ``optimizer.micro_step`` is what it would have done by itself."""


class State(dict[str, Any]):
    """``optimizer.runai``: micro-batches of one update (``steps``), and those since the beginning (``step``).

    A checkpoint has it at ``state_dict()["state"]["runai"]``. In a cycle under way, that also has the weighted sums of
    gradients by parameter (``gradients``) and their weight (``weight``).
    """

    driver: Driver | None = None

    def __init__(self, steps: int) -> None:
        super().__init__(steps=steps, step=0)

    @property
    def steps(self) -> int:
        return int(self["steps"])

    @steps.setter
    def steps(self, steps: int) -> None:
        """Between two cycles only. The number of updates so far stays what it is."""
        steps = whole("steps", steps)
        if self.within:
            raise usage("steps", steps, f"a change between two updates, not after {self.within} of {self.steps}")
        self["step"] = self.step // self.steps * steps
        self["steps"] = steps

    @property
    def step(self) -> int:
        return int(self["step"])

    @property
    def within(self) -> int:
        """Micro-batches of the cycle under way."""
        return self.step % self.steps

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # As a class that torch.load(weights_only=True) knows everywhere, also where this package is not imported; its
        # attributes make .steps and .step work on what was loaded, too.
        return OrderedDict, (), {"steps": self.steps, "step": self.step}, None, iter(self.items())

    def __setstate__(self, attributes: Mapping[str, Any]) -> None:
        """Of the original's checkpoints, in which it is an object with these two attributes."""
        self.update(steps=attributes["steps"], step=attributes["step"])


State.__module__ = "runai.ga.torch.optim"  # where the original's checkpoints say that it is


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
        for name in ("gradients", "weight", "counted"):  # exported
            self.state.pop(name, None)

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


class Neighbours:
    """Of one optimizer's parameters in one cycle."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[DistributedDataParallel]] | None = None
        self._left: dict[int, Any] = {}
        """Process group by parameter's place, of the models some of whose passes were not averaged."""

    def note(self, parameters: Sequence[Tensor]) -> None:
        """After a micro-batch's backward pass: whether its gradients are this process's own."""
        if not in_group():
            return
        for model in self._wrapping(parameters):
            if not model.require_forward_param_sync:  # its last forward pass was within no_sync()
                own = {id(parameter) for parameter in model.parameters()}
                places = (place for place, parameter in enumerate(parameters) if id(parameter) in own)
                self._left.update(dict.fromkeys(places, model.process_group))

    def average(self, sums: dict[int, Tensor], parameters: Sequence[Tensor]) -> None:
        """Into ``sums``, by place, their averages over the processes, which all come here at the same update."""
        for place, group in sorted(self._left.items()):
            parameter = parameters[place]
            there = parameter.new_tensor(float(place in sums))
            dist.all_reduce(there, group=group)
            if not there.item():
                continue  # used by nobody
            total = sums.get(place)
            total = parameter.detach().new_zeros(parameter.shape) if total is None else total
            total = total.to_dense() if total.is_sparse else total.contiguous()
            dist.all_reduce(total, group=group)
            sums[place] = total.div_(dist.get_world_size(group))
        self._left = {}

    def forget(self) -> None:
        self._left = {}

    def _wrapping(self, parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
        """Looked for once."""
        known = [] if self._models is None else [model for model in (found() for found in self._models) if model]
        if self._models is None or len(known) < len(self._models):  # one is gone, and there may be another
            known = wrapping(parameters)
            self._models = [weakref.ref(model) for model in known]
        return known
