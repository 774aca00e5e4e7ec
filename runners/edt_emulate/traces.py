"""Traces of sizes, and the offsets at which a training's sizes change by them.

A trace is of batch sizes (a CSV with a column ``batchsize``), of devices (a CSV with a column ``Time``), or the history
of a job (JSON). An offset counts micro-batches, those of validations too; an update of width w takes w of an epoch's,
and the last of an epoch what is left. The schedule of a training under a trace counts micro-batches, so its steps are
those.

``edt emulate --job`` writes the history of a job (``--save-history`` keeps it):

    {"job": {…},                     as ``GET /api/v1/jobs/edt-12`` gives it
     "micro_batches_a_step": 1,      what the log's lines say an update counts: 1 where the batch followed the engines
     "updates": [[0, 1], [24, 2]],   from the log: steps before the first update of each width, and that width
     "resizes": […]}                 as ``GET /api/v1/jobs/edt-12/resizes`` gives them

The log has a line for every update, so where the batch followed the engines its replay has the same bits. A job whose
batch was fixed had one width all the time; then, and where there is nothing but the answer of ``/resizes``, the widths
are what the resizes say: the replay shows what would have been, had the batch followed the engines.
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
    """The sizes that a job has had."""

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
    """The trace in a file.

    Raises:
        UsageError: it is none; names the file, the row or column and the value.
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
"""(offset, width from there on)."""
ENDINGS = ("hold", "cycle", "error")


def of_updates(schedule: Schedule, widths: Iterator[int]) -> Changes:
    """Where widths change that are given update by update; takes as many of them as the training has updates."""
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
    """Where widths change that are given by (micro-batches of training before, width)."""
    return [(offset_at(schedule, done), width) for done, width in changes if done < schedule.steps]


def offset_at(schedule: Schedule, done: int) -> int:
    """The offset at which so many micro-batches of training are done, and the validations before the next one too."""
    epoch = done // schedule.steps_per_epoch
    validations = epoch // schedule.validation_freq if schedule.test_samples and schedule.validation_freq else 0
    return done + validations * schedule.validation_steps


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


# ── histories of jobs ─────────────────────────────────────────────────────────────────────────────────────────────
_HISTORY = "the JSON that `edt emulate --job … --save-history` or GET …/resizes gives"


@dataclass(frozen=True)
class History:
    """Sizes of one job.

    Args:
        job: its id.
        changes: (steps of training before, engines from there on), the first at 0.
        unit: micro-batches of one step; None: as many as the script's own.
        inexact: why a replay has other bits than the job; empty: it has the same.
        seed, threads: of the job; None: not known.
        digest: of what it had trained; None: it is not finished, or not known.
    """

    job: str
    changes: tuple[tuple[int, int], ...]
    unit: int | None
    inexact: str = ""
    seed: int | None = None
    threads: int | None = None
    digest: str | None = None

    def micro_batches(self, own_unit: int) -> tuple[tuple[int, int], ...]:
        """(micro-batches of training before, width from there on); ``own_unit``: of a step of the script's."""
        unit = self.unit or own_unit
        return tuple((step * unit, width) for step, width in self.changes)


def read_history(path: Path) -> History:
    """The history in a file.

    Raises:
        UsageError: it is no history.
        OSError: it cannot be read.
    """
    try:
        return _history(json.loads(path.read_text(encoding="utf-8")))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: got no history ({error}), takes {_HISTORY}") from None


def _history(data: Any) -> History:
    """The history in what a file holds. Raises UsageError where none is."""
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
    """(steps before, engines from there on) of the rows of ``/resizes``. A joining engine takes part in no more than
    the reduction of the step at which it comes, so that the larger size counts from the step after it."""
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
