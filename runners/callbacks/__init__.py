"""``from callbacks import LoggerCallback``: WMLA's base class for loggers. Room: runners; touches nothing.

Nothing of ours imports this module by its top name: a user's own ``callbacks.py`` may stand before it.
"""

from __future__ import annotations

__all__ = ["LoggerCallback"]


class LoggerCallback:
    """Receives the metrics of a training. Override what you need.

    As ``driver_logger_callback`` it is called in the driver with means over all engines and the epoch so far; as
    ``worker_logger_callback`` in each engine with the values of its own micro-batches of one step.
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
