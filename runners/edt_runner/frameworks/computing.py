"""What a user gives to say how loss and metrics are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """Those arguments of ``FabricModel`` that say how loss and metrics are computed, as the user gave them.

    Args:
        loss_function, metrics, training_step, validation_step, fn_step_train, fn_test, loss_reduction, token_count: as
            in ``fabric_model.FabricModel``.
    """

    loss_function: Any
    metrics: Any = None
    training_step: Callable[..., Any] | None = None
    validation_step: Callable[..., Any] | None = None
    fn_step_train: Callable[..., Any] | None = None
    fn_test: Callable[..., Any] | None = None
    loss_reduction: str = "sample"
    token_count: Callable[[Any], int] | None = None

    def beyond_plain(self) -> list[str]:
        """Names of the arguments that were given besides ``loss_function`` and ``metrics``."""
        named = ("training_step", "validation_step", "fn_step_train", "fn_test", "token_count")
        found = [name for name in named if getattr(self, name) is not None]
        return found + (["loss_reduction"] if self.loss_reduction != "sample" else [])
