"""``from callbacks import Callback, LoggerCallback``: WMLA's base classes.

Nothing of ours imports this module by its top name: a user's own ``callbacks.py`` may stand before it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Callback", "LoggerCallback"]


class Callback:
    """What a user wants done at the boundaries of epochs: ``FabricModel(..., user_callback=[...])``. Override what you
    need.

    Every engine runs the hooks, at the same boundary and under the same seed, and what they change of the model and of
    the optimizer is part of the training: ``for group in self.params["optimizer"].param_groups: group["lr"] *= 0.1``.
    They run once for each boundary of the training, whoever comes, leaves or dies: a callback of an engine that comes
    later is given what the others' callbacks remember. That is every attribute that is plain data, an array or a
    tensor, an object with ``state_dict`` and ``load_state_dict`` (a learning-rate scheduler, a second model) or an
    object of a class of the script's own; make what is none of these, such as an open file, in ``on_train_begin``. A
    callback that has ``state_dict()`` and ``load_state_dict(state)`` itself says what it remembers. What it keeps
    outside of itself, in a global, stays in its process.

    Attributes:
        params: "optimizer", and "epochs", their number.
        model: the model.
    """

    params: dict[str, Any]
    model: Any

    def __init__(self) -> None:
        self.params = {}
        self.model = None

    def on_train_begin(self) -> None:
        """Once in each engine: in the first before its first step, in a later one before it is given the weights."""

    def on_train_end(self) -> None:
        """After the last step, in the engines that are there then."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Before the first step of ``epoch``, which counts from 0."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """After the last step of ``epoch`` and its validation. ``save_model``: it is one of those after which the
        model's files are written (``checkpoint_freq``, and the last one); true in every engine."""


class LoggerCallback:
    """Receives the metrics of a training. Override what you need.

    As ``driver_logger_callback`` it is called in the driver with means over all engines and the epoch so far; as
    ``worker_logger_callback`` in each engine with the values of its own micro-batches of one step.

    A logger written for WMLA 1.2.x (``driver_logger``, ``worker_logger``) has instead
    ``log_train_metrics(loss, acc, completed_batch, worker=0)`` and ``log_test_metrics`` alike, accuracy in percent.
    """

    def on_train_begin(self) -> None:
        """Before the first step."""

    def on_train_end(self) -> None:
        """After the last step; also when the training is broken off."""

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        """After a training step. ``metrics``: "loss" and each metric by name. ``iteration``: in the driver the
        micro-batches over all engines so far, in an engine the step; ``epoch`` from 1; ``workers``: engines now."""

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        """After a validation; in the driver ``iteration`` is 0."""
