"""What an engine sends and writes about its steps: metrics, progress, the pauses of resizes, and the sample record.

The first engine sends metrics and progress. Metrics of every step go to the driver in small bundles; the driver's
logger writes them. Progress goes to the platform as a report, about twice a second. The metrics of each validation go
there as a report of their own, when the validation has ended. All engines have the same numbers and keep the newest
ones. If the first engine dies before it has sent some, the next first engine sends them. The driver drops metrics that
it has already received, and the platform stores the same validation once.

Samples per second count training steps only: the time of a validation, of hooks, checkpoints and files does not count.

Where the time of the steps goes is a part of progress about every two seconds. With EDT_PROFILE_STEP=1 each engine also
prints its own part of it, about every ten seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from edt_contract.durable import PatientLog
from edt_contract.reports import ReportKind
from edt_runner.engine.link import EngineLink
from edt_runner.engine.speed import Speed
from edt_runner.engine.step_profile import StepProfile
from edt_runner.protocol.data import MetricItem
from edt_runner.protocol.messages import Metrics, Progress, Resized, TrainingReport
from edt_runner.schedule import Schedule, Step, StepKind

_BUNDLE_SECONDS = 0.1
_PROGRESS_SECONDS = 0.5
_PROFILE_SECONDS = 2.0
_PRINT_SECONDS = 10.0
_KEPT_SECONDS = 5.0
_KEPT_MOST = 4096
_AROUND = 3
"""Number of intervals between commits that count as part of a change: the interval with the switch and the next two."""
_STEADY = 8
"""Number of later intervals whose median is the duration of a steady step."""


class MetricSums:
    """Sums of loss and metrics over the current epoch, for training and for validation. Each commit of a step adds to
    them.

    Args:
        length: how many numbers each of the two has (``Adapter.width``).
        data: what ``to_json_object`` returned; None: begin with zeros.
    """

    def __init__(self, length: int, data: Mapping[str, Any] | None = None) -> None:
        self._sums = {kind: [0.0] * length for kind in StepKind}
        for kind in StepKind:
            stored = (data or {}).get(kind.value)
            if stored and len(stored) == length:
                self._sums[kind] = [float(value) for value in stored]

    def add(self, kind: StepKind, sums: Sequence[float]) -> None:
        """Add the sums of one step, of shape (length,)."""
        self._sums[kind] = [old + new for old, new in zip(self._sums[kind], sums, strict=True)]

    def reset(self, kind: StepKind) -> None:
        """Set the sums of one kind of step to zero, because an epoch begins."""
        self._sums[kind] = [0.0] * len(self._sums[kind])

    def of(self, kind: StepKind) -> list[float]:
        """Return the current sums of one kind of step."""
        return list(self._sums[kind])

    def to_json_object(self) -> dict[str, list[float]]:
        """Return all sums as JSON, for a checkpoint or a state transfer."""
        return {kind.value: list(sums) for kind, sums in self._sums.items()}


class Telemetry:
    """Collects metrics and progress, and sends them.

    ``begin_step`` and ``end_step`` tell which time belongs to a step. Without them, all time between two calls of
    ``committed`` does.

    Args:
        link: the connection to the coordinator.
        values: computes loss and metrics, by name, from sums. It is called only for items that are sent.
        prints: name of this engine, if it prints where the time of its steps goes; None: it does not.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        link: EngineLink,
        values: Callable[[Sequence[float]], dict[str, float]],
        *,
        prints: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._values, self._prints, self._clock = link, values, prints, clock
        self.profile = StepProfile()
        """Where the time of the training steps goes. Each engine adds each training step to its own."""
        self._items: list[Callable[[], MetricItem]] = []
        """Functions that make the collected items. An item is made only when it is sent, because computing its values
        takes time."""
        self._kept: deque[tuple[float, Callable[[], MetricItem]]] = deque(maxlen=_KEPT_MOST)
        self._sent = self._reported = self._began = self._profiled = self._printed = clock()
        self._ended: float | None = None
        """When the coming commit's step has ended; None: nobody has said so."""
        self._speed = Speed()
        self._progress: Callable[[], Progress] | None = None
        """Makes the progress of the newest training step; None: there is nothing new."""
        self._validation_began = self._began
        self._validated_samples = 0
        self._of_epoch: list[TrainingReport] = []
        """The report about the newest validation. A new first engine sends it again."""
        self._best: TrainingReport | None = None
        """The report about the newest best model whose files this engine has written."""

    def begin_step(self) -> None:
        """Note that the work on a step begins. What came before it, such as a checkpoint, is no part of the step."""
        self._began, self._ended = self._clock(), None

    def end_step(self) -> None:
        """Note that a step is done, before hooks run and files are written. ``committed`` follows."""
        self._ended = self._clock()

    def committed(
        self,
        schedule: Schedule,
        step: Step,
        sums: MetricSums,
        samples: int,
        workers: int,
        *,
        leads: bool,
        details: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Collect the values of a committed step, and send what is due.

        Args:
            schedule: schedule of the training.
            step: the committed step.
            sums: sums of the epoch so far, including this step.
            samples: number of samples of the step.
            workers: number of engines that shared the step.
            leads: whether this engine is the first, which sends.
            details: further values of a training step besides loss and metrics, by name.
        """
        now, wall = self._clock(), time.time()
        took = (now if self._ended is None else self._ended) - self._began
        self._began, self._ended = now, None
        trains = step.kind is StepKind.TRAIN
        done, epoch, values = step.training_steps_after, step.epoch + 1, sums.of(step.kind)
        also = dict(details) if trains else {}

        def metrics() -> dict[str, float]:
            """Return loss, the user's metrics, and the details whose names are not taken by these."""
            found = self._values(values)
            return {**found, **also, **found}

        def item() -> MetricItem:
            iteration = done * schedule.micro_batches
            return MetricItem(step.kind.value, done, iteration, epoch, workers, metrics(), wall)

        def progress() -> Progress:
            found, speed = metrics(), self._speed
            rest = (found.get("loss"), speed.rate, found, speed.samples, speed.seconds)
            return Progress(done, schedule.steps, epoch, schedule.epochs, workers, *rest)

        if trains or step.last:
            self._kept.append((now, item))
            while self._kept[0][0] < now - _KEPT_SECONDS:
                self._kept.popleft()
            if leads:
                self._items.append(item)
        if not trains:
            if step.index == 0:
                self._validation_began, self._validated_samples = now - took, 0
            self._validated_samples += samples
        ended = self._reports(step, workers, metrics, now)
        if now - self._printed >= _PRINT_SECONDS:
            self._print_profile(now)
        if not leads:
            return
        if trains:
            self._speed.add(samples, took, workers)
            self._progress = progress
        if now - self._sent >= _BUNDLE_SECONDS or step.ends_epoch:
            self._send_items(now)
        if now - self._reported >= _PROGRESS_SECONDS or ended:
            self._send_progress(now)
        for report in ended:
            self._link.send(report)

    def _reports(
        self,
        step: Step,
        workers: int,
        metrics: Callable[[], dict[str, float]],
        now: float,
    ) -> list[TrainingReport]:
        """The reports that this commit is worth, besides progress: about the validation that it ends."""
        reports = []
        if step.kind is StepKind.VALIDATE and step.last:
            body = {
                "step": step.training_steps_after,
                "epoch": step.epoch + 1,
                "workers": workers,
                "samples": self._validated_samples,
                "seconds": now - self._validation_began,
                "metrics": metrics(),
            }
            reports.append(TrainingReport(ReportKind.VALIDATED, body))
        kinds = {report.report for report in reports}
        self._of_epoch = [report for report in self._of_epoch if report.report not in kinds] + reports
        return reports

    def best_kept(self, step: Step, best: Mapping[str, Any]) -> None:
        """Report that the files of the best model are on disk. Any thread may call this.

        Args:
            step: the step that has ended its epoch.
            best: ``metric`` (its name, such as ``val_accuracy``), ``mode`` (``min`` or ``max``), ``value``, ``epoch``
                (1-based) and ``file`` (the name under which the model is kept).
        """
        self._best = TrainingReport(ReportKind.BEST_KEPT, {"step": step.training_steps_after, **best})
        self._link.send(self._best)

    def lead(self) -> None:
        """Begin to send, as the new first engine. The previous first engine may have died before it had sent a bundle,
        so the kept items are sent now."""
        self._items = [item for _, item in self._kept]
        self._began = self._reported = self._clock()
        self._send_items(self._began)
        for report in (*self._of_epoch, *([self._best] if self._best is not None else [])):
            self._link.send(report)

    def flush(self) -> None:
        """Send everything that has been collected, because this engine is about to leave or to end."""
        now = self._clock()
        self._send_items(now)
        self._send_progress(now, ends=True)
        self._print_profile(now)

    def _send_items(self, now: float) -> None:
        if self._items:
            self._link.send(Metrics(tuple(item() for item in self._items)))
            self._items = []
        self._sent = now

    def _send_progress(self, now: float, *, ends: bool = False) -> None:
        """Send the newest progress, if it is not sent yet. ``ends``: it is the last one of this engine."""
        if self._progress is not None:
            progress = self._progress()
            if ends or now - self._profiled >= _PROFILE_SECONDS:
                progress, self._profiled = replace(progress, step_times=self.profile.taken()), now
            self._link.send(progress)
            self._speed.restart()
            self._progress, self._reported = None, now

    def _print_profile(self, now: float) -> None:
        if self._prints is not None and (text := self.profile.text(self._prints)):
            print(text, flush=True)
        self._printed = now


class PauseTimer:
    """Measures how long changes of the membership delay the training, and sends the result.

    The pause of a change is the longest interval between two commits around the change, minus the duration of a steady
    step at the new size. It is known only some steps later, and an engine may be dead by then. So every engine measures
    and sends, and the coordinator uses the first message for each generation.

    Args:
        link: the connection to the coordinator.
        clock: returns monotonic seconds.
    """

    def __init__(self, link: EngineLink, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._clock = link, clock
        self._resized: Resized | None = None
        """The change that is being measured; None: no change is."""
        self._intervals: list[float] = []
        """Intervals between commits since the change began, in seconds."""
        self._last: float | None = None
        """Time at which the last training step was committed, in monotonic seconds; None: something other than training
        has taken time since then."""

    def begin(self, resized: Resized) -> None:
        """Begin to measure the change ``resized``, and send the result of the previous measurement."""
        self.finish()
        self._resized, self._intervals = resized, []

    def committed(self) -> None:
        """Note the time of the commit of a training step."""
        now = self._clock()
        if self._resized is not None and self._last is not None:
            self._intervals.append(now - self._last)
        self._last = now
        if len(self._intervals) >= _AROUND + _STEADY:
            self.finish()

    def interrupted(self) -> None:
        """Ignore the current interval, because a validation or a checkpoint takes time before the next commit."""
        self._last = None

    def finish(self) -> None:
        """End the current measurement and send its result. The pause is None if too few steps followed the change."""
        around, steady = self._intervals[:_AROUND], self._intervals[_AROUND:]
        pause = max(0.0, max(around) - median(steady)) if steady else None
        if self._resized is not None:
            self._link.send(replace(self._resized, pause_seconds=pause))
        self._resized, self._intervals = None, []


_HELD_BYTES = 16 << 20


class Recorder:
    """Writes the sample record: which samples each committed step consists of.

    The recorder keeps the micro-batches of the current step and writes whether the step was tried and committed. It is
    off unless EDT_SAMPLE_RECORD names a folder. Each engine appends JSON lines to ``samples-<fence>-<engine>.jsonl``:

        ["try", epoch, step, generation, index, [samples]]  one line for each own micro-batch, before the reduction
        ["commit", step, generation]                        after it has committed the step
        ["commit", step, generation, width]                 the same if the batch follows the engines
        ["commit-void", step, generation]                   all engines went back to a checkpoint: every commit of this
                                                            step or a later one, in an earlier generation or attempt,
                                                            is void

    A step that is reduced again, because an engine died during it, has a higher generation. If the batch follows the
    engines, steps count micro-batches: ``step`` is the first of the ``width`` micro-batches. The program
    ``examples/demo/edt_demo/sample_record.py`` reads the record.

    Args:
        folder: the folder; None: no record is written.
        fence: fence of the attempt.
        name: name of this engine.
    """

    def __init__(self, folder: str | None, fence: int, name: str) -> None:
        self._held: dict[int, tuple[int, int, npt.NDArray[np.int64]]] = {}
        self._log: PatientLog | None = None
        if folder:
            path = Path(folder) / f"samples-{fence}-{name}.jsonl"
            self._log = PatientLog(path, most=_HELD_BYTES, mode=0o666)
            self._log.write(b"")

    def hold(self, epoch: int, step: int, index: int, samples: npt.NDArray[np.int64]) -> None:
        """Keep a micro-batch of the current step. It replaces an earlier one with the same index.

        Args:
            epoch: 0-based.
            step: training steps committed before the step.
            index: number of the micro-batch in the step.
            samples: sample indices, of shape (samples,).
        """
        if self._log is not None:
            self._held[index] = (epoch, step, samples)

    def keep(self, indices: Collection[int]) -> None:
        """Keep only the micro-batches with these indices."""
        self._held = {index: held for index, held in self._held.items() if index in indices}

    def trying(self, step: int, generation: int) -> None:
        """Write the micro-batches of the step, which is about to be reduced in this generation."""
        if self._held:
            self._write(
                ["try", epoch, step, generation, index, samples.tolist()]
                for index, (epoch, of, samples) in sorted(self._held.items())
                if of == step
            )

    def commit(self, step: int, generation: int, width: int | None = None) -> None:
        """Write that the training step, as reduced in this generation, is committed. ``width`` is the number of its
        micro-batches if the batch follows the engines, else None."""
        self._held.clear()
        self._write([["commit", step, generation] if width is None else ["commit", step, generation, width]])

    def go_back(self, step: int, generation: int) -> None:
        """Write that all engines go back to a checkpoint after which ``step`` is the next step, and continue in
        ``generation``."""
        self._held.clear()
        self._write([["commit-void", step, generation]])

    def _write(self, lines: Iterable[list[Any]]) -> None:
        """Write lines in one call, since data that the kernel has accepted survive this process. Lines that do not fit
        on a full disk are kept in memory. If they become too many, the record ends with a gap, and the training
        continues."""
        if self._log is None:
            return
        self._log.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        if self._log.lost:
            print(f"the sample record ends here: {self._log.error}", file=sys.stderr, flush=True)
            self._log = None
            self._held.clear()
