"""``$RESULT_DIR/tensorboard/``: the course of a training as files of TensorBoard, which the driver writes.

``train/`` and ``validation/`` are two runs with the same tags, so that TensorBoard draws them in one chart: loss and
metrics by their names. The run of the training also has the details of its steps (``learning_rate``, …), ``workers``
and ``samples_per_second``. The step of a point counts training steps.

The package tensorboard gives the format: its record writer and its messages, whose import takes a tenth of a second.
``torch.utils.tensorboard`` and tensorboard's own writers are not used, because they import TensorFlow where that is
installed, and have no answer to a full disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edt_contract.durable import Outage, PatientLog
from edt_runner.course import Speed
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import StepKind

FOLDER = "tensorboard"
_POINT_SECONDS, _POINT_SHARE = 0.5, 1e-4
"""The shortest time between two points of training steps: half a second, or this share of the time since the first
item, so that ten days of training leave some 60,000 points in less than 20 MB."""
_HELD_BYTES = 1 << 20
"""Bytes of points that wait in memory if the disk is full. Later points are left out."""
_MISSING = (
    "No TensorBoard files are written: the package tensorboard is not installed (pip install 'openedt[tensorboard]')."
)


class TensorBoardFiles:
    """The files of one driver process. Each process adds a file to each run.

    Args:
        result_dir: folder of the results.
        attempt: number of the attempt, for the files' names.
        speed: measures the samples per second. It is given every item here.
        note: tells the user that nothing can be written.
    """

    def __init__(self, result_dir: str, attempt: int, speed: Speed, note: Callable[[str], None]) -> None:
        self._folder, self._attempt, self._speed, self._note = Path(result_dir) / FOLDER, attempt, speed, note
        self._runs: dict[str, _Run] | None = None
        """By phase; None: there was no item yet; empty: nothing can be written."""
        self._began = 0.0
        self._point = float("-inf")
        """The time of the newest point of a training step."""
        self._pending: tuple[MetricItem, Mapping[str, float]] | None = None
        """The newest training step, if there is no point of it."""

    def take(self, item: MetricItem, metrics: Mapping[str, float]) -> None:
        """Write the points that are due with this item.

        Args:
            item: a training step or a validation.
            metrics: its metrics as numbers, with NaN in place of None.
        """
        if self._runs is None:
            self._began = item.time
            self._runs = self._open(item)
        if not self._runs:
            return
        self._speed.add(item)
        if item.phase == StepKind.TRAIN.value:
            self._pending = item, metrics
            if item.time >= self._point + max(_POINT_SECONDS, _POINT_SHARE * (item.time - self._began)):
                self._write_pending()
        else:
            self._write_pending()
            self._runs[item.phase].add(item.step, item.time, metrics)

    def close(self) -> None:
        """Write the point of the newest training step, and close the files."""
        self._write_pending()
        for run in (self._runs or {}).values():
            run.close()

    def _open(self, first: MetricItem) -> dict[str, _Run]:
        """Begin a file of each run. What an earlier process has written about the steps from the first item's on is of
        another training, or was not acknowledged and comes again."""
        try:
            from tensorboard.compat.proto import event_pb2
            from tensorboard.summary.writer import record_writer
        except ImportError:
            self._note(_MISSING)
            return {}
        trains = first.phase == StepKind.TRAIN.value
        name = f"events.out.tfevents.{int(first.time):010d}.attempt-{self._attempt}"
        runs = {
            phase.value: _Run(self._folder / folder / name, event_pb2, record_writer.RecordWriter)
            for phase, folder in ((StepKind.TRAIN, "train"), (StepKind.VALIDATE, "validation"))
        }
        runs[StepKind.TRAIN.value].begin(first.time, first.step if trains else first.step + 1)
        runs[StepKind.VALIDATE.value].begin(first.time, first.step)
        return runs

    def _write_pending(self) -> None:
        if self._pending is None or not self._runs:
            return
        (item, metrics), self._pending = self._pending, None
        self._point = item.time
        values = {**metrics, "workers": float(item.workers)}
        rate = self._speed.recent()
        if rate is not None:
            values["samples_per_second"] = rate
        self._runs[item.phase].add(item.step, item.time, values)


class _Run:
    """A file of one run.

    Args:
        path: the file.
        messages: the module of the message ``Event``.
        writer: tensorboard's class that writes records.
    """

    def __init__(self, path: Path, messages: Any, writer: Any) -> None:
        self._messages = messages
        self._log = PatientLog(path, most=2 * _HELD_BYTES)
        self._waiting = 0
        """Bytes that wait for room on the disk."""
        self._outage = Outage(f"the file {path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))
        self._records = writer(self)

    def begin(self, time: float, anew: int) -> None:
        """Write the head of the file. Points of earlier files from step ``anew`` on no longer count."""
        event = self._messages.Event
        status = self._messages.SessionLog(status=self._messages.SessionLog.START)
        self._records.write(event(wall_time=time, file_version="brain.Event:2").SerializeToString())
        self._records.write(event(wall_time=time, step=anew, session_log=status).SerializeToString())

    def add(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """Write one point of each value, by its name."""
        summary = {"value": [{"tag": name, "simple_value": value} for name, value in values.items()]}
        self._records.write(self._messages.Event(wall_time=time, step=step, summary=summary).SerializeToString())

    def write(self, data: bytes) -> None:
        """Append a record: the record writer calls this."""
        if not self._log.flush():
            if self._waiting + len(data) > _HELD_BYTES:
                return
            self._waiting += len(data)
        else:
            self._waiting = 0
        self._log.write(data)
        if self._log.error is not None:
            self._outage.failed(self._log.error)
        else:
            self._outage.worked()

    def close(self) -> None:
        self._log.close()
