"""The lines of PyTorch that the body of a user's loop has at their natural places, and what they do there.

    loss.backward()                       as always; the loss is also noted, for logs
    clip_grad_norm_, clip_grad_value_     noted; the gradient of the whole step is clipped
    scaler.unscale_, step, update         noted; the gradient of the whole step is unscaled and judged
    scheduler.step()                      noted; the scheduler moves once, after the step
    average.update_parameters(model)      the same

The functions are replaced while a loop runs. Outside of the loop's body, also in the engine's own thread, they do what
they did before.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel

from edt_runner.errors import UsageError
from edt_runner.launch.user_loop_asks import ClipKind

_NORMS = {2.0: ClipKind.NORM, float("inf"): ClipKind.LARGEST}


class Body(Protocol):
    """A run of the loop's body, to which the replaced functions turn."""

    name: str
    """The loop's name in error messages."""

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None, scaler: Any = None) -> Any: ...
    def clip(self, parameters: Sequence[Tensor], kind: ClipKind, limit: float) -> None: ...
    def scale(self, loss: Any, scaled: Any) -> None: ...
    def unscale(self, optimizer: torch.optim.Optimizer) -> None: ...
    def move(self, moved: Any) -> None: ...
    def note_loss(self, loss: Any) -> None: ...


class Loop(Protocol):
    """A loop, as the replaced functions see it."""

    @property
    def body(self) -> Body | None:
        """The run of the body; None: the body does not run now."""


class _UnknownNorm(Tensor):
    """What ``clip_grad_norm_`` returns in the body: any use of it is an error, since the norm is not known yet."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        raise UsageError(
            "clip_grad_norm_: its result was used in the body of the loop, takes clip_grad_norm_(…) without a use of "
            "its result: the norm is that of the whole batch, and is known when all micro-batches are there; it is "
            "logged as grad_norm"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return "<the norm of the whole batch's gradient, which is not known yet>"


class NaturalLines:
    """The replaced functions of one loop.

    Args:
        loop: the loop.
        optimizers: the loop's optimizers.
        moved: the schedulers and averages that the body may move.
    """

    def __init__(self, loop: Loop, optimizers: Sequence[torch.optim.Optimizer], moved: Sequence[Any]) -> None:
        self._loop, self._optimizers, self._moved = loop, optimizers, moved
        self._undo: list[Callable[[], None]] = []
        self._in_backward = False

    def catch(self) -> None:
        """Replace the functions."""
        utils = torch.nn.utils
        self._everywhere(utils.clip_grad_norm_, self._clip_norm)
        self._everywhere(utils.clip_grad_value_, self._clip_value)
        self._everywhere(torch.autograd.backward, self._backward)
        for name, method in (
            ("scale", self._scale),
            ("unscale_", self._unscale),
            ("step", self._scaler_step),
            ("update", self._scaler_update),
        ):
            self._method(GradScaler, name, method)
        classes = {each for moved in (LRScheduler, *map(type, self._moved)) for each in _mro(moved)}
        for each in sorted(classes, key=lambda found: len(found.__mro__)):
            if issubclass(each, LRScheduler) and "step" in vars(each):
                self._method(each, "step", self._scheduler_step)
        self._method(AveragedModel, "update_parameters", self._average)

    def release(self) -> None:
        """Put everything back."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    # ── replacing ─────────────────────────────────────────────────────────────────────────────────────────────
    def _everywhere(self, function: Callable[..., Any], instead: Callable[..., Any]) -> None:
        """Replace a function under every name that a module has for it, also by ``from … import …``."""

        @functools.wraps(function)
        def replaced(*args: Any, **named: Any) -> Any:
            body = self._loop.body
            return function(*args, **named) if body is None else instead(body, function, *args, **named)

        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                for name in [name for name, value in list(names.items()) if value is function]:
                    self._set(names.__setitem__, name, replaced, function)

    def _method(self, kind: Any, name: str, instead: Callable[..., Any]) -> None:
        """Replace a method of a class."""
        method = vars(kind)[name]

        @functools.wraps(method)
        def replaced(owner: Any, *args: Any, **named: Any) -> Any:
            body = self._loop.body
            return method(owner, *args, **named) if body is None else instead(body, method, owner, *args, **named)

        self._set(functools.partial(setattr, kind), name, replaced, method)

    def _set(self, change: Callable[[str, Any], None], name: str, value: Any, before: Any) -> None:
        change(name, value)
        self._undo.append(functools.partial(change, name, before))

    # ── in the body ───────────────────────────────────────────────────────────────────────────────────────────
    def _backward(self, body: Body, function: Any, tensors: Any, *args: Any, **named: Any) -> Any:
        if self._in_backward:  # recomputed activations (torch.utils.checkpoint) have a backward pass of their own
            return function(tensors, *args, **named)
        body.note_loss(tensors)
        self._in_backward = True
        try:
            return function(tensors, *args, **named)
        finally:
            self._in_backward = False

    def _clip_norm(
        self,
        body: Body,
        function: Any,
        parameters: Tensor | Iterable[Tensor],
        max_norm: Any,
        norm_type: Any = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        kind = _NORMS.get(float(norm_type))
        if kind is None:
            raise UsageError(f"clip_grad_norm_: got norm_type={norm_type!r}, takes 2.0 or inf in the body of a loop")
        body.clip(_listed(parameters), kind, float(max_norm))
        unknown: Tensor = torch.Tensor._make_subclass(_UnknownNorm, torch.tensor(float("nan")))
        return unknown

    def _clip_value(
        self,
        body: Body,
        function: Any,
        parameters: Tensor | Iterable[Tensor],
        clip_value: Any,
        foreach: bool | None = None,
    ) -> None:
        body.clip(_listed(parameters), ClipKind.VALUE, float(clip_value))

    def _scale(self, body: Body, method: Any, scaler: GradScaler, outputs: Any) -> Any:
        scaled = method(scaler, outputs)
        if scaler.is_enabled():
            body.scale(outputs, scaled)
        return scaled

    def _unscale(self, body: Body, method: Any, scaler: GradScaler, optimizer: torch.optim.Optimizer) -> None:
        if scaler.is_enabled():
            body.unscale(optimizer)

    def _scaler_step(
        self, body: Body, method: Any, scaler: GradScaler, optimizer: torch.optim.Optimizer, *args: Any, **named: Any
    ) -> Any:
        if not scaler.is_enabled():
            return method(scaler, optimizer, *args, **named)
        if args or named:
            raise UsageError("scaler.step: got a closure, takes scaler.step(optimizer)")
        return body.step(optimizer, None, scaler)

    def _scaler_update(self, body: Body, method: Any, scaler: GradScaler, new_scale: Any = None) -> None:
        """The scale moves when the step is taken, once in all engines."""
        if new_scale is not None:
            raise UsageError(
                f"scaler.update: got {new_scale!r}, takes update() in the body of a loop: the scale is the same in all "
                "engines"
            )

    def _scheduler_step(self, body: Body, method: Any, scheduler: Any, *args: Any, **named: Any) -> Any:
        if all(scheduler is not each for each in self._moved):
            if all(getattr(scheduler, "optimizer", None) is not each for each in self._optimizers):
                return method(scheduler, *args, **named)
            raise UsageError(
                f"{type(scheduler).__name__}: made in the body of the loop, takes one that is made before the loop"
            )
        if isinstance(scheduler, ReduceLROnPlateau):
            raise UsageError(
                f"scheduler.step: called in the body of the loop with the metric of one micro-batch, takes {body.name} "
                "with lr_scheduler=scheduler, lr_scheduler_metric='val_loss': it gets the metric of the whole "
                "validation"
            )
        if args or any(value is not None for value in named.values()):
            raise UsageError("scheduler.step: got an epoch, takes step() in the body of a loop")
        body.move(scheduler)
        return None

    def _average(self, body: Body, method: Any, average: AveragedModel, *args: Any, **named: Any) -> None:
        if all(average is not each for each in self._moved):
            raise UsageError("AveragedModel: made in the body of the loop, takes one that is made before the loop")
        body.move(average)


class StepCatcher:
    """An optimizer of torch, whose ``step`` is replaced while the loop runs."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def catch(self, loop: Loop) -> None:
        self._before = vars(self.optimizer).get("step")
        update = self.optimizer.step

        def step(closure: Any = None) -> Any:
            body = loop.body
            return update(closure) if body is None else body.step(self.optimizer, closure)

        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # torch: schedulers need not patch it
        self.optimizer.step = step  # type: ignore[method-assign]

    def release(self) -> None:
        if self._before is None:
            del self.optimizer.step
        else:
            self.optimizer.step = self._before  # type: ignore[method-assign]


def _mro(kind: type) -> Sequence[type]:
    return kind.__mro__


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)
