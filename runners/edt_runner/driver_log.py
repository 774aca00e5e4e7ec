"""What a driver writes about the metrics that engines send: the logger's rows, lines on standard output, validations,
the readable log, files of TensorBoard.

Engines send items again that may not have arrived, and a driver may be started again, so each item is looked at first:
it is written only if no driver has written it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping

from edt_contract.attempt import AttemptSpec
from edt_runner.course import Course, Speed
from edt_runner.loggers import ELog, NewestRow
from edt_runner.lr_scaling.update import DETAILS
from edt_runner.protocol.data import MetricItem
from edt_runner.readable_log import ReadableLog
from edt_runner.schedule import StepKind
from edt_runner.step_lines import DriverLines
from edt_runner.tensorboard_files import TensorBoardFiles
from edt_runner.training import Training
from edt_runner.validation_history import ValidationHistory

Observer = Callable[[MetricItem, Mapping[str, float]], None]


class DriverLog:
    """The logs of a driver's training.

    Args:
        training: the training.
        spec: the attempt.
        observe: is called with each new item of metrics, and with its metrics as numbers (NaN in place of None).
        lines: writes lines about the training to standard output; None: nobody does.
    """

    def __init__(self, training: Training, spec: AttemptSpec, observe: Observer, lines: DriverLines | None) -> None:
        self._training, self._observe, self._lines = training, observe, lines
        self._logger = training.request.driver_logger or ELog(
            spec.log_dir, training.schedule.micro_batches, details=DETAILS if training.request.lr_rule else ()
        )
        self._validations = ValidationHistory(spec.result_dir)
        self._readable = ReadableLog(spec.log_dir, Course(Speed.of(training)), spec.fence)
        self._board = TensorBoardFiles(spec.result_dir, spec.fence, Speed.of(training), self.note)
        self._written: dict[str, int] | None = None
        """The newest training step that is written, and the newest whose validation is, by phase; None: not known until
        the first item arrives (``_written_before``)."""

    def begin(self, resumed_at: int | None = None) -> None:
        """Open the logs. The training begins, or goes on.

        Args:
            resumed_at: training steps of the checkpoint that it is resumed from; None: from none.
        """
        self._logger.on_train_begin()
        self._readable.begin(resumed_at)
        if self._lines is not None:
            if isinstance(self._logger, ELog):  # nothing may be left to arrive here, if an earlier driver has it all
                before = self._logger.before
                self._lines.iterations = before.iteration
                self._lines.epochs = before.steps // self._training.schedule.steps_per_epoch
            self._lines.begin()

    def note(self, text: str) -> None:
        """Tell the user something: on standard error, and in the readable log."""
        print(text, file=sys.stderr)
        self._readable.note(text)

    def finished(self) -> None:
        """Note that the training has come to its end. ``close`` is called as well."""
        self._readable.finished()
        if self._lines is not None:
            self._lines.end()

    def broke_off(self, error: Exception | SystemExit) -> None:
        """Note why the training has not come to its end. ``close`` is called as well."""
        self._readable.broke_off(error)

    def close(self) -> None:
        """Close the logs, however the training has ended."""
        self._logger.on_train_end()
        self._readable.close()
        self._board.close()

    def take(self, items: Iterable[MetricItem]) -> None:
        """Write the items that are new."""
        for item in items:
            if self._is_new(item):
                self._write(item)
        if self._lines is not None:
            self._lines.flush()

    def _is_new(self, item: MetricItem) -> bool:
        if self._written is None:
            self._written = self._written_before(item)
        if item.step <= self._written[item.phase]:
            return False
        self._written[item.phase] = item.step
        return True

    def _written_before(self, item: MetricItem) -> dict[str, int]:
        """Return the steps that previous drivers have written, by phase. ``item`` is the first that arrived here."""
        schedule, width = self._training.schedule, self._training.widths.at(0, engines=1)
        before = self._logger.before if isinstance(self._logger, ELog) else NewestRow()
        first = item.phase == StepKind.TRAIN.value and item.step <= schedule.at(0, width).training_steps_after
        if first and item.time > before.time:  # else this is the same step, sent again
            self._validations.begin_anew()
            before = NewestRow()
        # Rows are in order, so the log has the validations of all steps before its newest one.
        validated = before.steps if before.validated else max(0, before.steps - 1)
        return {StepKind.TRAIN.value: before.steps, StepKind.VALIDATE.value: validated}

    def _write(self, item: MetricItem) -> None:
        metrics = {name: math.nan if value is None else value for name, value in item.metrics.items()}
        self._observe(item, metrics)
        self._readable.take(item, metrics)
        self._board.take(item, metrics)
        if item.phase == StepKind.TRAIN.value:
            self._logger.log_train_metrics(metrics, item.iteration, item.epoch, item.workers)
            if self._lines is not None:
                epochs = item.step // self._training.schedule.steps_per_epoch
                self._lines.train(item.time, item.iteration, epochs, metrics)
        else:
            self._logger.log_test_metrics(metrics, 0, item.epoch)
            self._validations.add(item.step, metrics)
            if self._lines is not None:
                self._lines.test(item.iteration, metrics)
