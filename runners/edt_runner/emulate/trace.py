"""What the sizes come from: a trace of batch sizes, of devices, or the history of a job. Room: runners; reads files.

Which of them a file is, it says itself: JSON is a history, a CSV with a column ``Time`` a trace of devices, one with a
column ``batchsize`` a trace of batch sizes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edt_runner.emulate import plan
from edt_runner.engine.schedule import Schedule
from edt_runner.errors import UsageError
from edt_runner.scaling import availability, histories
from edt_runner.scaling.traces import COLUMN
from edt_runner.scaling.traces import Trace as BatchSizes


@dataclass(frozen=True)
class Options:
    """What was asked about the trace.

    Args:
        engines_max: the most engines of a trace of devices; None: as many as it has room for.
        unit: devices of an engine.
        step_seconds: how long an update lasts; None: so long that the trace lasts for the training.
        column: of the counts.
        at_end: what comes when the trace has ended; None: ``hold`` for batch sizes, ``cycle`` for devices.
    """

    engines_max: int | None = None
    unit: int = 1
    step_seconds: float | None = None
    column: str | None = None
    at_end: str | None = None


@dataclass(frozen=True)
class Shape:
    """What a script's training is like: its schedule, in micro-batches; samples of one of these; samples of the batch
    that its learning rate was chosen for; whether its own batch follows the engines."""

    schedule: Schedule
    batch_size: int
    reference: int
    per_engine: bool


class Trace(Protocol):
    """Sizes from somewhere."""

    title: str
    """For people."""
    facts: dict[str, Any]
    """For programs."""
    notes: list[str]
    """What a person should know of how it was used, after ``changes``."""

    def changes(self, shape: Shape) -> plan.Changes:
        """The widths of such a training. Raises UsageError where it cannot have them."""


@dataclass
class OfBatches:
    """One batch size an update."""

    path: Path
    at_end: str
    title: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes(1)  # what is wrong with it whatever the script is
        self.title, self.facts = self.path.name, {"kind": "batch sizes"}

    def changes(self, shape: Shape) -> plan.Changes:
        widths = [size // shape.batch_size for size in self._sizes(shape.batch_size)]
        endless = plan.lasting(self.path.name, lambda: iter(widths), self.at_end, self.notes.append)
        return plan.of_updates(shape.schedule, endless)

    def _sizes(self, micro_batch: int) -> list[int]:
        try:
            return BatchSizes(self.path, micro_batch=micro_batch).entries or []
        except UsageError as error:
            why = ", the script's batch_size" if micro_batch > 1 and "multiple" in str(error) else ""
            raise UsageError(f"{self.path}: {error}{why}") from None


@dataclass
class OfDevices:
    """How many devices there were when."""

    path: Path
    options: Options
    title: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._trace = availability.read(self.path, self.options.column)
        self._engines = self._trace.engines(self.options.unit, self.options.engines_max)
        self._trace.lasting(self._engines, 1)  # it has room for an engine

    def changes(self, shape: Shape) -> plan.Changes:
        wanted = plan.micro_batches(shape.schedule)
        seconds = self.options.step_seconds or self._trace.lasting(self._engines, wanted)
        walks: list[availability.Walk] = []

        def walk() -> Iterator[int]:
            walks.append(self._trace.walk(self._engines, seconds))
            return walks[-1]

        endless = plan.lasting(self.path.name, walk, self.options.at_end or "cycle", self.notes.append)
        found = plan.of_updates(shape.schedule, endless)
        lasted, waited = sum(each.now for each in walks), sum(each.waited for each in walks)
        self.title = f"{self.path.name} ({self._trace.column})"
        self.facts = {
            "kind": "devices",
            "column": self._trace.column,
            "unit": self.options.unit,
            "engines_max": self.options.engines_max,
            "step_seconds": seconds,
            "seconds": lasted,
            "seconds_without_engines": waited,
        }
        self.notes.append(
            f"{seconds:.4g} s an update, whatever the engines: the training lasts {_span(lasted)} of the trace"
            + (f", {_span(waited)} of them without an engine" if waited else "")
        )
        return found


@dataclass
class OfJob:
    """The sizes that a job has had."""

    history: histories.History
    title: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        history = self.history
        self.title = f"the sizes of {history.job}"
        self.facts = {"kind": "job", "job": history.job, "digest": history.digest, "inexact": history.inexact or None}
        if history.inexact:
            self.notes.append(f"the replay has not {history.job}'s bits: {history.inexact}")

    def changes(self, shape: Shape) -> plan.Changes:
        own = 1 if shape.per_engine else max(1, shape.reference // shape.batch_size)
        return plan.of_micro_batches(shape.schedule, self.history.micro_batches(own))


def read(path: Path, options: Options) -> Trace:
    """The trace in a file.

    Raises:
        UsageError: it is none; names the file, the row or column and the value.
    """
    try:
        if path.suffix.lower() == ".json":
            return OfJob(histories.read(path))
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
        if availability.is_availability(header):
            return OfDevices(path, options)
        if COLUMN in header:
            return OfBatches(path, options.at_end or "hold")
    except UnicodeDecodeError:
        header = []
    except OSError as error:
        raise UsageError(f"TRACE: got {path}, takes a file that can be read: {error.strerror}") from None
    columns = ", ".join(header) or "none"
    raise UsageError(
        f"TRACE: got {path} with the columns {columns}, takes a CSV with a column {COLUMN}, or with Time and a count "
        "of devices, or the JSON of a job's history"
    )


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.3g} s"
