"""What one training of an emulation leaves: its shape, every update, every validation, the digest of its end. Room:
runners; one file.

Written by the process that drives the training, line by line, and read by ``edt emulate`` meanwhile:

    {"begin": {"schedule": {…}, "batch_size": 16, "reference": 64, "per_engine": false}}
    {"phase": "train", "step": 4, "epoch": 1, "metrics": {"loss": 2.31, "batch": 64, "learning_rate": 0.1, …}}
    {"phase": "validate", "step": 90, "epoch": 1, "metrics": {"loss": 0.4, "accuracy": 0.9}}
    {"end": {"digest": "…"}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from edt_runner.engine.schedule import Schedule, TickKind

Observe = Callable[[Mapping[str, Any]], None]

_KEPT = ("phase", "step", "epoch")


class Recorder:
    """Writes it to ``path``; None: nowhere. ``shape``: what ``begin`` holds."""

    def __init__(self, path: Path | None, shape: Mapping[str, Any]) -> None:
        self._file: TextIO | None = path.open("w", buffering=1) if path is not None else None
        self._write({"begin": dict(shape)})

    def beside(self, observe: Observe) -> Observe:
        """What takes in an item of metrics and then gives it to ``observe``."""

        def both(item: Mapping[str, Any]) -> None:
            if self._file is not None:
                metrics = {name: value if math.isfinite(value) else None for name, value in item["metrics"].items()}
                self._write({**{name: item[name] for name in _KEPT}, "metrics": metrics})
            observe(item)

        return both

    def end(self, digest: str) -> None:
        """The training is over."""
        self._write({"end": {"digest": digest}})
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Point:
    """An update, or a validation. ``step``: micro-batches of training behind it. A metric that is no number is NaN."""

    step: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass
class Record:
    """What has been read so far."""

    shape: Mapping[str, Any] | None = None
    updates: list[Point] = field(default_factory=list)
    validations: list[Point] = field(default_factory=list)
    digest: str | None = None

    @property
    def schedule(self) -> Schedule:
        """Legal once there is a shape."""
        assert self.shape is not None
        return Schedule.from_json_object(self.shape["schedule"])

    def take(self, line: str) -> None:
        """One whole line of it."""
        data = json.loads(line)
        if "begin" in data:
            self.shape = data["begin"]
        elif "end" in data:
            self.digest = data["end"]["digest"]
        else:
            metrics = {name: math.nan if value is None else float(value) for name, value in data["metrics"].items()}
            point = Point(data["step"], data["epoch"], metrics)
            (self.updates if data["phase"] == TickKind.TRAIN.value else self.validations).append(point)


class Reader:
    """Follows a file that may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.record = Record()

    def read(self) -> Record:
        """Take in what has come since the last call; of a line that is half written, nothing."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return self.record
        for line in whole.splitlines():
            self.record.take(line.decode())
        self._offset += len(whole) + len(newline)
        return self.record
