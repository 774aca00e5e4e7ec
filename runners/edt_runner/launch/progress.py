"""What a person at a terminal sees of a local training, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from edt_runner.lr_scaling.update import DETAILS
from edt_runner.protocol.data import MetricItem
from edt_runner.schedule.schedule import Schedule, StepKind

_PLAIN_SECONDS = 10.0


class TrainingProgress:
    """A bar with throughput and remaining time; without a terminal a line every ten seconds."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._console = Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._last_plain = time.monotonic()
        self._seconds, self._samples, self._rate = 0.0, 0.0, 0.0
        self._last: float | None = None
        """When the newest step was committed, by the clock of its engine."""
        self._step: int | None = None
        """The newest training step."""

    def __enter__(self) -> TrainingProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=16),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]} · {task.fields[engines]} · {task.fields[loss]}"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self._console,
            )
            self._task = self._bar.add_task(
                "", total=self._schedule.steps, epoch="–", rate="starting", engines="0 engines", loss=""
            )
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def observe(self, item: MetricItem, metrics: Mapping[str, float]) -> None:
        """Show one item of metrics from the first engine; ``metrics``: its metrics, with NaN for None."""
        values = " ".join(f"{name} {value:{_form(name)}}" for name, value in metrics.items())
        if item.phase != StepKind.TRAIN.value:
            self._last = item.time
            self._console.print(f"epoch {item.epoch}: test {values}", highlight=False)
            return
        self._count(item)
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=item.step,
                epoch=f"{item.epoch}/{self._schedule.epochs}",
                rate=self._speed() or "starting",
                engines=f"{item.workers} engine{'s' if item.workers > 1 else ''}",
                loss=f"loss {metrics['loss']:.4f}",
            )
        elif time.monotonic() - self._last_plain > _PLAIN_SECONDS:
            self._last_plain = time.monotonic()
            left = (self._schedule.steps - item.step) * self._schedule.global_batch
            speed = f"{self._speed()}, " if self._rate else ""
            remaining = f", {left / self._rate:.0f} s left" if self._rate else ""
            self._console.print(
                f"step {item.step}/{self._schedule.steps}, {speed}{item.workers} engines, {values}{remaining}",
                highlight=False,
            )

    def _speed(self) -> str:
        """Throughput in words; empty until a whole second was measured."""
        return f"{self._rate:,.0f} samples/s" if self._rate else ""

    def _count(self, item: MetricItem) -> None:
        """Measure throughput: samples of training steps over the seconds from the step before, of whatever kind."""
        before = self._step if self._step is not None and self._schedule.follows_engines else item.step - 1
        if self._last is not None:
            self._samples += (item.step - before) * self._schedule.global_batch
            self._seconds += max(0.0, item.time - self._last)
        self._step, self._last = item.step, item.time
        if self._seconds >= 1.0:
            self._rate = self._samples / self._seconds
            self._seconds, self._samples = 0.0, 0.0


def _form(name: str) -> str:
    """The format of a value: a metric, or what a learning-rate rule reports, which may be tiny or large."""
    return ".4g" if name in DETAILS else ".4f"
