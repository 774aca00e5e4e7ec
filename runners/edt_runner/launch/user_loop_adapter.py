"""A model whose forward and backward pass is the body of its user's loop.

All else is ``TorchAdapter``'s: what forward does to buffers, how gradients are weighted and applied, the state.

The engine works in one thread, the user's loop in the main one: its frame cannot be moved, and signal handlers run
there. Exactly one of them runs at any time: the engine passes a micro-batch to the body and waits until the user's
``next()`` asks for another one. So neither needs a lock, and what one of them has written the other sees.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edt_runner.adapter import State
from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind

_PASSED = "passed"


class UserLoopAdapter(TorchAdapter):
    """``TorchAdapter`` whose gradients the body of the user's loop computes.

    Args:
        trainable: the model, its optimizer and the loop.
        device: where the model computes.
    """

    def __init__(self, trainable: UserLoopTrainable, device: torch.device) -> None:
        super().__init__(trainable.model, trainable.optimizer, not_called, trainable.metrics, device)
        self._loop, self._rates = trainable, trainable.rates

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """The model alone, as far as it can be called with a batch's first part: the body runs for counted batches
        only. What fails here fails there, too, where its user sees it."""
        self.prepare(0)
        with contextlib.suppress(Exception):
            given, _ = self._to_device((batch, ()))
            outputs = self.model(given[0] if isinstance(given, list | tuple) else given)
            if isinstance(outputs, Tensor):
                torch.autograd.backward(outputs.sum())
        self._buffers.restore()
        self._clear_gradients()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self._loop.run_body(self.body_run(batch, count, total, seed, local))

    def body_run(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> BodyRun:
        """A micro-batch that is ready for the body of the loop."""
        self.prepare(seed)
        given, _ = self._to_device((batch, ()))
        return BodyRun(self, self._loop, given, count, total, local)

    def fingerprint(self) -> tuple[Any, ...]:
        """A value that changes if the body changes what it must leave alone: parameters, the optimizer's settings."""
        versions = tuple(parameter._version for parameter in self._all_parameters.values())
        groups = tuple(
            (key, (id(value), value._version) if isinstance(value, Tensor) else repr(value))
            for group in self.optimizer.param_groups
            for key, value in group.items()
            if key != "params"
        )
        return versions, groups

    def has_gradients(self) -> bool:
        return any(parameter.grad is not None for parameter in self._parameters)

    def write_sums(self, local: Tensor, count: int, values: Mapping[str, float]) -> None:
        """Write loss and metrics, by name."""
        own = [count, *(values.get(name, math.nan) * count for name in self._names)]
        local[-self.width :].copy_(torch.tensor(own, dtype=torch.float64))

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
    """``TorchTrainable`` for a user's own loop, which reports its loss and its metrics by itself: ``loss_function``
    and the values of ``metrics`` are ``not_called``.

    Args:
        averages: a gradient is of the mean over its micro-batch; else of the sum.
        rates: the user's learning-rate scheduler, which moves with the updates.
        run_body: lets the body run on one micro-batch, and returns when it has.
        name: of the loader, for errors.
    """

    averages: bool
    rates: Rates
    run_body: Callable[[BodyRun], None]
    name: str

    def adapter_on(self, device: torch.device) -> UserLoopAdapter:
        return UserLoopAdapter(self, device)


def not_called(*values: Any) -> Any:
    raise AssertionError("the user's loop computes its loss and its metrics by itself")


class BodyRun:
    """The body of the loop on one micro-batch.

    Args:
        model: where gradients are read.
        loop: that has the body.
        batch: for the body, on the model's device.
        count, total: samples of the micro-batch and of the step.
        local: the flat vector (``frameworks.flat``) that it fills.
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
        """The user's ``optimizer.step()``: the gradients are written to the flat vector, and nothing is updated yet.

        Args:
            closure: computes the loss and its gradients; None: the body has done so.

        Returns:
            What ``closure`` returns, or None.

        Raises:
            UsageError: it is the second call for this micro-batch, or there are no gradients.
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
        self._model.write_gradients(self._local, self._count, self._total, averages=self._averages)
        self._stepped = True
        return loss

    def report(self, values: Mapping[str, Any]) -> None:
        """Take loss and metrics by name: numbers, or tensors of one number."""
        self._values.update({name: _number(value) for name, value in values.items()})

    def close(self) -> None:
        """The body has come to its end.

        Raises:
            UsageError: it has not called ``step``, or has changed parameters or settings.
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
    """A learning-rate scheduler that goes along with the updates of a training: it moves after every update, or at the
    end of every pass over the training set.

    Every process makes its own, by the same script, and it moves with the updates in each process alike; one that comes
    later takes the steps that it has missed. So its state need not travel: it follows from what was trained on.

    Args:
        scheduler: a torch scheduler that needs no metric; None: there is none.
        epoch_samples: of a pass; 0: it moves after every update. Updates may differ in their samples, so that passes
            are counted in these.
    """

    def __init__(self, scheduler: Any, epoch_samples: int = 0) -> None:
        self._scheduler, self._epoch_samples = scheduler, epoch_samples
        self.passed = 0
        """Updates, or the samples of all of them."""
        self._steps = 0
        """That the scheduler has taken."""
        self._held = False

    def updated(self, samples: int) -> None:
        """The optimizer has taken a step of so many samples."""
        self.passed += samples if self._epoch_samples else 1
        self._follow()

    def go_to(self, passed: int) -> None:
        """Take the steps of a training that is there already. What it writes into the optimizer is overwritten by
        that training's own."""
        self.passed = passed
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.* before .*optimizer.step.*")
            self._follow()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the optimizer's learning rates are not its user's: the scheduler, which goes on from those that it
        finds, moves when they are again."""
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
