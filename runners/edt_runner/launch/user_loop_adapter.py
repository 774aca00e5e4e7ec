"""A model whose forward and backward pass is the body of the user's own loop.

``TorchAdapter`` does everything else: it handles buffers, weights and applies gradients, and holds the state.

The engine runs in its own thread. The user's loop runs in the main thread, because its frame cannot be moved and
signal handlers run there. Only one of the two threads runs at any time: the engine passes a micro-batch to the body
and waits until the user's loop asks for the next one by ``next()``. So no lock is needed, and each thread sees what
the other has written.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from edt_runner.adapter import State
from edt_runner.errors import UsageError
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.pytorch.batches import moved
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind

_PASSED = "passed"
_PLAIN = StepOptions()


def not_called(*values: Any) -> Any:
    """Stands in for a loss or a metric of a user's own loop, which must never be called here."""
    raise AssertionError("the user's loop computes its loss and its metrics by itself")


class UserLoopAdapter(TorchAdapter):
    """A ``TorchAdapter`` whose gradients are computed by the body of the user's loop.

    Args:
        trainable: the model, its optimizer and the loop.
        device: where the model computes.
    """

    def __init__(self, trainable: UserLoopTrainable, device: torch.device) -> None:
        super().__init__(
            trainable.model,
            trainable.optimizers,
            trainable.asked,
            trainable.metrics,
            device,
            companions=trainable.companions(StepOptions()),
        )
        self._loop, self._rates = trainable, trainable.rates

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """Run the model alone, if it accepts the first part of a batch.

        The body cannot be used here, because it may run only for batches that count. Errors are ignored: they will
        occur again in the body, where the user sees them.
        """
        self.prepare(0)
        with contextlib.suppress(Exception):
            given = moved(batch, self._device)
            outputs = self.model(given[0] if isinstance(given, list | tuple) else given)
            if isinstance(outputs, Tensor):
                torch.autograd.backward(outputs.sum())
        self._buffers.restore()
        self._clear_gradients()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self._loop.run_body(self.body_run(batch, count, total, seed, local))

    def body_run(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> BodyRun:
        """Prepare the model for a micro-batch, and return the micro-batch for the loop's body."""
        self.prepare(seed)
        return BodyRun(self, self._loop, moved(batch, self._device), count, total, local)

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

    def has_gradients(self) -> bool:
        return any(parameter.grad is not None for parameter in self._parameters)

    def write_sums(self, local: Tensor, count: int, values: Mapping[str, float]) -> None:
        """Write the sums of loss and metrics, which are given by name, to the flat vector."""
        sums = local[-self.width :]
        sums[0] = sums[1] = count
        sums[2] = values.get("loss", math.nan) * count
        self._metrics.write_told(sums[3:], {name: value for name, value in values.items() if name != "loss"}, count)

    def apply(self, reduced: Tensor) -> bool:
        samples = round(self.sums(StepKind.TRAIN, reduced)[0])
        whole = super().apply(reduced)
        self._rates.updated(samples)
        return whole

    @contextlib.contextmanager
    def rescaled(self, scaling: Scaling) -> Iterator[Sequence[float]]:
        with self._rates.held(), super().rescaled(scaling) as rates:
            yield rates

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        state = super().export_state()
        return replace(state, meta={**state.meta, _PASSED: self._rates.passed})

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        self._rates.go_to(int(meta[_PASSED]))
        return super().begin_import(meta, shapes)


@dataclass(frozen=True)
class UserLoopTrainable(TorchTrainable):
    """``TorchTrainable`` for a user's own loop.

    The loop itself reports its loss and its metrics. The loss function of ``asked`` and the values of ``metrics`` are
    therefore ``not_called``.

    Args:
        averages: a gradient is of the mean over its micro-batch; else of the sum.
        rates: the user's learning-rate scheduler, which moves with the updates.
        run_body: runs the body on one micro-batch, and returns when the body has ended.
        name: the loader's name in error messages.
    """

    averages: bool = True
    rates: Rates = field(default_factory=lambda: Rates(None))
    run_body: Callable[[BodyRun], None] = not_called
    name: str = "loader"

    def adapter_on(self, device: torch.device, options: StepOptions = _PLAIN) -> UserLoopAdapter:
        return UserLoopAdapter(self, device)


class BodyRun:
    """One run of the loop's body, on one micro-batch.

    Args:
        model: the adapter that reads the gradients.
        loop: the loop that the body belongs to.
        batch: the batch for the body, on the model's device.
        count, total: samples of the micro-batch and of the step.
        local: the flat vector (``frameworks.flat``) that is filled.
    """

    def __init__(
        self, model: UserLoopAdapter, loop: UserLoopTrainable, batch: Any, count: int, total: int, local: Any
    ) -> None:
        self.batch = batch
        self._model, self._count, self._total, self._local = model, count, total, local
        self._name, self._averages = loop.name, loop.averages
        self._values: dict[str, float] = {}
        self._stepped = False
        self._fingerprint = model.fingerprint()

    def step(self, closure: Callable[[], Any] | None) -> Any:
        """Handle the user's ``optimizer.step()``: write the gradients to the flat vector, without an update.

        Args:
            closure: computes the loss and its gradients; None: the body has already computed them.

        Returns:
            What ``closure`` returns, or None.

        Raises:
            UsageError: this is the second call for this micro-batch, or there are no gradients.
        """
        if self._stepped:
            raise UsageError(
                f"{self._name}: optimizer.step() was called twice for one batch; takes one call for each, since the "
                "global batch is what an update is made of"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                self._values.setdefault("loss", _number(loss))
        if not self._model.has_gradients():
            raise UsageError(
                f"{self._name}: there are no gradients at optimizer.step(); takes loss.backward() before it, on a loss "
                "of the model that the loader was given, and zero_grad() not between the two"
            )
        share = self._count / self._total
        self._model.write_gradients(self._local, share if self._averages else 1.0, share)
        self._stepped = True
        return loss

    def report(self, values: Mapping[str, Any]) -> None:
        """Note loss and metrics by name: numbers, or tensors of one number."""
        self._values.update({name: _number(value) for name, value in values.items()})

    def close(self) -> None:
        """Check and complete the micro-batch. Called when the body has ended.

        Raises:
            UsageError: the body has not called ``step``, or has changed parameters or settings.
        """
        if not self._stepped:
            raise UsageError(
                f"{self._name}: the loop asked for its next batch and had not called optimizer.step() for this one; "
                "takes one call for each batch (a GradScaler leaves some out: bfloat16 needs none)"
            )
        if self._model.fingerprint() != self._fingerprint:
            raise UsageError(
                f"{self._name}: the body of the loop has changed parameters or the optimizer's settings (a learning "
                "rate, for example); it runs in each engine for its own batches, so what it changes would differ. "
                "Takes lr_scheduler= for learning rates; other settings stay as they are at the loop's begin"
            )
        self._model.write_sums(self._local, self._count, self._values)


class Rates:
    """A learning-rate scheduler that moves with the updates of a training.

    It moves after every update, or at the end of every pass over the training set. The same script makes a scheduler
    in every process, and each moves with the same updates. A process that joins later takes the missing steps at once.
    The scheduler's state need not travel, because it follows from the number of updates or samples.

    Args:
        scheduler: a torch scheduler that needs no metric; None: learning rates do not change.
        epoch_samples: samples of a pass; 0: the scheduler moves after every update. Passes are counted in samples,
            because updates may have different numbers of samples.
    """

    def __init__(self, scheduler: Any, epoch_samples: int = 0) -> None:
        self._scheduler, self._epoch_samples = scheduler, epoch_samples
        self.passed = 0
        """Updates so far, or their samples if ``epoch_samples`` is not 0."""
        self._steps = 0
        """Steps that the scheduler has taken."""
        self._held = False

    def updated(self, samples: int) -> None:
        """Called after the optimizer has taken a step on this number of samples."""
        self.passed += samples if self._epoch_samples else 1
        self._follow()

    def go_to(self, passed: int) -> None:
        """Take the scheduler's missing steps, before a received state is imported.

        The state overwrites the learning rates that the scheduler writes here.

        Args:
            passed: updates so far, or their samples, of the training that is joined.
        """
        self.passed = passed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.* before .*optimizer.step.*")
            self._follow()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the scheduler does not move.

        Inside it, the optimizer has scaled learning rates. The scheduler computes from the learning rates that it
        finds, so it moves at the end of the context, when the optimizer has the user's learning rates again.
        """
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._follow()

    def _follow(self) -> None:
        if self._scheduler is None or self._held:
            return
        due = self.passed // self._epoch_samples if self._epoch_samples else self.passed
        while self._steps < due:
            self._scheduler.step()
            self._steps += 1


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
