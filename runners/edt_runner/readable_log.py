"""``$LOG_DIR/training.log``: the course of a training for people, which the driver writes beside the log for WMLA's
tools:

    2026-11-26
    14:30:05  started: 20 epochs, 400 steps of 64 samples · attempt 1
    14:30:09  epoch 1/20 · step 1/400 · loss 2.31 · 1 worker
    14:30:12  1 → 2 workers at step 14
    14:30:13  epoch 1/20 · step 20/400 · loss 1.87 · val_accuracy 0.55 · 680/s · 2 workers
    14:33:17  note: All engines' replicas were compared 20 times, last at step 400: they were equal.
    14:33:17  done: 20 epochs, 400 steps in 3 min 12 s, 655 samples/s on average

Times are local. A line with the date stands before the first line of a process and where a day begins.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from edt_contract.durable import Outage, PatientLog
from edt_runner.course import Course, Line, counted, number, span
from edt_runner.errors import Suspended
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import StepKind

FILE_NAME = "training.log"
_HELD_BYTES = 1 << 20
"""Bytes of lines (some ten thousand lines) that wait in memory if the disk is full."""
_INDENT = " " * len("14:30:05  ")
_BEGIN = re.compile(r"\d\d:\d\d:\d\d  (started: |resumed |the driver ).* · attempt (\d+)$")
_STEP = re.compile(r"\d\d:\d\d:\d\d  epoch [\d,]+/[\d,]+ · step ([\d,]+)/(.* · val_)?")


class ReadableLog:
    """The log of one driver process.

    Args:
        log_dir: folder of the log.
        course: makes the lines about steps.
        attempt: number of the attempt. By it a driver that is started again knows that the training went on.
        clock: returns wall-clock seconds since the epoch.
    """

    def __init__(self, log_dir: str, course: Course, attempt: int, *, clock: Callable[[], float] = time.time) -> None:
        path = Path(log_dir) / FILE_NAME
        self._path, self._course, self._attempt, self._clock = path, course, attempt, clock
        self._log = PatientLog(path, most=_HELD_BYTES)
        self._outage = Outage(f"the log {path}", lambda news: print(f"edt: {news}", file=sys.stderr, flush=True))
        self._notes: list[str] | None = []
        """Notes that came before the training began; None: it has begun."""
        self._began = clock()
        self._before: int | None = 0
        """Training steps that were complete when this process took the training up; None: it is not known yet."""
        self._written = (0, False)
        """The newest training step about which a previous process has written, and whether about its validation."""
        self._day = ""

    def begin(self, resumed_at: int | None) -> None:
        """Write that the training begins or goes on, and the notes that came before.

        Args:
            resumed_at: training steps of the checkpoint that it is resumed from; None: from none.
        """
        self._began = self._clock()
        attempt, self._written = self._read()
        notes, self._notes = self._notes or [], None
        schedule = self._course.schedule
        if attempt == self._attempt:
            self._before = None
            self._write(f"the driver was started again; the training went on · attempt {attempt}")
            return
        if resumed_at is not None:
            self._before = resumed_at
            what = f"resumed from step {resumed_at:,} of {schedule.steps:,}"
        else:
            self._written = (0, False)
            size = counted(round(self._course.speed.full_step), "sample")
            each = ", one for each worker" if schedule.follows_engines else ""
            what = f"started: {counted(schedule.epochs, 'epoch')}, {counted(schedule.steps, 'step')} of {size}{each}"
        self._write(f"{what} · attempt {self._attempt}")
        for note in notes:
            self.note(note)

    def note(self, text: str) -> None:
        """Write a note for the user. Before ``begin`` it is kept until then."""
        if self._notes is not None:
            self._notes.append(text)
        else:
            self._write(f"note: {text}")

    def take(self, item: MetricItem, metrics: Mapping[str, float]) -> None:
        """Write the lines that are due with this item, unless a previous process has written about its step.

        Args:
            item: a training step or a validation.
            metrics: its metrics as numbers, with NaN in place of None.
        """
        trains = item.phase == StepKind.TRAIN.value
        if self._before is None:
            self._before = item.step - 1 if trains else item.step
        for line in self._course.take(item, metrics):
            if (item.step, not trains) > self._written:
                self._write_line(line)

    def finished(self) -> None:
        """Write that the training has come to its end."""
        schedule, newest = self._course.schedule, self._course.newest
        self._write_rest()
        step = newest.step if newest is not None else self._written[0] or schedule.steps
        if step < schedule.steps and newest is not None:
            epoch = f"epoch {newest.epoch:,} of {schedule.epochs:,}"
            what = f"ended early at {epoch}: {step:,} of {counted(schedule.steps, 'step')}"
        else:
            what = f"done: {counted(schedule.epochs, 'epoch')}, {counted(schedule.steps, 'step')}"
        if newest is not None:
            own = step - (self._before or 0)
            took = span(self._clock() - self._began)
            what += f", the last {own:,} in {took}" if self._before else f" in {took}"
        average = self._course.speed.average
        self._write(what + (f", {number(average, 3)} samples/s on average" if average is not None else ""))

    def broke_off(self, error: Exception | SystemExit) -> None:
        """Write why the training did not come to its end."""
        newest, schedule = self._course.newest, self._course.schedule
        self._write_rest()
        where = f"after step {newest.step:,} of {schedule.steps:,}" if newest is not None else "before another step"
        if isinstance(error, Suspended):
            self._write(f"suspended {where}: all engines have left; it goes on from its checkpoint")
        else:
            self._write(f"failed {where}: {str(error).strip() or type(error).__name__}")

    def close(self) -> None:
        """Write what waits for room on the disk, and close the file."""
        self._write_rest()
        self._log.close()

    def _write_rest(self) -> None:
        for line in self._course.rest():
            self._write_line(line)

    def _write(self, text: str) -> None:
        self._write_line(Line(self._clock(), text))

    def _write_line(self, line: Line) -> None:
        when = datetime.fromtimestamp(line.time)  # noqa: DTZ006 - local time, as in WMLA's log
        text = f"{when:%H:%M:%S}  " + line.text.strip().replace("\n", f"\n{_INDENT}") + "\n"
        day = f"{when:%Y-%m-%d}\n"
        self._log.write(((day if day != self._day else "") + text).encode())
        self._day = day
        if self._log.error is not None:
            self._outage.failed(self._log.error)
        else:
            self._outage.worked()

    def _read(self) -> tuple[int, tuple[int, bool]]:
        """Return the newest attempt that a process has written about, 0 if there is none, and how far it was
        (``_written``)."""
        attempt, written = 0, (0, False)
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    if found := _BEGIN.match(line.rstrip("\n")):
                        attempt = int(found[2])
                        written = (0, False) if found[1] == "started: " else written
                    elif found := _STEP.match(line):
                        written = max(written, (int(found[1].replace(",", "")), found[2] is not None))
        except OSError:
            pass
        return attempt, written
