"""The log that WMLA's tools read: one line a step in ``$LOG_DIR/stdout``. Room: runners; files only.

A tab follows each comma. Global steps count updates; the iteration counts micro-batches over all workers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from edt_runner.scaling.update import DETAILS

_TAIL_BYTES = 1 << 16


class ELog:
    """The default driver logger."""

    def __init__(self, log_dir: str, logical_workers: int, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._workers, self._clock = Path(log_dir) / "stdout", logical_workers, clock
        self._file: TextIO | None = None

    def on_train_begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("a", buffering=1)

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
        if self._file is not None:
            self._file.close()
            self._file = None

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
        if self._file is not None:
            self._file.write(",\t".join([f"[{stamp}] {tag}", f"Timestamp: {int(now * 1000)}", *fields]) + "\n")


def _values(metrics: dict[str, float]) -> list[str]:
    accuracy = metrics.get("accuracy", 0.0)
    return [
        f"Loss: {metrics['loss']:.5f}",
        f"Accuracy: {accuracy:.5f}".rstrip("0").ljust(len("Accuracy: 0.0"), "0"),
    ]


def _details(metrics: dict[str, float]) -> list[str]:
    """Of a learning-rate rule, where there is one; WMLA's lines end before them."""
    return [f"{name.replace('_', ' ').capitalize()}: {metrics[name]:.6g}" for name in DETAILS if name in metrics]
