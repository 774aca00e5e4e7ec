"""The log that WMLA's tools read: one line a step in ``$LOG_DIR/stdout``. Room: runners; files only.

A tab follows each comma. Global steps count updates; the iteration counts micro-batches over all workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO


class ELog:
    """The default driver logger."""

    def __init__(self, log_dir: str, logical_workers: int, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._workers, self._clock = Path(log_dir) / "stdout", logical_workers, clock
        self._file: TextIO | None = None

    def on_train_begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", buffering=1)

    def on_train_end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        steps = iteration // self._workers
        self._write("Train", [f"Global steps: {steps}", f"Iteration: {iteration}", *_values(metrics)])

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self._write("Test", _values(metrics))

    def _write(self, tag: str, fields: list[str]) -> None:
        now = self._clock()
        stamp = datetime.fromtimestamp(now).strftime("%Y-%m-%d %H:%M:%S")  # noqa: DTZ006 - local time, as WMLA's
        if self._file is not None:
            self._file.write(",\t".join([f"[{stamp}] {tag}", f"Timestamp: {int(now * 1000)}", *fields]) + "\n")


def _values(metrics: dict[str, float]) -> list[str]:
    accuracy = metrics.get("accuracy", 0.0)
    return [
        f"Loss: {metrics['loss']:.5f}",
        f"Accuracy: {accuracy:.5f}".rstrip("0").ljust(len("Accuracy: 0.0"), "0"),
    ]
