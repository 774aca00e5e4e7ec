"""One run of the body of a user's loop: what it computes and what it asks for, on one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from edt_runner.errors import UsageError
from edt_runner.launch.user_loop_asks import MOST_CLIPS, MOST_MOVES, Asks, Clip, ClipKind


class LoopModel(Protocol):
    """The adapter of a loop's model, as a run of the body sees it. ``UserLoopAdapter`` describes the methods."""

    clips_all: bool

    def weight(self, batch: Any, count: int) -> int: ...
    def fingerprint(self) -> tuple[Any, ...]: ...
    def number_of(self, optimizer: torch.optim.Optimizer) -> int: ...
    def number_of_moved(self, wanted: Any) -> int: ...
    def numbers_of(self, parameters: Sequence[Tensor]) -> tuple[int, ...] | None: ...
    def parameters_of(self, number: int) -> frozenset[int]: ...
    def holds(self, number: int, parameters: Sequence[int]) -> bool: ...
    def has_gradients(self, number: int) -> bool: ...
    def changed(self, number: int) -> bool: ...
    def check_scaler(self, scaler: Any) -> None: ...
    def write_step(self, local: Tensor, number: int, weight: int, count: int, total: int, *, first: bool) -> None: ...
    def write_sums(
        self, local: Tensor, count: int, weight: int, loss: float, values: Mapping[str, float], *, reported: bool
    ) -> None: ...
    def note_asks(self, asks: Asks, local: Tensor) -> None: ...


class BodyRun:
    """One run of the loop's body, on one micro-batch.

    Args:
        model: the adapter that reads the gradients.
        name: the loop's name in error messages.
        batch: the batch for the body, on the model's device.
        count, total: samples of the micro-batch and of the step.
        local: the flat vector (``frameworks.flat``) that is filled.
    """

    def __init__(self, model: LoopModel, name: str, batch: Any, count: int, total: int, local: Tensor) -> None:
        self.batch, self.name = batch, name
        self._model, self._count, self._total, self._local = model, count, total, local
        self._weight = model.weight(batch, count)
        self._reported: dict[str, Any] = {}
        self._losses: list[Tensor] = []
        """The losses whose gradients were computed."""
        self._scaled: list[tuple[Any, Any]] = []
        """(scaled loss, the loss itself) for each that a GradScaler has scaled."""
        self._unscaled: set[int] = set()
        self._stepped: list[int] = []
        self._with_scaler: set[bool] = set()
        """Whether the steps were those of a GradScaler."""
        self._moves: dict[int, int] = {}
        self._clips: list[Clip] = []
        self._fingerprint = model.fingerprint()

    # ── gradients ─────────────────────────────────────────────────────────────────────────────────────────────
    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None, scaler: Any = None) -> Any:
        """Handle the user's ``optimizer.step()``: write the gradients to the flat vector, without an update.

        Args:
            optimizer: the optimizer.
            closure: computes the loss and its gradients; None: the body has already computed them.
            scaler: the GradScaler whose ``step`` was called; None: none was.

        Returns:
            What ``closure`` returns, or None.

        Raises:
            UsageError: this is the optimizer's second call for this micro-batch, there are no gradients, or they were
                changed after the backward pass.
        """
        number = self._model.number_of(optimizer)
        if number in self._stepped:
            raise UsageError(
                f"{self.name}: optimizer.step() was called twice for one batch; takes one call for each, since the "
                "global batch is what an update is made of"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if not self._losses and isinstance(loss, Tensor):
                self.note_loss(loss)
        if not self._model.has_gradients(number):
            raise UsageError(
                f"{self.name}: there are no gradients at optimizer.step(); takes loss.backward() before it, on a loss "
                "of the model that the loader was given, and zero_grad() not between the two"
            )
        self._check_scaler(scaler)
        if self._model.changed(number):
            raise UsageError(
                f"{self.name}: the gradients were changed between backward() and optimizer.step(), so each micro-batch "
                "would be changed for itself; takes torch.nn.utils.clip_grad_norm_(…) or clip_grad_value_(…) there, or "
                f"{self.name.removesuffix('()')}(…, clip_grad_norm=…), which act on the gradient of the whole batch, "
                "and for any other change optimizer.register_step_pre_hook(function), which finds that gradient in "
                ".grad"
            )
        self._model.write_step(self._local, number, self._weight, self._count, self._total, first=not self._stepped)
        self._stepped.append(number)
        return loss

    def clip(self, parameters: Sequence[Tensor], kind: ClipKind, limit: float) -> None:
        """Handle a clip in the body: note it for the gradient of the whole step.

        Raises:
            UsageError: it cannot act there.
        """
        numbers = self._model.numbers_of(parameters)
        what = f"clip_grad_{'value' if kind is ClipKind.VALUE else 'norm'}_"
        if numbers is None:
            raise UsageError(f"{what}: got other parameters, takes those of the model that {self.name} was given")
        if not limit > 0:
            raise UsageError(f"{what}: got {limit}, takes a number above 0")
        if any(self._model.holds(number, numbers) for number in self._stepped):
            raise UsageError(f"{what}: called after optimizer.step(), takes a call between backward() and step()")
        unscaled = set().union(*(self._model.parameters_of(number) for number in self._unscaled))
        if self._scaled and not set(numbers) <= unscaled:
            raise UsageError(
                f"{what}: called on gradients of a scaled loss, takes scaler.unscale_(optimizer) before it"
            )
        if len(self._clips) == MOST_CLIPS:
            raise UsageError(f"{what}: called more than {MOST_CLIPS} times for one batch, takes at most so many calls")
        if self._model.clips_all:
            raise UsageError(
                f"{what}: called in the body beside clip_grad_norm= or clip_grad_value=, takes one of them"
            )
        if numbers:
            self._clips.append(Clip(kind, limit, numbers))

    def scale(self, loss: Any, scaled: Any) -> None:
        """Note that a GradScaler has scaled a loss, or several."""
        self._scaled += [(scaled, loss)] if isinstance(loss, Tensor) else list(zip(scaled, loss, strict=True))

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Handle ``scaler.unscale_``: the gradient of the whole step will be unscaled."""
        self._unscaled.add(self._model.number_of(optimizer))

    def _check_scaler(self, scaler: Any) -> None:
        self._with_scaler.add(scaler is not None)
        if scaler is not None:
            self._model.check_scaler(scaler)
        if bool(self._scaled) is not (scaler is not None) or len(self._with_scaler) > 1:
            raise UsageError(
                f"{self.name}: a GradScaler was used for a part of the batch, takes scaler.scale(loss).backward() and "
                "scaler.step(optimizer) for all of it"
            )

    # ── what else the body does ───────────────────────────────────────────────────────────────────────────────
    def move(self, moved: Any) -> None:
        """Note that a scheduler or an average is to move with this step.

        Raises:
            UsageError: it is to move too often.
        """
        number = self._model.number_of_moved(moved)
        self._moves[number] = self._moves.get(number, 0) + 1
        if self._moves[number] > MOST_MOVES:
            raise UsageError(
                f"{self.name}: {type(moved).__name__} moved more than {MOST_MOVES} times for one batch, takes at most "
                "so many"
            )

    def note_loss(self, loss: Any) -> None:
        """Note a loss whose gradients are computed."""
        for each in [loss] if isinstance(loss, Tensor) else loss:
            plain = next((before for scaled, before in self._scaled if scaled is each), each)
            if isinstance(plain, Tensor) and plain.numel() == 1:
                self._losses.append(plain.detach().reshape(()))

    def report(self, values: Mapping[str, Any]) -> None:
        """Note loss and metrics by name: numbers, or tensors of one number."""
        self._reported.update(
            {name: value.detach() if isinstance(value, Tensor) else value for name, value in values.items()}
        )

    def close(self) -> None:
        """Check and complete the micro-batch. Called when the body has ended.

        Raises:
            UsageError: the body has not called ``step``, has changed parameters or settings, or its loss is not known.
        """
        if not self._stepped:
            raise UsageError(
                f"{self.name}: the loop asked for its next batch and had not called optimizer.step() for this one; "
                "takes one call for each batch"
            )
        if self._model.fingerprint() != self._fingerprint:
            raise UsageError(
                f"{self.name}: the body of the loop has changed parameters or the optimizer's settings (a learning "
                "rate, for example); it runs in each engine for its own batches, so what it changes would differ. "
                "Takes schedulers of torch.optim.lr_scheduler for learning rates, which step there or are given as "
                "lr_scheduler=; other settings stay as they are at the loop's begin"
            )
        reported = {name: float(value) for name, value in self._reported.items()}
        if "loss" not in reported and not self._losses:
            raise UsageError(
                f"{self.name}: the loss of a batch is not known; takes loss.backward() on one number, or "
                "loader.report(loss)"
            )
        loss = reported.pop("loss", None)
        self._model.write_sums(
            self._local,
            self._count,
            self._weight,
            sum(map(float, self._losses)) if loss is None else loss,
            reported,
            reported=loss is not None,
        )
        asks = Asks(
            tuple(sorted(self._stepped)), bool(self._scaled), tuple(sorted(self._moves.items())), tuple(self._clips)
        )
        self._model.note_asks(asks, self._local)
        self._scaled.clear()
