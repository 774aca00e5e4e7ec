"""The interface of a metrics logger, and the driver's default logger, which writes the log that WMLA's tools read."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

from edt_contract.durable import Outage, PatientLog
from edt_runner.lr_scaling.update import DETAILS

_TAIL_BYTES = 1 << 16
_HELD_BYTES = 4 << 20
"""Bytes of log lines (some ten thousand lines) that wait in memory if the disk is full."""


class Logger(Protocol):
    """WMLA's logger callback (version 4.x). ``workers`` is the number of engines that shared the step. ``iteration``
    counts micro-batches in the driver's logger."""

    def on_train_begin(self) -> None: ...
    def on_train_end(self) -> None: ...
    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None: ...
    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...


class ELog:
    """The default driver logger. It writes one line for each training step and each validation to ``$LOG_DIR/stdout``.

    A tab follows each comma. "Global steps" counts training steps. "Iteration" counts micro-batches over all engines.

    Args:
        log_dir: folder of the log.
        micro_batches: number of micro-batches of a step.
        clock: returns wall-clock seconds since the epoch.
    """

    def __init__(self, log_dir: str, micro_batches: int, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._workers, self._clock = Path(log_dir) / "stdout", micro_batches, clock
        self._log: PatientLog | None = None
        self._outage = Outage(f"the log {self._path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))

    def on_train_begin(self) -> None:
        self._log = PatientLog(self._path, most=_HELD_BYTES)
        self._log.write(b"")

    def last_step(self) -> int:
        """Return the newest training step that an earlier process has written; 0: there is none."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
                found = re.findall(rb"Train,.*Global steps: (\d+)", file.read())
        except OSError:
            return 0
        return int(found[-1]) if found else 0

    def on_train_end(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        steps = iteration // self._workers
        self._write(
            "Train", [f"Global steps: {steps}", f"Iteration: {iteration}", *_values(metrics), *_details(metrics)]
        )

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self._write("Test", _values(metrics))

    def _write(self, tag: str, fields: list[str]) -> None:
        now = self._clock()
        stamp = datetime.fromtimestamp(now).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - local time, as WMLA's
        if self._log is not None:
            line = ",\t".join([f"[{stamp}] {tag}", f"Timestamp: {int(now * 1000)}", *fields]) + "\n"
            self._log.write(line.encode())
            if self._log.error is not None:
                self._outage.failed(self._log.error)
            else:
                self._outage.worked()


def _values(metrics: dict[str, float]) -> list[str]:
    accuracy = metrics.get("accuracy", 0.0)
    return [
        f"Loss: {metrics['loss']:.5f}",
        f"Accuracy: {accuracy:.5f}".rstrip("0").ljust(len("Accuracy: 0.0"), "0"),
    ]


def _details(metrics: dict[str, float]) -> list[str]:
    """Return the fields of a learning-rate rule, if there is one. WMLA's own lines do not have these fields."""
    return [f"{name.replace('_', ' ').capitalize()}: {metrics[name]:.6g}" for name in DETAILS if name in metrics]
