"""What an engine says of its steps: metrics, progress, pauses of resizes, and the sample record.

The first engine sends metrics and progress. Metrics of every step go to the driver, whose logger writes them; they
travel in small bundles. Progress goes to the platform as a report, about twice a second. All engines have the numbers
and keep the newest of them: if the first dies before it has sent some, the next first sends them, and the driver drops
what it has.

Samples per second are those of training: the time of a validation does not count.
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
from edt_runner.engine.link import EngineLink
from edt_runner.protocol.data import MetricItem
from edt_runner.protocol.messages import Metrics, Progress, Resized
from edt_runner.schedule import Schedule, Step, StepKind

_BUNDLE_SECONDS = 0.1
_PROGRESS_SECONDS = 0.5
_KEPT_SECONDS = 5.0
_KEPT_MOST = 4096
_AROUND = 3
"""Intervals that count as around a change: the one in which the switch fell and the two after it."""
_STEADY = 8
"""Intervals after those that make a steady step."""


class MetricSums:
    """Sums of loss and metrics over the epoch so far, of training and of validation. A step's commit adds to them.

    Args:
        length: numbers in each.
        data: of ``to_json_object``; None: nothing is counted yet.
    """

    def __init__(self, length: int, data: Mapping[str, Any] | None = None) -> None:
        self._sums = {kind: [0.0] * length for kind in StepKind}
        for kind in StepKind:
            stored = (data or {}).get(kind.value)
            if stored and len(stored) == length:
                self._sums[kind] = [float(value) for value in stored]

    def add(self, kind: StepKind, sums: Sequence[float]) -> None:
        """Add those of a step."""
        self._sums[kind] = [old + new for old, new in zip(self._sums[kind], sums, strict=True)]

    def reset(self, kind: StepKind) -> None:
        """An epoch begins."""
        self._sums[kind] = [0.0] * len(self._sums[kind])

    def of(self, kind: StepKind) -> list[float]:
        """The sums so far."""
        return list(self._sums[kind])

    def to_json_object(self) -> dict[str, list[float]]:
        """For a checkpoint."""
        return {kind.value: list(sums) for kind, sums in self._sums.items()}


class Telemetry:
    """Collects and sends.

    Args:
        link: to the coordinator.
        values: makes loss and metrics, by name, of sums; called only for what is sent.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: EngineLink,
        values: Callable[[Sequence[float]], dict[str, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._values, self._clock = link, values, clock
        self._items: list[Callable[[], MetricItem]] = []
        """Each is made when it is sent: most progress is not, and values cost time."""
        self._kept: deque[tuple[float, Callable[[], MetricItem]]] = deque(maxlen=_KEPT_MOST)
        self._sent = self._reported = self._last = clock()
        self._samples, self._seconds = 0, 0.0
        self._progress: Callable[[float], Progress] | None = None
        """Of the newest training step, by samples per second."""

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
        """A step was committed.

        Args:
            schedule: of the training.
            step: that was committed.
            sums: of the epoch so far, with this step's.
            samples: of the step.
            workers: engines that shared it.
            leads: whether this engine sends.
            details: values of a training step beside loss and metrics, by name.
        """
        now, wall = self._clock(), time.time()
        took, self._last = now - self._last, now
        trains = step.kind is StepKind.TRAIN
        done, epoch, values = step.training_steps_after, step.epoch + 1, sums.of(step.kind)
        also = dict(details) if trains else {}

        def metrics() -> dict[str, float]:
            """Loss, the user's metrics, and what else there is to say of the step under names that are still free."""
            found = self._values(values)
            return {**found, **also, **found}

        def item() -> MetricItem:
            iteration = done * schedule.micro_batches
            return MetricItem(step.kind.value, done, iteration, epoch, workers, metrics(), wall)

        def progress(rate: float) -> Progress:
            found = metrics()
            return Progress(done, schedule.steps, epoch, schedule.epochs, workers, found["loss"], rate, found)

        if trains or step.last:
            self._kept.append((now, item))
            while self._kept[0][0] < now - _KEPT_SECONDS:
                self._kept.popleft()
            if leads:
                self._items.append(item)
        if not leads:
            return
        if trains:
            self._samples += samples
            self._seconds += took
            self._progress = progress
        if now - self._sent >= _BUNDLE_SECONDS or step.ends_epoch:
            self._send_items(now)
        if now - self._reported >= _PROGRESS_SECONDS:
            self._send_progress(now)

    def lead(self) -> None:
        """This engine is the first from now on; the one before may have died before it had sent a bundle."""
        self._items = [item for _, item in self._kept]
        self._last = self._reported = self._clock()
        self._send_items(self._last)

    def flush(self) -> None:
        """Send what has been collected: the engine is about to stop being the first, or to end."""
        now = self._clock()
        self._send_items(now)
        self._send_progress(now)

    def _send_items(self, now: float) -> None:
        if self._items:
            self._link.send(Metrics(tuple(item() for item in self._items)))
            self._items = []
        self._sent = now

    def _send_progress(self, now: float) -> None:
        if self._progress is not None:
            self._link.send(self._progress(self._samples / max(self._seconds, 1e-9)))
            self._progress, self._samples, self._seconds, self._reported = None, 0, 0.0, now


class PauseTimer:
    """Measures how long changes of the membership hold the training up, and sends that.

    The pause of a change is the longest interval between two commits around it, less a steady step at the new size. It
    is known some steps later, and an engine may be dead by then. So each engine measures and sends, and the coordinator
    drops what it has.

    Args:
        link: to the coordinator.
        clock: monotonic seconds.
    """

    def __init__(self, link: EngineLink, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._link, self._clock = link, clock
        self._resized: Resized | None = None
        """The change that is measured; None: none is."""
        self._intervals: list[float] = []
        """Between commits since it began."""
        self._last: float | None = None
        """When the last training step was committed; None: something else took time since."""

    def begin(self, resized: Resized) -> None:
        """The membership is about to change. What is known of the change before is sent."""
        self.finish()
        self._resized, self._intervals = resized, []

    def committed(self) -> None:
        """A training step was committed."""
        now = self._clock()
        if self._resized is not None and self._last is not None:
            self._intervals.append(now - self._last)
        self._last = now
        if len(self._intervals) >= _AROUND + _STEADY:
            self.finish()

    def interrupted(self) -> None:
        """Something else than training takes time before the next commit: a validation, a checkpoint."""
        self._last = None

    def finish(self) -> None:
        """End the measurement that is running, with what is known. There is no pause where too few steps came after
        the change."""
        around, steady = self._intervals[:_AROUND], self._intervals[_AROUND:]
        pause = max(0.0, max(around) - median(steady)) if steady else None
        if self._resized is not None:
            self._link.send(replace(self._resized, pause_seconds=pause))
        self._resized, self._intervals = None, []


_HELD_BYTES = 16 << 20


class Recorder:
    """The sample record: which samples each committed step was made of. It holds the micro-batches of the step being
    computed, and writes down what becomes of them.

    Off unless EDT_SAMPLE_RECORD names a folder. Each engine appends JSON lines to ``samples-<fence>-<engine>.jsonl``:

        ["try", epoch, step, generation, index, [samples]]  one for each of its micro-batches, before the reduction
        ["commit", step, generation]                        after it has committed the step
        ["commit", step, generation, width]                 the same where the batch follows the engines
        ["commit-void", step, generation]                   all went back to a checkpoint: what any engine had committed
                                                            from this step on, in an earlier generation or attempt, is
                                                            void

    A step that is reduced again, because an engine died in it, has another, higher generation. Where the batch follows
    the engines, steps count micro-batches and a line's is the first of ``width``.
    ``examples/demo/edt_demo/sample_record.py`` reads it.
    """

    def __init__(self, folder: str | None, fence: int, name: str) -> None:
        self._held: dict[int, tuple[int, int, npt.NDArray[np.int64]]] = {}
        self._log: PatientLog | None = None
        if folder:
            path = Path(folder) / f"samples-{fence}-{name}.jsonl"
            self._log = PatientLog(path, most=_HELD_BYTES, mode=0o666)
            self._log.write(b"")

    def hold(self, epoch: int, step: int, index: int, samples: npt.NDArray[np.int64]) -> None:
        """A micro-batch of the step being computed; replaces an earlier one of the same index."""
        if self._log is not None:
            self._held[index] = (epoch, step, samples)

    def keep(self, indices: Collection[int]) -> None:
        """Forget all other micro-batches."""
        self._held = {index: held for index, held in self._held.items() if index in indices}

    def trying(self, step: int, generation: int) -> None:
        """The step is about to be reduced in this generation: write down its micro-batches."""
        if self._held:
            self._write(
                ["try", epoch, step, generation, index, samples.tolist()]
                for index, (epoch, of, samples) in sorted(self._held.items())
                if of == step
            )

    def commit(self, step: int, generation: int, width: int | None = None) -> None:
        """The training step is committed as it was reduced in this generation. ``width``: of a step whose
        micro-batches are as many as there are engines."""
        self._held.clear()
        self._write([["commit", step, generation] if width is None else ["commit", step, generation, width]])

    def go_back(self, step: int, generation: int) -> None:
        """All engines go back to a checkpoint after which ``step`` is the next, and go on in ``generation``."""
        self._held.clear()
        self._write([["commit-void", step, generation]])

    def _write(self, lines: Iterable[list[Any]]) -> None:
        """Write in one call: what the kernel has taken outlives this process. What a full disk does not take is kept;
        if that becomes too much the record ends and shows a gap, and the training goes on."""
        if self._log is None:
            return
        self._log.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        if self._log.lost:
            print(f"the sample record ends here: {self._log.error}", file=sys.stderr, flush=True)
            self._log = None
            self._held.clear()
