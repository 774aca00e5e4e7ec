"""The course of a training in words, for logs and terminals that people read:

    epoch 3/20 · step 52/400 · loss 0.3312 · accuracy 0.94 · 680/s · 2 workers
    2 → 4 workers at step 57
    epoch 3/20 · step 60/400 · loss 0.3104 · accuracy 0.945 · val_loss 0.35 · val_accuracy 0.93 · 1,290/s · 4 workers

Loss and metrics of training are over the epoch so far, those of a validation (``val_``) over the test set. Samples per
second count training only: the time of a validation does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from edt_runner.protocol.data import MetricItem
from edt_runner.schedule import Schedule, StepKind
from edt_runner.training import Training

SEPARATOR = " · "
_RATE_SECONDS = 1.0
"""The shortest time over which samples per second are measured."""
_FREE_LINES, _LINE_SECONDS = 1000, 1.0
"""Each end of an epoch and each validation has a line, so many times; after that, one in so many seconds has. Otherwise
a training with epochs of a few milliseconds would fill the log."""


class Speed:
    """Measures the samples per second of a training from the items of its steps.

    Args:
        schedule: schedule of the training.
        unit_samples: samples of one unit of the schedule (``Samples.units_per_batch``).
    """

    def __init__(self, schedule: Schedule, unit_samples: float = 1.0) -> None:
        self.schedule, self._unit = schedule, unit_samples
        self._step: int | None = None
        """The newest training step."""
        self._last: float | None = None
        """When the newest step was committed, in seconds, by the clock of the engine that committed it."""
        self._samples, self._seconds = 0.0, 0.0
        """Of the whole training since the first item."""
        self._from = (0.0, 0.0)
        """Samples and seconds at which the current measurement of the recent speed began."""
        self._rate: float | None = None

    @classmethod
    def of(cls, training: Training) -> Speed:
        """Return a measurement of this training."""
        return cls(training.schedule, training.request.batch_size / training.schedule.batch_size)

    def add(self, item: MetricItem) -> None:
        """Take an item: the samples of a training step, and the time since the previous step of either kind."""
        if item.phase == StepKind.TRAIN.value:
            before = self._step if self._step is not None and self.schedule.follows_engines else item.step - 1
            if self._last is not None:
                self._samples += self._after(item.step) - self._after(before)
                self._seconds += max(0.0, item.time - self._last)
            self._step = item.step
        self._last = item.time

    def _after(self, steps: int) -> float:
        """Samples of the first ``steps`` training steps."""
        schedule = self.schedule
        epochs, within = divmod(steps, schedule.steps_per_epoch)
        units = epochs * schedule.train_samples + min(within * schedule.global_batch, schedule.train_samples)
        return units * self._unit

    def left(self, step: int) -> float:
        """Return the number of samples that are left after training step ``step``."""
        return self._after(self.schedule.steps) - self._after(step)

    def recent(self) -> float | None:
        """Return the speed since the last call that measured; None: less than a second was ever measured."""
        samples, seconds = self._samples - self._from[0], self._seconds - self._from[1]
        if seconds >= _RATE_SECONDS - 1e-9:
            self._rate, self._from = samples / seconds, (self._samples, self._seconds)
        return self._rate

    @property
    def full_step(self) -> float:
        """Samples of a full training step."""
        return self.schedule.global_batch * self._unit

    @property
    def average(self) -> float | None:
        """The speed since the first item; None: there is no time to measure it over."""
        return self._samples / self._seconds if self._seconds > 0 else None


@dataclass(frozen=True)
class Line:
    """A line about the training, and when it happened, in seconds since the epoch."""

    time: float
    text: str


class Course:
    """Makes lines of the items of a training.

    The first training step, each end of an epoch, each validation and each change of the number of workers has a line.
    Between these there is one line in ``every`` seconds. The end of an epoch and the validation that follows it share
    one.

    Args:
        speed: measures the samples per second; it is given every item here.
        every: seconds; None: only validations and changes of the number of workers have lines.
    """

    def __init__(self, speed: Speed, every: float | None = 5.0) -> None:
        self.schedule, self.speed, self._every = speed.schedule, speed, every
        self.newest: MetricItem | None = None
        """The newest training step."""
        self._pending: tuple[MetricItem, Mapping[str, float]] | None = None
        """The newest training step and its values, if no line has them."""
        self._workers: int | None = None
        self._lines = 0
        self._shown = float("-inf")
        """The time of the newest line."""

    def take(self, item: MetricItem, metrics: Mapping[str, float]) -> list[Line]:
        """Return the lines that are due with this item.

        Args:
            item: a training step or a validation.
            metrics: its metrics as numbers, with NaN in place of None.
        """
        self.speed.add(item)
        lines = []
        if self._workers is not None and self._workers != item.workers:
            lines.append(Line(item.time, f"{self._workers} → {workers(item.workers)} at step {item.step}"))
        self._workers = item.workers
        if item.phase != StepKind.TRAIN.value:
            if self._has_room(item):
                lines.append(self._line(item, metrics))
            return lines
        self.newest, self._pending = item, (item, metrics)
        ends = item.step % self.schedule.steps_per_epoch == 0
        if self._every is None or (ends and self._validates(item.epoch)):
            return lines
        if item.time >= self._shown + self._every or (ends and self._has_room(item)):
            lines.append(self._line(item))
        return lines

    def rest(self) -> list[Line]:
        """Return the line of the newest training step if it has none."""
        if self._pending is None or self._every is None:
            return []
        return [self._line(self._pending[0])]

    def _validates(self, epoch: int) -> bool:
        schedule = self.schedule
        return bool(schedule.test_samples and schedule.validation_freq and epoch % schedule.validation_freq == 0)

    def _has_room(self, item: MetricItem) -> bool:
        self._lines += 1
        return self._lines <= _FREE_LINES or item.time >= self._shown + _LINE_SECONDS

    def _line(self, item: MetricItem, validation: Mapping[str, float] | None = None) -> Line:
        schedule = self.schedule
        words = [f"epoch {item.epoch}/{schedule.epochs}", f"step {item.step}/{schedule.steps}"]
        if self._pending is not None and self._pending[0].step == item.step:
            words += [f"{name} {number(value)}" for name, value in self._pending[1].items()]
        words += [f"val_{name} {number(value)}" for name, value in (validation or {}).items()]
        rate = self.speed.recent()
        words += [f"{number(rate, 3)}/s"] if rate is not None else []
        self._pending, self._shown = None, item.time
        return Line(item.time, SEPARATOR.join([*words, workers(item.workers)]))


def number(value: float, digits: int = 4) -> str:
    """Return a value with so many significant digits; whole numbers and large ones with all digits of their whole
    part."""
    if not math.isfinite(value):
        return str(value)
    if 10.0 ** (digits - 1) <= abs(value) < 1e12 or (value == int(value) and abs(value) < 1e12):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def workers(count: int) -> str:
    return counted(count, "worker")


def counted(count: int, noun: str) -> str:
    """Return ``1 epoch``, ``2 epochs``, ``1,200 steps``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a duration in its two largest units: ``0.8 s``, ``12 s``, ``3 min 12 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    left, words = round(seconds), list[str]()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        many, left = divmod(left, length)
        if many or words:
            words.append(f"{many} {unit}" if many else "")
    return " ".join(word for word in words[:2] if word)
