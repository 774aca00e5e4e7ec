"""What a training without a platform shows on standard error while it goes on."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from edt_runner.course import SEPARATOR, Course, Speed, number, span, workers
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import StepKind

_PLAIN_SECONDS = 10.0


class TrainingProgress:
    """Shows a bar with throughput, loss and remaining time, and above it a line for each validation and each change of
    the number of workers. Without a terminal, it prints the lines of the readable log, one about every ten seconds.

    Args:
        speed: measures the samples per second; it is given every item here.
    """

    def __init__(self, speed: Speed) -> None:
        self._speed, self._schedule = speed, speed.schedule
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._course: Course

    def __enter__(self) -> TrainingProgress:
        terminal = self._console.is_terminal
        self._course = Course(self._speed, None if terminal else _PLAIN_SECONDS)
        if terminal:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=16),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]} · {task.fields[workers]} · {task.fields[loss]}"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self._console,
            )
            self._task = self._bar.add_task(
                "", total=self._schedule.steps, epoch="–", rate="starting", workers=workers(0), loss=""
            )
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def observe(self, item: MetricItem, metrics: Mapping[str, float]) -> None:
        """Show one item of metrics from the first engine. ``metrics`` holds its metrics, with NaN in place of None."""
        lines = [line.text for line in self._course.take(item, metrics)]
        rate = self._speed.recent()
        left = self._speed.left(item.step)
        for line in lines:
            more = ""
            if left and rate is not None and self._bar is None and "→" not in line:  # a line about a step
                more = f"{SEPARATOR}{span(left / rate)} left"
            self._console.print(line + more, highlight=False, markup=False, soft_wrap=True)
        if self._bar is not None and item.phase == StepKind.TRAIN.value:
            self._bar.update(
                self._task,
                completed=item.step,
                epoch=f"{item.epoch}/{self._schedule.epochs}",
                rate="starting" if rate is None else f"{number(rate, 3)} samples/s",
                workers=workers(item.workers),
                loss=f"loss {number(metrics['loss'])}",
            )
