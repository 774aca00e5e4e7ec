"""The log that WMLA's tools read: one line a step in ``$LOG_DIR/stdout``. Room: runners; files only.

A tab follows each comma. Global steps count updates; the iteration counts micro-batches over all workers.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from edt_runner.scaling.update import DETAILS
from edt_runner.storage import Outage, PatientLog

_TAIL_BYTES = 1 << 16
_HELD_BYTES = 4 << 20
"""Some ten thousand lines, which wait in memory where the disk is full."""


class ELog:
    """The default driver logger."""

    def __init__(self, log_dir: str, logical_workers: int, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._workers, self._clock = Path(log_dir) / "stdout", logical_workers, clock
        self._log: PatientLog | None = None
        self._outage = Outage(f"the log {self._path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))

    def on_train_begin(self) -> None:
        self._log = PatientLog(self._path, most=_HELD_BYTES)
        self._log.write(b"")

    def last_step(self) -> int:
        """The newest global step that an earlier process wrote; 0: none."""
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
            self._say(self._log)

    def _say(self, log: PatientLog) -> None:
        if log.error is not None:
            self._outage.failed(log.error)
        else:
            self._outage.worked()


def _values(metrics: dict[str, float]) -> list[str]:
    accuracy = metrics.get("accuracy", 0.0)
    return [
        f"Loss: {metrics['loss']:.5f}",
        f"Accuracy: {accuracy:.5f}".rstrip("0").ljust(len("Accuracy: 0.0"), "0"),
    ]


def _details(metrics: dict[str, float]) -> list[str]:
    """Of a learning-rate rule, where there is one; WMLA's lines end before them."""
    return [f"{name.replace('_', ' ').capitalize()}: {metrics[name]:.6g}" for name in DETAILS if name in metrics]
