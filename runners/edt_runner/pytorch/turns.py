"""A user's own loop and the engine, one at a time. Room: runners; threads.

The engine works in one thread, the user's loop in the main one: its frame cannot be moved, and signal handlers run
there. Exactly one of them runs at any time. The engine hands a turn over and stands still until the user's ``next()``
gives it back; so neither needs a lock, and what the one has written the other sees.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from edt_runner.errors import UsageError


class Grip(Protocol):
    """What a turn asks of the adapter: see ``own_adapter.OwnLoopAdapter``."""

    def standing(self) -> tuple[Any, ...]:
        """What the body must leave as it is: changes when it does not."""

    def has_gradients(self) -> bool: ...

    def take(self, leaf: Any, count: int, total: int) -> None:
        """The gradients that lie in the model, and what forward has done to its buffers."""

    def take_values(self, leaf: Any, count: int, values: Mapping[str, float]) -> None:
        """Loss and metrics."""


class Turn:
    """One micro-batch in the user's hands.

    Args:
        grip: the model.
        batch: for the body, on the model's device.
        count, total: samples of it and of the step.
        leaf: what it is summed in.
        name: of the loader, for errors.
    """

    def __init__(self, grip: Grip, batch: Any, count: int, total: int, leaf: Any, name: str) -> None:
        self.batch = batch
        self._grip, self._count, self._total, self._leaf, self._name = grip, count, total, leaf, name
        self._values: dict[str, float] = {}
        self._stepped = False
        self._stood = grip.standing()

    def step(self, closure: Callable[[], Any] | None) -> Any:
        """The user's ``optimizer.step()``: the gradients go into the step's sum, and nothing is updated yet."""
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
        if not self._grip.has_gradients():
            raise UsageError(
                f"{self._name}: there are no gradients at optimizer.step(); takes loss.backward() before it, on a loss "
                "of the model that the loader was given, and zero_grad() not between the two"
            )
        self._grip.take(self._leaf, self._count, self._total)
        self._stepped = True
        return loss

    def report(self, values: Mapping[str, Any]) -> None:
        """Numbers, or tensors of one."""
        self._values.update({name: _number(value) for name, value in values.items()})

    def close(self) -> None:
        """The body has come to its end."""
        if not self._stepped:
            raise UsageError(
                f"{self._name}: the loop asked for its next batch and had not called optimizer.step() for this one; "
                "takes one call for each batch (a GradScaler leaves some out: bfloat16 needs none)"
            )
        if self._grip.standing() != self._stood:
            raise UsageError(
                f"{self._name}: the body of the loop has changed parameters or the optimizer's settings (a learning "
                "rate, for example); it runs in each engine for its own batches, so what it changes would differ. "
                "Takes lr_scheduler= for learning rates; other settings stay as they are at the loop's begin"
            )
        self._grip.take_values(self._leaf, self._count, self._values)


class Turns:
    """Between the two threads."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Turn | BaseException] = queue.SimpleQueue()
        self._back: queue.SimpleQueue[None] = queue.SimpleQueue()

    # ── the engine's thread ───────────────────────────────────────────────────────────────────────────────────
    def give(self, turn: Turn) -> None:
        """Let the user's loop work on it; returns when it is through. If the body raises, this never returns: the main
        thread ends the process."""
        self._given.put(turn)
        self._back.get()

    def fail(self, error: BaseException) -> None:
        """Nothing comes any more: the user's ``next()`` raises this."""
        self._given.put(error)

    # ── the user's ────────────────────────────────────────────────────────────────────────────────────────────
    def wait(self) -> Turn:
        """The next turn. Signal handlers run meanwhile."""
        found = self._given.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def done(self) -> None:
        self._back.put(None)


def _number(value: Any) -> float:
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
