"""The gradients that the micro-batches of one update have brought so far.

They are kept apart from ``.grad``, which then belongs to one micro-batch only. So a GradScaler divides each
micro-batch's gradients once, by its own scale. Micro-batches of different sizes get their weights when their sizes are
known. ``zero_grad()`` does not clear the sums. This costs one more copy of the gradients during a cycle.

DistributedDataParallel's usual backward pass averages a micro-batch's gradients over the processes. Within
``no_sync()`` it does not; torch then expects these gradients to stay in ``.grad``, so that the next pass without
``no_sync()`` averages them, too. Here they have moved to a cycle's sums by then, so the sums are averaged at the update
(``Neighbours``). Gradients that were averaged before are equal in all processes, and stay equal.
"""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from edt_runner.errors import usage, whole
from edt_runner.frameworks.pytorch.optimizers import in_group, wrapping

if TYPE_CHECKING:
    from runai.ga.torch.optim import Accumulating

REDUCTIONS = ("mean", "sum")
_BUCKET_BYTES = 32 * 1024 * 1024
"""The most bytes of sums that are averaged at once. The average needs as much additional memory."""


class Driver(Protocol):
    """Handles an optimizer's ``step`` calls in its place. It is stored in ``optimizer.runai.driver``."""

    def step(self, optimizer: Accumulating, closure: Any, samples: int | None) -> Any:
        """Handle ``optimizer.step(closure, samples=samples)``, and return what that call returns.

        The micro-batch's gradients are in ``.grad``. Without a driver, the optimizer would call ``micro_step``.
        """


class State(dict[str, Any]):
    """``optimizer.runai``: ``steps``, the micro-batches of one update, and ``step``, the micro-batches so far.

    A checkpoint has it at ``state_dict()["state"]["runai"]``. During a cycle it also has the weighted sums of
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
        """Change the number, between two cycles only. The number of updates so far does not change.

        Raises:
            UsageError: a cycle has begun, or ``steps`` is no whole number above 0.
        """
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
        """Micro-batches so far in the present cycle."""
        return self.step % self.steps

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # Reduce to a class that torch.load(weights_only=True) knows even if this package is not imported. Its
        # attributes make .steps and .step work on the loaded object, too.
        return OrderedDict, (), {"steps": self.steps, "step": self.step}, None, iter(self.items())

    def __setstate__(self, attributes: Mapping[str, Any]) -> None:
        """Load from a checkpoint of the original, in which this is an object with these two attributes."""
        self.update(steps=attributes["steps"], step=attributes["step"])


State.__module__ = "runai.ga.torch.optim"  # the module that the original's checkpoints name


class Cycle:
    """Weighted sums of gradients by place of the parameter in the optimizer's groups, and their weight.

    Args:
        steps: micro-batches of one update.
        reduction: ``mean`` divides by the weight; ``sum`` counts every micro-batch once.
        sizes: samples of each micro-batch of a cycle; None: all count alike, unless a step is given its samples.

    Raises:
        UsageError: an argument is wrong.
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
        """Whether the micro-batches of this cycle came with their numbers of samples; None: there was none yet."""
        self.keeps_tensors = False
        """Whether the user's ``zero_grad`` keeps the tensors of ``.grad`` and writes zeros to them."""

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
            else:  # copy the gradient: .grad may be a view of a buffer that the next backward pass overwrites
                self.sums[index] = gradient.detach().clone() if weight == 1 else gradient.detach() * weight
        self.weight += weight
        self.clear(parameters)

    def put_back(self, parameters: Sequence[Tensor]) -> None:
        """Put the cycle's gradient into ``.grad``, and begin another cycle."""
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
        """Clear ``.grad`` as ``zero_grad`` does. The sums stay."""
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
        """The state. During a cycle it includes the sums, as references, as in torch's own state dicts."""
        if self.state.within:
            self.state.update(gradients=dict(self.sums), weight=self.weight, counted=self.counted)
        return self.state

    def restore(self, saved: Mapping[str, Any] | None, parameters: Sequence[Tensor]) -> None:
        """Continue from a checkpoint. This optimizer's ``steps`` stays.

        A cycle that had begun is lost if it had another number of steps or if the checkpoint has no gradients; a
        warning is issued then.

        Args:
            saved: the checkpoint's state; None or empty: the checkpoint is of an optimizer that does not accumulate.
            parameters: the optimizer's parameters.
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
    """Averages sums over the processes of DistributedDataParallel, for one optimizer's parameters in one cycle."""

    def __init__(self) -> None:
        self._models: list[weakref.ref[DistributedDataParallel]] | None = None
        self._left: dict[int, Any] = {}
        """Process groups by place of a parameter, for parameters some of whose gradients were not averaged."""

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Note which gradients were not averaged. Called after a micro-batch's backward pass."""
        if not in_group():
            return
        for model in self._wrapping(parameters):
            if not model.require_forward_param_sync:  # its last forward pass was within no_sync()
                own = {id(parameter) for parameter in model.parameters()}
                places = (place for place, parameter in enumerate(parameters) if id(parameter) in own)
                self._left.update(dict.fromkeys(places, model.process_group))

    def average(self, sums: dict[int, Tensor], parameters: Sequence[Tensor]) -> None:
        """Replace values of ``sums``, by place, by their averages over the processes.

        All processes must call this at the same update.
        """
        for group, places in _buckets(self._left, parameters):
            _average(sums, places, parameters, group)
        self._left = {}

    def forget(self) -> None:
        self._left = {}

    def _wrapping(self, parameters: Sequence[Tensor]) -> list[DistributedDataParallel]:
        """The models that hold the parameters. They are searched for once."""
        known = [] if self._models is None else [model for model in (found() for found in self._models) if model]
        if self._models is None or len(known) < len(self._models):  # a model is gone, and there may be a new one
            known = wrapping(parameters)
            self._models = [weakref.ref(model) for model in known]
        return known


def _buckets(left: Mapping[int, Any], parameters: Sequence[Tensor]) -> list[tuple[Any, list[int]]]:
    """(process group, places) of the parameters that are averaged together: those of one process group, dtype and
    device, as many as fit, in an order that is the same in every process."""
    buckets: list[tuple[Any, list[int]]] = []
    newest: dict[Any, tuple[list[int], int]] = {}
    for place, group in sorted(left.items(), key=lambda item: item[0]):
        parameter = parameters[place]
        kind = (id(group), parameter.dtype, parameter.device)
        size = parameter.numel() * parameter.element_size()
        places, filled = newest.get(kind, ([], 0))
        if not places or filled + size > _BUCKET_BYTES:
            places, filled = [], 0
            buckets.append((group, places))
        places.append(place)
        newest[kind] = (places, filled + size)
    return buckets


def _average(sums: dict[int, Tensor], places: Sequence[int], parameters: Sequence[Tensor], group: Any) -> None:
    """Average the sums of one bucket by one collective. A parameter without a gradient in any process stays without."""
    parts = []
    for place in places:
        total = sums.get(place)
        if total is None:
            total = parameters[place].new_zeros(parameters[place].shape)
        parts.append((total.to_dense() if total.is_sparse else total).detach().reshape(-1))
    present = parts[0].new_tensor([float(place in sums) for place in places])
    flat = torch.cat([present, *parts])
    dist.all_reduce(flat, group=group)
    used = flat[: len(places)].tolist()
    totals = torch.split(flat[len(places) :].div_(dist.get_world_size(group)), [part.numel() for part in parts])
    for place, total, anywhere in zip(places, totals, used, strict=True):
        if anywhere:
            sums[place] = total.view(parameters[place].shape).clone()
