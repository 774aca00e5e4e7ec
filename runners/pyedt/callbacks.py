"""WMLA's base classes for callbacks and loggers, which scripts import by the name ``callbacks``."""

from __future__ import annotations

from typing import Any

__all__ = ["Callback", "LoggerCallback"]


class Callback:
    """Code of the user that runs at the boundaries of epochs: ``FabricModel(..., user_callback=[...])``. Override the
    hooks that you need.

    A callback may also have hooks of single steps: ``on_train_batch_begin(batch)``, ``on_train_batch_end(batch)``, the
    same with ``test`` in place of ``train``, ``on_test_begin()`` and ``on_test_end()``. ``batch`` is the number of the
    step in its epoch or its validation, from 0. A hook that has a parameter ``logs`` gets the values, means over all
    engines and over the epoch so far; they are also the attribute ``metrics``. ``model.stop_training = True`` in such a
    hook ends the training when the epoch ends.

    Every engine runs the hooks, at the same boundaries and under the same seeds. What a hook changes of the model and
    of the optimizer is part of the training, for example
    ``for group in self.params["optimizer"].param_groups: group["lr"] *= 0.1``. A hook runs once for each boundary of
    the training, even if engines join, leave or crash. If an engine joins later, its callback receives what the other
    engines' callbacks remember.

    A callback remembers every attribute that is plain data, an array or a tensor, an object with ``state_dict`` and
    ``load_state_dict`` (a learning-rate scheduler, a second model), or an object of a class that the script defines.
    Anything else, such as an open file, must be made in ``on_train_begin``. A callback that has ``state_dict()`` and
    ``load_state_dict(state)`` itself decides what it remembers. Values outside of the callback, in a global variable,
    stay in their process.

    Attributes:
        params: a dict with "optimizer", and with "epochs", the number of epochs.
        model: the model.
        metrics: in ``on_epoch_end`` the epoch's loss and metrics by name, means over all engines; those of the
            validation, if the epoch had one, are named ``val_…``. A callback that makes an attribute of this name
            itself keeps its own.
    """

    params: dict[str, Any]
    model: Any
    metrics: dict[str, float]

    def __init__(self) -> None:
        self.params = {}
        self.model = None

    def on_train_begin(self) -> None:
        """Runs once in each engine: before the first step, or before a joining engine receives the weights."""

    def on_train_end(self) -> None:
        """Runs after the last step, in the engines that are members then."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Runs before the first step of ``epoch``, which counts from 0."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """Runs after the last step of ``epoch`` and its validation.

        Args:
            epoch: counts from 0.
            save_model: whether the model's files are written after this epoch (``checkpoint_freq``, and after the last
                epoch). The value is the same in every engine.
        """


class LoggerCallback:
    """Receives the metrics of a training. Override the methods that you need.

    As ``driver_logger_callback`` it is called in the driver, with means over all engines and over the epoch so far. As
    ``worker_logger_callback`` it is called in each engine, with the values of the engine's own micro-batches of a step.

    A logger that was written for WMLA 1.2.x (``driver_logger``, ``worker_logger``) has
    ``log_train_metrics(loss, acc, completed_batch, worker=0)`` instead, and ``log_test_metrics`` with the same
    parameters; the accuracy is in percent.
    """

    def on_train_begin(self) -> None:
        """Called before the first step."""

    def on_train_end(self) -> None:
        """Called after the last step, and also if the training ends early."""

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """Called after a training step.

        Args:
            metrics: "loss", and each metric by name.
            iteration: in the driver, the micro-batches of all engines so far; in an engine, the step.
            epoch: counts from 1.
            workers: the present number of engines.
        """

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        """Called after a validation. In the driver ``iteration`` is 0."""
