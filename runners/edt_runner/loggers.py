"""The interface of a metrics logger, and the driver's default logger, which writes the two logs that WMLA's tools read:
``$LOG_DIR/stdout`` and ``$LOG_DIR/evaluation-metrics.txt``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from edt_contract.durable import Outage, PatientLog
from edt_runner import evaluation_metrics
from edt_runner.lr_scaling.update import STEP_DETAILS

_TAIL_BYTES = 1 << 16
_HELD_BYTES = 4 << 20
"""Bytes of log lines (some ten thousand lines) that wait in memory if the disk is full."""
_RECORD_SECONDS = 0.5
"""Seconds between two lines of evaluation-metrics.txt about training steps."""
_TRAIN_ROW = re.compile(rb"\] Train,\s*Timestamp: (\d+),\s*Global steps: (\d+)(?:,\s*Iteration: (\d+))?")


class Logger(Protocol):
    """WMLA's logger callback (version 4.x). ``workers`` is the number of engines that shared the step. ``iteration``
    counts micro-batches in the driver's logger."""

    def on_train_begin(self) -> None: ...
    def on_train_end(self) -> None: ...
    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None: ...
    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...


def accuracy(metrics: Mapping[str, float]) -> float:
    """Return the accuracy as a fraction: the metric of that name, or else the first metric; 0 if there is no metric.

    Args:
        metrics: values by name, with the loss and the details of a learning-rate rule.
    """
    others = {name: value for name, value in metrics.items() if name != "loss" and name not in STEP_DETAILS}
    named = next((value for name, value in others.items() if "acc" in name.lower()), None)
    return float(named if named is not None else next(iter(others.values()), 0.0))


@dataclass(frozen=True)
class NewestRow:
    """The row of the newest training step in a log."""

    steps: int = 0
    """Training steps; 0: there is no such row."""
    iteration: int = 0
    """Micro-batches over all engines."""
    time: float = 0.0
    """When it was written, in seconds since the epoch."""
    validated: bool = False
    """Whether the row of a validation follows."""


class ELog:
    """The default driver logger. It writes a row for each training step and each validation to ``$LOG_DIR/stdout``.

    A tab follows each comma. "Global steps" counts training steps. "Iteration" counts micro-batches over all engines.
    All rows of a job have the same columns, because WMLA's notebooks read them as a CSV. The row of a validation has
    the step, the iteration and the details of the newest training step.

    ``$LOG_DIR/evaluation-metrics.txt`` gets a line for each validation, for the training step before it, and for one
    training step every half second.

    Args:
        log_dir: folder of the logs.
        micro_batches: number of micro-batches of a step.
        details: names of further columns. The column of a value that is not known is 0.
        clock: returns wall-clock seconds since the epoch.
    """

    def __init__(
        self,
        log_dir: str,
        micro_batches: int,
        *,
        details: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._workers, self._clock = Path(log_dir) / "stdout", micro_batches, clock
        self._log: PatientLog | None = None
        self._records = PatientLog(self._path.with_name(evaluation_metrics.FILE_NAME), most=_HELD_BYTES)
        self._outage = Outage(f"the log {self._path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))
        self.before = NewestRow()
        """What earlier processes had written when this process's training began."""
        self._newest = (0, 0)
        """Global steps and iteration of the newest training step."""
        self._details = dict.fromkeys(details, 0.0)
        """The further columns, with the values of the newest training step."""
        self._unrecorded: dict[str, float] | None = None
        """Metrics of the newest training step, if evaluation-metrics.txt has no line of it."""
        self._recorded_at = float("-inf")

    def on_train_begin(self) -> None:
        self._log = PatientLog(self._path, most=_HELD_BYTES)
        self._log.write(b"")
        self.before = self._read_newest()
        self._newest = (self.before.steps, self.before.iteration)

    def _read_newest(self) -> NewestRow:
        """Return what the log says about the newest training step that a process has written."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                tail = file.read()
        except OSError:
            return NewestRow()
        rows = list(_TRAIN_ROW.finditer(tail))
        if not rows:
            return NewestRow()
        newest, steps = rows[-1], int(rows[-1][2])
        iteration = int(newest[3] or steps * self._workers)
        return NewestRow(steps, iteration, int(newest[1]) / 1000, b"] Test," in tail[newest.end() :])

    def on_train_end(self) -> None:
        if self._log is not None:
            self._record_newest()
            self._records.close()
            self._log.close()
            self._log = None

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        self._newest = (iteration // self._workers, iteration)
        self._details = {name: metrics.get(name, 0.0) for name in self._details}
        self._unrecorded = metrics
        self._write("Train", metrics)
        if self._clock() >= self._recorded_at + _RECORD_SECONDS:
            self._record_newest()

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self._write("Test", metrics)
        self._record_newest()
        self._record(evaluation_metrics.TEST_GROUP, metrics)

    def _write(self, tag: str, metrics: Mapping[str, float]) -> None:
        if self._log is None:
            return
        now = self._clock()
        stamp = datetime.fromtimestamp(now).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - local time, as WMLA's
        steps, iteration = self._newest
        fields = [
            f"[{stamp}] {tag}",
            f"Timestamp: {int(now * 1000)}",
            f"Global steps: {steps}",
            f"Iteration: {iteration}",
            f"Loss: {metrics['loss']:.5f}",
            f"Accuracy: {accuracy(metrics):.5f}".rstrip("0").ljust(len("Accuracy: 0.0"), "0"),
            *(f"{name.replace('_', ' ').capitalize()}: {value:.6g}" for name, value in self._details.items()),
        ]
        self._log.write((",\t".join(fields) + "\n").encode())
        if self._log.error is not None:
            self._outage.failed(self._log.error)
        else:
            self._outage.worked()

    def _record_newest(self) -> None:
        if self._unrecorded is not None:
            self._record(evaluation_metrics.TRAIN_GROUP, self._unrecorded)
            self._unrecorded, self._recorded_at = None, self._clock()

    def _record(self, group: str, metrics: Mapping[str, float]) -> None:
        if self._log is not None:
            line = evaluation_metrics.line(group, self._newest[1], metrics, clock=self._clock)
            self._records.write(line.encode())
