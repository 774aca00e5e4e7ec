"""How far a user's loop is: what the loop's attributes show, in every process of the job."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from edt_runner.callbacks.hooks import UserCallback


class Progress:
    """The place of the present step, and what is known of the epochs that have ended. The latter is part of the
    training's state."""

    step = 0
    """Number of the step that is tried now, over all epochs."""

    def __init__(self) -> None:
        self.epochs = 0
        """Epochs that have ended."""
        self.values: dict[str, float] = {}
        """Loss and metrics of the last of them, means over all engines; those of a validation are named ``val_…``."""

    def to_json_object(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "values": self.values}

    def load(self, stored: Mapping[str, Any]) -> None:
        self.epochs = int(stored.get("epochs", 0))
        self.values = {name: float(value) for name, value in stored.get("values", {}).items()}


class EpochValues(UserCallback):
    """Notes the values of each epoch's end in a loop's progress.

    Args:
        progress: the loop's progress.
    """

    attached: tuple[str, ...] = ()

    def __init__(self, progress: Progress) -> None:
        self.inner = SimpleNamespace()
        self._progress = progress

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        return

    def train_begin(self) -> None:
        return

    def train_end(self, values: Mapping[str, float]) -> None:
        return

    def epoch_begin(self, epoch: int) -> None:
        return

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        self._progress.epochs, self._progress.values = epoch + 1, dict(values)
