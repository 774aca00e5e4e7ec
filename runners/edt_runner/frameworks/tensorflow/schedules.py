"""``lr_scheduler`` with Keras: a schedule becomes the optimizer's learning rate, anything else runs at epochs' ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edt_runner.callbacks.hooks import UserCallback
from edt_runner.callbacks.kinds import KerasCallback
from edt_runner.errors import UsageError
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion

_TAKES = (
    "a LearningRateSchedule, a function (epoch, learning rate) -> learning rate or (epoch) -> learning rate, or "
    "Keras's LearningRateScheduler or ReduceLROnPlateau"
)


def resolved(keras: KerasVersion, optimizer: Any, options: StepOptions) -> Any:
    """Check the argument ``lr_scheduler``. A schedule becomes the learning rate of the optimizer.

    Args:
        keras: the model's version of Keras.
        optimizer: the optimizer; if it scales the loss, the one inside it.
        options: what ``train()`` was asked for.

    Returns:
        The schedule, a callback of Keras, or None.

    Raises:
        UsageError: the argument is wrong, or contradicts another argument or the optimizer.
    """
    given, library = options.lr_scheduler, keras.keras
    if given is None:
        return None
    if isinstance(given, type):
        raise UsageError(f"lr_scheduler: got the class {given.__name__}, takes {_TAKES}")
    by_step = isinstance(given, library.optimizers.schedules.LearningRateSchedule)
    moves_rate = isinstance(given, library.callbacks.LearningRateScheduler | library.callbacks.ReduceLROnPlateau)
    if not by_step and not moves_rate and (isinstance(given, library.callbacks.Callback) or not callable(given)):
        raise UsageError(f"lr_scheduler: got {type(given).__module__}.{type(given).__qualname__}, takes {_TAKES}")
    _check_interval(options.lr_scheduler_interval, given, by_step=by_step)
    if keras.has_schedule(optimizer):
        raise UsageError(
            f"lr_scheduler: got {type(given).__qualname__} with an optimizer whose learning rate is a schedule "
            "already, takes None, or an optimizer whose learning rate is a number"
        )
    if by_step:
        keras.set_schedule(optimizer, given)
        return given
    plateau = isinstance(given, library.callbacks.ReduceLROnPlateau)
    if options.lr_scheduler_metric not in ("val_loss", getattr(given, "monitor", None)):
        takes = f"{given.monitor!r}, the callback's monitor" if plateau else "its default: no metric is used"
        raise UsageError(f"lr_scheduler_metric: got {options.lr_scheduler_metric!r}, takes {takes}")
    return given if moves_rate else library.callbacks.LearningRateScheduler(given)


def _check_interval(interval: str, given: Any, *, by_step: bool) -> None:
    if by_step and interval != "step":
        raise UsageError(
            f"lr_scheduler_interval: got {interval!r} with {type(given).__name__}, takes 'step': such a schedule "
            "counts steps; a function (epoch, learning rate) moves it by epochs"
        )
    if not by_step and interval != "epoch":
        raise UsageError(
            f"lr_scheduler_interval: got {interval!r} with {type(given).__name__}, takes 'epoch': it is called once an "
            "epoch; a LearningRateSchedule moves the learning rate by steps"
        )


class _Plateau(KerasCallback):
    """Keras's ReduceLROnPlateau. It rests after an epoch without a validation, and misses no metric in silence."""

    def epoch_end(self, epoch: int, values: dict[str, float], saves: bool) -> None:
        metric = self.inner.monitor
        if metric in values:
            super().epoch_end(epoch, values, saves)
        elif not metric.startswith("val_") or any(name.startswith("val_") for name in values):
            raise UsageError(
                f"lr_scheduler: got a callback whose monitor is {metric!r}, takes one of {', '.join(sorted(values))}"
            )


def epoch_callbacks(scheduler: Any) -> Sequence[UserCallback]:
    """Return the callback that moves the learning rate by epochs, if there is one.

    Args:
        scheduler: what ``resolved`` returned.
    """
    if hasattr(scheduler, "on_epoch_end"):
        return ((_Plateau if hasattr(scheduler, "monitor") else KerasCallback)(scheduler),)
    return ()
