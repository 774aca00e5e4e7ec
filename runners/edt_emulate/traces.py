"""Traces of sizes, and the offsets at which a training's sizes change by them.

A trace is of batch sizes (a CSV with a column ``batchsize``), of devices (a CSV with a column ``Time``), or the history
of a job (JSON). An offset counts micro-batches, those of validations too; an update of width w takes w of an epoch's,
and the last of an epoch what is left.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_emulate import availability, histories
from edt_runner.errors import UsageError
from edt_runner.lr_scaling.traces import COLUMN
from edt_runner.lr_scaling.traces import Trace as BatchSizes
from edt_runner.schedule import Schedule


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


@dataclass
class Trace:
    """Where the sizes of a training come from."""

    title: str = field(default="", init=False)
    """What a person calls it."""
    facts: dict[str, Any] = field(default_factory=dict, init=False)
    """What the JSON file of an emulation says about it."""
    notes: list[str] = field(default_factory=list, init=False)
    """Sentences about how it was used, after ``changes``."""

    def changes(self, shape: Shape) -> Changes:
        """The widths of a training of this shape.

        Raises:
            UsageError: it cannot have them.
        """
        raise NotImplementedError


@dataclass
class OfBatches(Trace):
    """A trace of batch sizes, one an update."""

    path: Path
    at_end: str

    def __post_init__(self) -> None:
        self._sizes(1)  # raises what is wrong with it whatever the script is
        self.title, self.facts = self.path.name, {"kind": "batch sizes"}

    def changes(self, shape: Shape) -> Changes:
        widths = [size // shape.batch_size for size in self._sizes(shape.batch_size)]
        endless = lasting(self.path.name, lambda: iter(widths), self.at_end, self.notes.append)
        return of_updates(shape.schedule, endless)

    def _sizes(self, micro_batch: int) -> list[int]:
        try:
            return BatchSizes(self.path, micro_batch=micro_batch).entries or []
        except UsageError as error:
            why = ", the script's batch_size" if micro_batch > 1 and "multiple" in str(error) else ""
            raise UsageError(f"{self.path}: {error}{why}") from None


@dataclass
class OfDevices(Trace):
    """A trace of how many devices there were when."""

    path: Path
    options: Options

    def __post_init__(self) -> None:
        self._trace = availability.read(self.path, self.options.column)
        self._engines = self._trace.engines(self.options.unit, self.options.engines_max)
        self._trace.lasting(self._engines, 1)  # it has room for an engine

    def changes(self, shape: Shape) -> Changes:
        wanted = micro_batches(shape.schedule)
        seconds = self.options.step_seconds or self._trace.lasting(self._engines, wanted)
        walks: list[availability.Walk] = []

        def walk() -> Iterator[int]:
            walks.append(availability.Walk(self._trace, self._engines, seconds))
            return walks[-1]

        endless = lasting(self.path.name, walk, self.options.at_end or "cycle", self.notes.append)
        found = of_updates(shape.schedule, endless)
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
class OfJob(Trace):
    """The sizes that a job has had."""

    history: histories.History

    def __post_init__(self) -> None:
        history = self.history
        self.title = f"the sizes of {history.job}"
        self.facts = {"kind": "job", "job": history.job, "digest": history.digest, "inexact": history.inexact or None}
        if history.inexact:
            self.notes.append(f"the replay has not {history.job}'s bits: {history.inexact}")

    def changes(self, shape: Shape) -> Changes:
        own = 1 if shape.per_engine else max(1, shape.reference // shape.batch_size)
        return of_micro_batches(shape.schedule, self.history.micro_batches(own))


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


Changes = list[tuple[int, int]]
"""(offset, width from there on)."""
ENDINGS = ("hold", "cycle", "error")


def micro_batches(schedule: Schedule) -> int:
    """Of training, in all."""
    return schedule.epochs * _in_epoch(schedule)


def of_updates(schedule: Schedule, widths: Iterator[int]) -> Changes:
    """Where widths change that are given update by update; takes as many of them as the training has updates."""
    found: Changes = []
    for epoch in range(schedule.epochs):
        done, left = epoch * _in_epoch(schedule), _in_epoch(schedule)
        while left:
            width = next(widths)
            if not found or found[-1][1] != width:
                found.append((offset_at(schedule, done), width))
            taken = min(width, left)
            done, left = done + taken, left - taken
    return found


def of_micro_batches(schedule: Schedule, changes: Iterable[tuple[int, int]]) -> Changes:
    """Where widths change that are given by (micro-batches of training before, width)."""
    most = micro_batches(schedule)
    return [(offset_at(schedule, done), width) for done, width in changes if done < most]


def offset_at(schedule: Schedule, done: int) -> int:
    """The offset at which so many micro-batches of training are done, and the validations before the next one too."""
    epoch = done // _in_epoch(schedule)
    validations = epoch // schedule.validation_freq if schedule.test_samples and schedule.validation_freq else 0
    return done + validations * -(-schedule.test_samples // schedule.batch_size)


def lasting(name: str, make: Callable[[], Iterator[int]], at_end: str, note: Callable[[str], None]) -> Iterator[int]:
    """The widths of ``make()`` without end.

    Args:
        name: of the trace, for messages.
        make: begins the trace anew.
        at_end: what comes when it ends: its last width for ever ("hold"), all of it again and again ("cycle"), or an
            error ("error").
        note: called once with a sentence about that.

    Raises:
        UsageError: they end, by ``error``; or there are none at all.
    """
    count, last = 0, 0
    for width in make():
        count, last = count + 1, width
        yield width
    if not count:
        raise UsageError(f"{name}: got a trace of no update, takes one at least")
    if at_end == "error":
        raise UsageError(
            f"{name}: got {count} updates, takes as many as the training has; --trace-end hold or cycle says how it "
            "goes on"
        )
    rest = "its last size stays" if at_end == "hold" else "it begins anew"
    note(f"{name} ends after {count} updates; from there on {rest}")
    while True:
        yield from [last] if at_end == "hold" else make()


def _in_epoch(schedule: Schedule) -> int:
    return -(-schedule.train_samples // schedule.batch_size)
