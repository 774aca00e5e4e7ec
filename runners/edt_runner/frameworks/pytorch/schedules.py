"""Learning-rate schedulers that the platform moves: after each step, or at the end of each epoch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from edt_runner.callbacks.hooks import UserCallback
from edt_runner.errors import UsageError
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch.companions import schedulers_of

_TAKES = (
    "a scheduler of torch.optim.lr_scheduler that was made with the optimizer, a function (optimizer) -> scheduler, or "
    "a list of these"
)


def resolved(given: Any, optimizers: Sequence[torch.optim.Optimizer], interval: str) -> list[LRScheduler]:
    """Check the argument ``lr_scheduler``, and make the schedulers that are given as functions.

    Args:
        given: what the user gave.
        optimizers: the user's optimizers. A function gets the first, or all as a list if there are several.
        interval: "epoch" or "step".

    Raises:
        UsageError: something is no scheduler, belongs to another optimizer, or needs a metric for each step.
    """
    if given is None:
        return []
    found = []
    for index, item in enumerate(given if isinstance(given, list | tuple) else [given]):
        name = f"lr_scheduler[{index}]" if isinstance(given, list | tuple) else "lr_scheduler"
        each = item
        if not isinstance(item, LRScheduler) and callable(item) and not isinstance(item, type):
            each = item(optimizers[0] if len(optimizers) == 1 else list(optimizers))
        if not isinstance(each, LRScheduler):
            got = f"the class {each.__name__}" if isinstance(each, type) else type(each).__qualname__
            raise UsageError(f"{name}: got {got}, takes {_TAKES}")
        if all(each.optimizer is not optimizer for optimizer in optimizers):
            raise UsageError(f"{name}: got a scheduler of another optimizer, takes {_TAKES}")
        if interval == "step" and isinstance(each, ReduceLROnPlateau):
            raise UsageError(
                f"{name}: got ReduceLROnPlateau with lr_scheduler_interval='step', takes 'epoch' with it: its metric "
                "is that of a validation"
            )
        found.append(each)
    return found


class EpochSchedule(UserCallback):
    """Moves schedulers at the end of each epoch. Their state travels as that of ``companions``.

    Args:
        schedulers: the schedulers.
        metric: name of the value that those get which need one.
    """

    attached: tuple[str, ...] = ()

    def __init__(self, schedulers: Sequence[LRScheduler], metric: str) -> None:
        self.inner = SimpleNamespace()
        self._schedulers, self._metric = schedulers, metric

    @property
    def needs(self) -> str | None:
        """The metric without which a scheduler cannot move; None: all move without one."""
        return self._metric if any(isinstance(each, ReduceLROnPlateau) for each in self._schedulers) else None

    def __str__(self) -> str:
        return f"{type(self).__qualname__} of {len(self._schedulers)}"

    def attach(self, model: Any, optimizer: Any, epochs: int, steps: int) -> None:
        return

    def train_begin(self) -> None:
        return

    def train_end(self, values: Mapping[str, float]) -> None:
        return

    def epoch_begin(self, epoch: int) -> None:
        return

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        for scheduler in self._schedulers:
            if not isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step()
            elif self._metric in values:
                scheduler.step(values[self._metric])
            elif not self._metric.startswith("val_") or any(name.startswith("val_") for name in values):
                raise UsageError(f"lr_scheduler_metric: got {self._metric!r}, takes one of {', '.join(sorted(values))}")


def epoch_callbacks(options: StepOptions) -> Sequence[UserCallback]:
    """Return the callback that moves the schedulers of ``options`` at ends of epochs, if there are any."""
    if options.lr_scheduler_interval != "epoch" or not options.lr_scheduler:
        return ()
    return (EpochSchedule(options.lr_scheduler, options.lr_scheduler_metric),)


def remark_on_unmoved(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Say on standard error which schedulers were made and have never moved in a training that is over."""
    schedulers = schedulers_of(optimizers)
    parts = {id(part) for each in schedulers for part in getattr(each, "_schedulers", ())}
    for each in schedulers:
        if id(each) not in parts and getattr(each, "_step_count", 1) <= 1 and each.last_epoch <= 0:
            print(
                f"edt: {type(each).__name__} was made with the optimizer and has never moved; the platform moves it if "
                "it is given as lr_scheduler=",
                file=sys.stderr,
            )
