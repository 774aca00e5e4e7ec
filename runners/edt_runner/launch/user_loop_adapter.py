"""A model whose forward and backward pass is the body of the user's own loop.

``TorchAdapter`` does everything else: it handles buffers, weights and applies gradients, and holds the state.

The engine runs in its own thread. The user's loop runs in the main thread, because its frame cannot be moved and
signal handlers run there. Only one of the two threads runs at any time: the engine passes a micro-batch to the body
and waits until the user's loop asks for the next one by ``next()``. So no lock is needed, and each thread sees what
the other has written.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from edt_runner.adapter import State
from edt_runner.callbacks.hooks import UserCallback
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import UsageError
from edt_runner.frameworks.flat import FlatAdapter
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch import companions
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.pytorch.batches import moved
from edt_runner.frameworks.pytorch.companions import Companions
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.launch.gradient_marks import GradientMarks
from edt_runner.launch.user_loop_asks import AskNumbers, Asks
from edt_runner.launch.user_loop_body import BodyRun
from edt_runner.launch.user_loop_progress import EpochValues, Progress
from edt_runner.launch.user_loop_steps import LoopPrecision, SomeOptimizers
from edt_runner.schedule import StepKind

_PLAIN = StepOptions()
_PROGRESS = "loop"
_Made = (AveragedModel, GradScaler)


def not_called(*values: Any) -> Any:
    """Stands in for a loss or a metric of a user's own loop, which must never be called here."""
    raise AssertionError("the user's loop computes its loss and its metrics by itself")


class UserLoopAdapter(TorchAdapter):
    """A ``TorchAdapter`` whose gradients are computed by the body of the user's loop.

    Behind the numbers of ``TorchAdapter``, a vector of a training step has what the body has asked for
    (``user_loop_asks``).

    Args:
        trainable: the model, its optimizers and the loop.
        device: where the model computes.
        options: what the user asks of steps.
        objects: the schedulers, averages and GradScalers whose state belongs to the training's.
    """

    def __init__(
        self, trainable: UserLoopTrainable, device: torch.device, options: StepOptions, objects: Sequence[Any]
    ) -> None:
        super().__init__(
            trainable.model,
            trainable.optimizers,
            trainable.asked,
            trainable.metrics,
            device,
            options,
            schedulers=(options.lr_scheduler or ()) if options.lr_scheduler_interval == "step" else (),
            companions=Companions(objects, trainable.parts()),
        )
        self._loop, self._progress = trainable, trainable.progress
        self.optimizers = self._due = SomeOptimizers(trainable.optimizers, device)
        scaler = next((each for each in objects if isinstance(each, GradScaler)), None)
        self.precision = self._scale = LoopPrecision(scaler, device)
        self._given = list(options.lr_scheduler or ())
        self.moved = movable(objects)
        for average in self.moved:
            if isinstance(average, AveragedModel):
                average.to(device)
        self.clips_all = options.clip_grad_norm is not None or options.clip_grad_value is not None
        numbers = {id(parameter): number for number, parameter in enumerate(self._parameters)}
        self._numbers = numbers
        self._owned = [
            frozenset(
                numbers[id(each)] for group in optimizer.param_groups for each in group["params"] if id(each) in numbers
            )
            for optimizer in trainable.optimizers
        ]
        self._free = frozenset(range(len(self._parameters))).difference(*self._owned)
        """Numbers of trained parameters that no optimizer has. Their gradients count in norms."""
        self._coding = AskNumbers(len(self._owned), len(self.moved), len(self._parameters), trainable.name)
        self._asks = Asks()
        """What was asked for in the step that is being applied."""
        self._own: tuple[int, Asks] | None = None
        """A step, and what this process's own body has asked for in it."""
        self.marks = GradientMarks(self._parameters)

    # ── vectors ───────────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: StepKind) -> int:
        return super().size(kind) + (self._coding.size if kind is StepKind.TRAIN else 0)

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        return super().sums(kind, self._plain(numbers) if kind is StepKind.TRAIN else numbers)

    def _plain(self, numbers: Tensor) -> Tensor:
        """The part of a training step's vector that is ``TorchAdapter``'s."""
        return numbers[: -self._coding.size]

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """Run the model alone, if it accepts the first part of a batch, and try the validation.

        The body cannot be used here, because it may run only for batches that count. Errors of the model are ignored:
        they will occur again in the body, where the user sees them.
        """
        self.prepare(0)
        given = moved(batch, self._device)
        with contextlib.suppress(Exception):
            outputs = self.model(given[0] if isinstance(given, list | tuple) else given)
            if isinstance(outputs, Tensor):
                torch.autograd.backward(outputs.sum())
        self.try_validation(given)
        self._gradients.clear()

    def try_validation(self, batch: Any) -> None:
        """Find the names of the metrics that ``validation_step`` returns, with a batch of the training set."""
        if self._loop.asked.validation_step is not None:
            self.model.eval()
            with torch.no_grad():
                self._metrics.add_told(self._passes.validate(moved(batch, self._device)).told or ())
        self._buffers.restore()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self._loop.run_body(self.body_run(batch, count, total, seed, local))

    def stream(self, batch: Any, count: int, total: int, seed: int, sink: Sink) -> None:
        FlatAdapter.stream(self, batch, count, total, seed, sink)  # the body clips when its backward pass is over

    def body_run(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> BodyRun:
        """Prepare the model for a micro-batch, and return the micro-batch for the loop's body."""
        self.prepare(seed)
        self.marks.begin()
        return BodyRun(self, self._loop.name, self.on_device(batch), count, total, local)

    def fingerprint(self) -> tuple[Any, ...]:
        """A value that changes if the body changes parameters or the optimizer's settings, which it must not do."""
        versions = tuple(parameter._version for parameter in self._all_parameters.values())
        groups = tuple(
            (key, (id(value), value._version) if isinstance(value, Tensor) else repr(value))
            for group in self.optimizers.param_groups
            for key, value in group.items()
            if key != "params"
        )
        return versions, groups

    # ── for the body ──────────────────────────────────────────────────────────────────────────────────────────
    def weight(self, batch: Any, count: int) -> int:
        """What a micro-batch's loss is a mean over: its samples or its tokens."""
        return self._weight(batch, count)

    def number_of(self, optimizer: torch.optim.Optimizer) -> int:
        """The number of one of the loop's optimizers.

        Raises:
            UsageError: the loop has no such optimizer.
        """
        for number, each in enumerate(self.optimizers.members):
            if each is optimizer:
                return number
        raise UsageError(
            f"{self._loop.name}: the body uses an optimizer that the loader was not given, takes optimizer=[…] with all"
        )

    def number_of_moved(self, wanted: Any) -> int:
        """The number of a scheduler or an average that the body moves.

        Raises:
            UsageError: the platform moves it already.
        """
        if any(wanted is each for each in self._given):
            raise UsageError(
                f"{self._loop.name}: the body steps a scheduler that was given as lr_scheduler=, takes one of the two"
            )
        return next(number for number, each in enumerate(self.moved) if each is wanted)

    def numbers_of(self, parameters: Sequence[Tensor]) -> tuple[int, ...] | None:
        """The numbers of those parameters that are trained; None: one of them is no parameter of the model."""
        known = {id(parameter) for parameter in self._all_parameters.values()}
        if any(id(each) not in known for each in parameters):
            return None
        return tuple(sorted({self._numbers[id(each)] for each in parameters if id(each) in self._numbers}))

    def parameters_of(self, number: int) -> frozenset[int]:
        """Numbers of the parameters that an optimizer has, and of those that none has."""
        return self._owned[number] | self._free

    def holds(self, number: int, parameters: Sequence[int]) -> bool:
        """Whether an optimizer has one of these parameters."""
        return not self._owned[number].isdisjoint(parameters)

    def has_gradients(self, number: int) -> bool:
        """Whether a parameter of an optimizer has a gradient."""
        return any(self._parameters[index].grad is not None for index in self._owned[number])

    def changed(self, number: int) -> bool:
        """Whether gradients of an optimizer were changed after the backward pass."""
        return self.marks.changed(self.parameters_of(number))

    def check_scaler(self, scaler: Any) -> None:
        """Check that a GradScaler is the one whose state travels.

        Raises:
            UsageError: it is another one.
        """
        if not self._scale.is_of(scaler):
            raise UsageError(f"{self._loop.name}: got another GradScaler, takes one that is made before the loop")

    def write_step(self, local: Tensor, number: int, weight: int, count: int, total: int, *, first: bool) -> None:
        """Write the gradients of an optimizer's parameters, and the buffers, to the flat vector.

        Args:
            local: the vector.
            number: the optimizer's number.
            weight: samples or tokens that the loss is a mean over.
            count, total: samples of the micro-batch and of the step.
            first: whether this is the micro-batch's first optimizer.
        """
        flat, before = self.layout.sections(self._plain(local)), None
        if not first:
            before = flat.gradients.clone(), flat.present.clone()
        share = self._gradient_share(weight, count, total)
        self.write_gradients(self._plain(local), share, count / total)
        if not weight:  # the mean over no tokens is not a number
            flat.gradients.zero_()
        if len(self._owned) > 1:
            own = self.parameters_of(number)
            places = torch.split(flat.gradients, self.layout.gradients)
            olds = torch.split(before[0], self.layout.gradients) if before else [torch.zeros(())] * len(places)
            for index in set(range(len(places))) - own:
                places[index].copy_(olds[index])
                flat.present[index] = before[1][index] if before else 0
        self.marks.forget(self.parameters_of(number))

    def write_sums(
        self, local: Tensor, count: int, weight: int, loss: float, values: Mapping[str, float], *, reported: bool
    ) -> None:
        """Write the sums of loss and metrics to the flat vector.

        Args:
            local: the vector.
            count, weight: samples of the micro-batch, and what its loss is a mean over.
            loss: the loss; ``reported``: as the user's report gives it.
            values: metrics by name.
        """
        sums = self._plain(local)[-self.width :]
        adds_up = self._reduction == "sum" and not (reported and self._loop.reports_means)
        sums[0], sums[1] = count, weight
        sums[2] = loss * (1 if adds_up else weight) if weight else 0.0
        self._metrics.write_told(sums[3:], values, count)

    def note_asks(self, asks: Asks, local: Tensor) -> None:
        """Write what the body has asked for to the flat vector. The body has ended.

        Raises:
            UsageError: the body has asked for something else in another micro-batch of this step.
        """
        self.marks.active = False
        self._buffers.restore()  # if the step is left out, whoever reads the model next must not see this pass
        if self._own is not None and self._own[0] == self._progress.step and self._own[1] != asks:
            raise self._coding.unlike()
        self._own = self._progress.step, asks
        self._coding.write(asks, local[-self._coding.size :])

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────
    def apply(self, reduced: Tensor) -> bool:
        own = self._plain(reduced)
        flat = self.layout.sections(own)
        asks = self._asks = self._coding.read(reduced[-self._coding.size :], int(flat.active))
        if self._own is not None and self._own[0] == self._progress.step and self._own[1] != asks:
            raise self._coding.unlike()
        self._due.begin(asks.optimizers)
        with self._scale.of_step(scaled=asks.scaled):
            whole = super().apply(own)
        if self._due.taken:
            for number, times in asks.moves:
                for _ in range(times):
                    self._move(self.moved[number])
        return whole

    def _move(self, each: Any) -> None:
        if isinstance(each, AveragedModel):
            each.update_parameters(self.model)
        else:
            each.step()

    def _finished(self, gradients: Tensor, sums: Tensor) -> Tensor:
        gradients = super()._finished(gradients, sums)
        norms = []
        for clip in self._asks.clips:
            gradients, norm = clip.clipped(gradients, self.layout.gradients)
            norms += [norm] if norm is not None else []
        if norms:
            self._details["grad_norm"] = norms[0]
        return gradients

    def absorbs(self, reduced: Tensor) -> bool:
        active = int(self.layout.sections(self._plain(reduced)).active)
        return self._scale.may_shrink and self._coding.read(reduced[-self._coding.size :], active).scaled

    @property
    def gradient_scale(self) -> float:
        return self._scale.expected

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        state = super().export_state()
        return replace(state, meta={**state.meta, _PROGRESS: self._progress.to_json_object()})

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        self._own = None
        self._progress.load(meta.get(_PROGRESS) or {})
        return super().begin_import(meta, shapes)


@dataclass(frozen=True)
class UserLoopTrainable(TorchTrainable):
    """``TorchTrainable`` for a user's own loop.

    The loop itself computes its loss and its metrics. The loss function of ``asked`` and the values of ``metrics`` are
    therefore ``not_called``.

    Args:
        run_body: runs the body on one micro-batch, and returns when the body has ended.
        name: the loader's name in error messages.
        reports_means: whether ``report`` gets the mean over a micro-batch also if the loss is a sum.
        progress: how far the training is.
    """

    run_body: Callable[[BodyRun], None] = not_called
    name: str = "loader"
    reports_means: bool = False
    progress: Progress = field(default_factory=Progress)
    found: list[list[Any]] = field(default_factory=list)
    """What ``objects`` has found; empty: it was not called yet."""

    def adapter_on(self, device: torch.device, options: StepOptions = _PLAIN) -> UserLoopAdapter:
        return UserLoopAdapter(self, device, options, self.objects(options))

    def epoch_callbacks(self, options: StepOptions) -> Sequence[UserCallback]:
        return (*super().epoch_callbacks(options), EpochValues(self.progress))

    def objects(self, options: StepOptions = _PLAIN) -> list[Any]:
        """Find what the training's state consists of beside the model and its optimizers: what ``FabricModel`` finds,
        and averages of the weights and GradScalers that the script has made, in the order in which it made them.

        Raises:
            UsageError: there are several GradScalers.
        """
        if not self.found:
            own = companions.found(self.optimizers, options.lr_scheduler or (), self.parts())
            made = _made()
            if len(made) > 1:
                gc.collect()  # what is no longer used may still exist; and then the order is that of the making
                made = _made()
            if sum(isinstance(each, GradScaler) for each in made) > 1:
                raise UsageError(f"{self.name}: got several GradScalers, takes one for all optimizers")
            known = {id(each) for each in own}
            self.found.append(own + [each for each in made if id(each) not in known])
        return self.found[0]


def _made() -> list[Any]:
    """The averages of weights and the GradScalers of this process."""
    found = [each for each in gc.get_objects() if issubclass(type(each), _Made)]
    return [each for each in found if not isinstance(each, GradScaler) or each.is_enabled()]


def movable(objects: Sequence[Any]) -> list[Any]:
    """Those objects that a body may move: schedulers and averages."""
    return [each for each in objects if isinstance(each, LRScheduler | AveragedModel)]
