"""How the optimizers of a user's loop take a step: which of them, and with which scale of the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from edt_runner.frameworks.pytorch.optimizer_set import OptimizerSet
from edt_runner.frameworks.pytorch.precision import Precision

_LEAST_SCALE = 2.0**-14
"""If the gradient overflows even with this scale, it is not the scale that is too large."""


class SomeOptimizers(OptimizerSet):
    """The optimizers of a loop, of which some take a step."""

    taken = False
    """Whether the step has been taken; it is not if the loss's scale is too large."""
    _due: Sequence[int] = ()

    def begin(self, due: Sequence[int]) -> None:
        """Begin a step, which the optimizers of these numbers take."""
        self._due, self.taken = due, False

    def step(self) -> None:
        self.taken = True
        for number in self._due:
            self.members[number].step()


class LoopPrecision(Precision):
    """The scale of the user's own GradScaler.

    Its state travels as that of a companion. It moves by the GradScaler's own factors, once for each step.

    Args:
        scaler: the GradScaler; None: there is none.
        device: the device that the model computes on.
    """

    def __init__(self, scaler: Any, device: torch.device) -> None:
        super().__init__("fp32", device)
        self._scaler = scaler
        self._used: bool | None = None
        """Whether the newest step was scaled; None: there was no step yet."""

    def is_of(self, scaler: Any) -> bool:
        """Whether this is the scale of ``scaler``."""
        return scaler is self._scaler

    @contextlib.contextmanager
    def of_step(self, *, scaled: bool) -> Iterator[None]:
        """A context in which a step is applied. Outside of it, the scale is no part of the adapter's own state.

        Args:
            scaled: whether the step's loss was scaled.
        """
        self._used = self.scales = scaled
        self.scale = float(self._scaler.get_scale()) if scaled else 1.0
        try:
            yield
        finally:
            self.scales, self.scale = False, 1.0

    @property
    def expected(self) -> float:
        """The scale of the coming step's loss, if it is scaled as the newest one was."""
        return float(self._scaler.get_scale()) if self._scaler is not None and self._used is not False else 1.0

    @property
    def may_shrink(self) -> bool:
        return self._scaler is not None and self._scaler.get_scale() > _LEAST_SCALE

    def overflowed(self) -> None:
        state = self._scaler.state_dict()
        self._set(state, state["scale"] * state["backoff_factor"], 0)

    def stepped(self) -> None:
        if not self.scales:
            return
        state = self._scaler.state_dict()
        steps = state["_growth_tracker"] + 1
        if steps >= state["growth_interval"]:
            grown = state["scale"] * state["growth_factor"]
            self._set(state, grown if grown <= torch.finfo(torch.float32).max else state["scale"], 0)
        else:
            self._set(state, state["scale"], steps)

    def _set(self, state: dict[str, Any], scale: float, steps: int) -> None:
        self._scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": steps})
        self.scale = scale
