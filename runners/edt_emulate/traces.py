"""Reads traces of sizes, and computes the offsets at which the width of a training changes.

A trace holds batch sizes (a CSV with a column ``batchsize``), numbers of devices (a CSV with a column ``Time``), or the
history of a job (JSON). An offset counts micro-batches, including those of validations. An update of width w uses w
micro-batches of an epoch; the last update of an epoch uses those that are left. Under a trace the schedule of a
training counts its steps in micro-batches.

``edt emulate --job`` writes the history of a job (``--save-history`` keeps it):

    {"job": {…},                     the answer of ``GET /api/v1/jobs/edt-12``
     "micro_batches_a_step": 1,      micro-batches of an update, from the log; 1 if the batch followed the engines
     "updates": [[0, 1], [24, 2]],   from the log: steps before the first update of each width, and that width
     "resizes": […]}                 the answer of ``GET /api/v1/jobs/edt-12/resizes``

The log has a line for each update. So if the job's batch followed the engines, the replay has the same bits as the job.
If the job's batch was fixed, or the file has only the answer of ``/resizes``, the widths come from the resizes. Then
the replay shows what the job would have done if the batch had followed the engines.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edt_emulate import availability
from edt_runner.errors import UsageError
from edt_runner.lr_scaling.traces import COLUMN
from edt_runner.lr_scaling.traces import Trace as BatchSizes
from edt_runner.schedule import Schedule


@dataclass(frozen=True)
class Options:
    """The options for reading a trace.

    Args:
        engines_max: largest number of engines in a trace of devices; None: as many as the devices allow.
        unit: devices of an engine.
        step_seconds: seconds of an update; None: so many that the trace lasts exactly for the training.
        column: name of the column of counts; None: a known name, or the only other column.
        at_end: what follows the end of the trace (see ``lasting``); None: ``hold`` for batch sizes, ``cycle`` for
            devices.
    """

    engines_max: int | None = None
    unit: int = 1
    step_seconds: float | None = None
    column: str | None = None
    at_end: str | None = None


@dataclass(frozen=True)
class Shape:
    """The facts about a script's training that determine its widths.

    Args:
        schedule: the schedule, in micro-batches.
        batch_size: samples of a micro-batch.
        reference: samples of the batch for which the learning rate was chosen.
        per_engine: whether the script's own batch follows the engines.
    """

    schedule: Schedule
    batch_size: int
    reference: int
    per_engine: bool


@dataclass
class Trace:
    """The source of a training's sizes. Each kind of trace is a subclass."""

    title: str = field(default="", init=False)
    """The trace's name for people."""
    facts: dict[str, Any] = field(default_factory=dict, init=False)
    """Facts about the trace for the JSON file of an emulation."""
    notes: list[str] = field(default_factory=list, init=False)
    """Sentences for the user about the use of the trace. ``changes`` adds some."""

    def changes(self, shape: Shape) -> Changes:
        """The widths of a training of this shape.

        Raises:
            UsageError: a training of this shape cannot have the sizes of the trace.
        """
        raise NotImplementedError


@dataclass
class OfBatches(Trace):
    """A trace of batch sizes, with one size for each update."""

    path: Path
    at_end: str

    def __post_init__(self) -> None:
        self._sizes(1)  # raises the errors that do not depend on the script
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
    """A trace of the number of devices over time."""

    path: Path
    options: Options

    def __post_init__(self) -> None:
        self._trace = availability.read(self.path, self.options.column)
        self._engines = self._trace.engines(self.options.unit, self.options.engines_max)
        self._trace.lasting(self._engines, 1)  # raises UsageError if no row has room for an engine

    def changes(self, shape: Shape) -> Changes:
        seconds = self.options.step_seconds or self._trace.lasting(self._engines, shape.schedule.steps)
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
    """The sizes that a job had, from its history."""

    history: History

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
    """Read the trace in a file.

    Raises:
        UsageError: the file is no trace. The message names the file, the row or column, and the value.
    """
    try:
        if path.suffix.lower() == ".json":
            return OfJob(read_history(path))
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
"""Pairs (offset, width from this offset on), in ascending order."""
ENDINGS = ("hold", "cycle", "error")


def of_updates(schedule: Schedule, widths: Iterator[int]) -> Changes:
    """The changes for widths that are given one for each update.

    Args:
        schedule: the training's schedule, in micro-batches.
        widths: the width of each update; as many are taken as the training has updates.
    """
    found: Changes = []
    for epoch in range(schedule.epochs):
        done, left = epoch * schedule.steps_per_epoch, schedule.steps_per_epoch
        while left:
            width = next(widths)
            if not found or found[-1][1] != width:
                found.append((offset_at(schedule, done), width))
            taken = min(width, left)
            done, left = done + taken, left - taken
    return found


def of_micro_batches(schedule: Schedule, changes: Iterable[tuple[int, int]]) -> Changes:
    """The changes for widths that are given as pairs (micro-batches of training before, width)."""
    return [(offset_at(schedule, done), width) for done, width in changes if done < schedule.steps]


def offset_at(schedule: Schedule, done: int) -> int:
    """The offset after ``done`` micro-batches of training and all validations before the next micro-batch."""
    epoch = done // schedule.steps_per_epoch
    validations = epoch // schedule.validation_freq if schedule.test_samples and schedule.validation_freq else 0
    return done + validations * schedule.validation_steps


def lasting(name: str, make: Callable[[], Iterator[int]], at_end: str, note: Callable[[str], None]) -> Iterator[int]:
    """Yield the widths of a trace, and continue without end after the trace has ended.

    Args:
        name: name of the trace, for messages.
        make: returns the widths of the trace from its beginning.
        at_end: what follows the end of the trace: its last width for ever ("hold"), the whole trace again and again
            ("cycle"), or an error ("error").
        note: called with a sentence when the trace has ended, unless ``at_end`` is "error".

    Raises:
        UsageError: the trace has ended and ``at_end`` is "error", or the trace has no update.
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


# ── histories of jobs ─────────────────────────────────────────────────────────────────────────────────────────────
_HISTORY = "the JSON that `edt emulate --job … --save-history` or GET …/resizes gives"


@dataclass(frozen=True)
class History:
    """The sizes that one job had.

    Args:
        job: the job's id.
        changes: pairs (steps of training before, engines from there on); the first has 0 steps.
        unit: micro-batches of one step; None: as many as in a step of the script.
        inexact: why a replay has other bits than the job; "": it has the same bits.
        seed, threads: seed and threads of the job; None: unknown.
        digest: digest of the job's trained state; None: the job is not finished, or the digest is unknown.
    """

    job: str
    changes: tuple[tuple[int, int], ...]
    unit: int | None
    inexact: str = ""
    seed: int | None = None
    threads: int | None = None
    digest: str | None = None

    def micro_batches(self, own_unit: int) -> tuple[tuple[int, int], ...]:
        """The changes as pairs (micro-batches of training before, width from there on). ``own_unit``: micro-batches in
        a step of the script."""
        unit = self.unit or own_unit
        return tuple((step * unit, width) for step, width in self.changes)


def read_history(path: Path) -> History:
    """Read the history in a file.

    Raises:
        UsageError: the file is no history.
        OSError: the file cannot be read.
    """
    try:
        return _history(json.loads(path.read_text(encoding="utf-8")))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: got no history ({error}), takes {_HISTORY}") from None


def _history(data: Any) -> History:
    """The history in JSON data.

    Raises:
        UsageError: the data have no sizes.
    """
    if isinstance(data, list):
        data = {"resizes": data}
    elif "items" in data:
        data = {"resizes": data["items"]}
    job, resizes = data.get("job") or {}, data.get("resizes") or []
    unit, updates = data.get("micro_batches_a_step"), data.get("updates") or []
    known = History(
        str(job.get("id") or next((each["exec_id"] for each in resizes), "a job")),
        (),
        unit,
        seed=job.get("seed"),
        threads=job.get("threads"),
        digest=job.get("digest"),
    )
    if unit == 1 and updates:
        changes = [(int(step), int(width)) for step, width in updates]
        missing, changes[0] = changes[0][0], (0, changes[0][1])
        return replace(known, changes=tuple(changes), inexact=_doubt(job, missing))
    found = tuple(of_resizes(resizes, unit))
    if not found:
        raise UsageError(f"history: got none in which a size is given, takes {_HISTORY}")
    fixed = "its batch was fixed; this is what would have been, had the batch followed the engines"
    return replace(known, changes=found, inexact=fixed if unit else "the job's log is not in it")


def of_resizes(resizes: Sequence[Mapping[str, Any]], unit: int | None) -> list[tuple[int, int]]:
    """The changes in the rows of ``/resizes``, as pairs (steps before, engines from there on).

    In the step at which an engine joins, it takes part only in the reduction. So the larger size counts from the next
    step on.

    Args:
        resizes: the rows.
        unit: micro-batches of one step; None: unknown.
    """
    sized = [each for each in resizes if each.get("step") is not None and each.get("workers")]
    found: list[tuple[int, int]] = []
    for each in sorted(sized, key=lambda row: (row["fence"], row["generation"] or 0, row["number"])):
        step, workers = int(each["step"]), int(each["workers"])
        before = found[-1][1] if found else int(each["from_slots"])
        if not found and step:
            found.append((0, max(1, before)))
        if step and workers > before:
            step += 1 if unit is None or unit > 1 else before
        found = [*(change for change in found if change[0] < step), (step, workers)]
    return found


def _doubt(job: Mapping[str, Any], missing: int) -> str:
    exactness = job.get("exactness") or {}
    if exactness.get("verdict") == "not-exact":
        return str(exactness.get("reason"))
    if missing:
        return f"its log begins after {missing} micro-batches"
    attempts = job.get("attempts") or 1
    return f"it was started {attempts} times, and of steps that were trained again the log tells one" * (attempts > 1)
