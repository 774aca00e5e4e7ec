"""Callbacks of the platform that watch the metrics of validations: early stopping, and the best epoch so far.

What they remember travels with the training's state, as what a user's callbacks remember.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edt_contract.metrics import larger_is_better
from edt_runner.callbacks.hooks import UserCallback
from edt_runner.errors import UsageError, usage, whole

_MODES = ("min", "max")


class Watched:
    """The best value of a metric so far. Its attributes travel to other engines and into checkpoints.

    Args:
        metric: name of the metric, as callbacks see it: "val_loss".
        mode: "min" or "max".
        min_delta: a value that is better by less than this is no improvement.
    """

    def __init__(self, metric: str, mode: str, min_delta: float = 0.0) -> None:
        self.metric, self.mode, self.min_delta = metric, mode, min_delta
        self.best: float | None = None
        """None: there was no value."""
        self.epoch = 0
        """The epoch of the best value, 1-based; 0: there was no value."""
        self.since = 0
        """Values since the best one."""

    def take(self, epoch: int, values: Mapping[str, float]) -> bool:
        """Take the values of an epoch's end. Returns whether there was a new value of the metric.

        Args:
            epoch: the epoch that ends, 0-based.
            values: all values by name; those of a validation only if the epoch had one.

        Raises:
            UsageError: the epoch had a validation, but no such metric.
        """
        if self.metric not in values:
            validated = any(name.startswith("val_") for name in values)
            if validated or not self.metric.startswith("val_"):
                raise UsageError(
                    f"metric {self.metric!r} is watched, but there is none of that name; there are "
                    f"{', '.join(sorted(values))}"
                )
            return False
        value = float(values[self.metric])
        if self._improves(value):
            self.best, self.epoch, self.since = value, epoch + 1, 0
        else:
            self.since += 1
        return True

    def _improves(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if self.mode == "max" else self.best - value
        return gain > self.min_delta


class _Watcher(UserCallback):
    """What both callbacks of this module have in common."""

    attached: tuple[str, ...] = ("metric", "mode", "min_delta")
    inner: Watched

    def __init__(self, inner: Watched) -> None:
        self.inner = inner
        self._model: Any = None

    @property
    def needs(self) -> str:
        """The metric without which the callback can do nothing."""
        return self.inner.metric

    def __str__(self) -> str:
        return f"{type(self).__qualname__} of {self.inner.metric} ({self.inner.mode}, {self.inner.min_delta:g})"

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        self._model = model

    def train_begin(self) -> None:
        return

    def train_end(self, values: Mapping[str, float]) -> None:
        return

    def epoch_begin(self, epoch: int) -> None:
        return


class EarlyStopping(_Watcher):
    """Ends the training if a metric has not improved for some validations.

    Args:
        inner: the metric.
        patience: how many validations may follow the best one without an improvement.
    """

    def __init__(self, inner: Watched, patience: int) -> None:
        super().__init__(inner)
        self._patience = patience

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        if self.inner.take(epoch, values) and self.inner.since >= self._patience:
            self._model.stop_training = True


class KeepBest(_Watcher):
    """Remembers the epoch with the best value of a metric. The first engine writes the model's files after it."""

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        self.inner.take(epoch, values)


def watchers(early_stopping: Any, keep_best: Any) -> Sequence[UserCallback]:
    """Check these two arguments of ``train()``, and make their callbacks.

    Raises:
        UsageError: one of them is wrong.
    """
    found: list[UserCallback] = []
    if keep_best is not None:
        found.append(KeepBest(_best(keep_best)))
    if early_stopping is not None:
        found.append(_early(early_stopping))
    return found


def _best(given: Any) -> Watched:
    takes = "a metric's name, such as 'val_accuracy', or (name, 'min' or 'max')"
    if isinstance(given, str):
        return Watched(given, _mode_of(given))
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], str):
        raise usage("keep_best", given, takes)
    if given[1] not in _MODES:
        raise usage("keep_best", given, takes)
    return Watched(given[0], given[1])


def _early(given: Any) -> EarlyStopping:
    takes = "a number of validations, or a dict of patience, metric, mode and min_delta"
    asked = {"patience": given} if not isinstance(given, Mapping) else dict(given)
    unknown = set(asked) - {"patience", "metric", "mode", "min_delta"}
    if unknown or "patience" not in asked:
        raise usage("early_stopping", given, takes)
    patience = whole("early_stopping", asked["patience"], takes)
    metric = asked.get("metric", "val_loss")
    if not isinstance(metric, str):
        raise usage("early_stopping['metric']", metric, "the name of a metric, such as 'val_loss'")
    mode = asked.get("mode") or _mode_of(metric)
    if mode not in _MODES:
        raise usage("early_stopping['mode']", mode, "'min' or 'max'")
    delta = asked.get("min_delta", 0.0)
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta < math.inf:
        raise usage("early_stopping['min_delta']", delta, "a number, at least 0")
    return EarlyStopping(Watched(metric, mode, float(delta)), patience)


def _mode_of(metric: str) -> str:
    return "max" if larger_is_better(metric) else "min"
