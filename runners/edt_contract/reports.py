"""The reports of a supervisor: for example an exit of a process, a joined engine, a step, or the end of its attempt.

A supervisor numbers each report and writes it into its spool folder. The agent reads it there and sends it to the API.
The scheduler stores each number of an attempt once.

``BODIES`` is the table of the fields that the body of each kind may have. Supervisor, agent and scheduler each call
``fit`` on every body, because a job's own processes may be able to write reports. A body that fits has only known
fields, each of a known type and range. It fits every database column in which it is stored, and it has at most
``BODY_BYTES`` bytes as JSON. A new kind of report needs an entry in ``BODIES``. A new field needs a line in its kind's
entry; otherwise ``fit`` removes it.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edt_contract import step_times
from edt_contract.encoding import ContractError, from_json_object

REPORTS_FILE = "reports.jsonl"
"""File in a supervisor's spool folder with its reports, one a line. The supervisor writes it; the agent reads it, and
writes the last reports if the supervisor is gone."""

BODY_BYTES = 28 << 10
"""Most bytes of a body as JSON; a test computes that from the table. Most bodies have some hundred bytes."""
LINE_BYTES = 32 << 10
"""Most bytes of a report as a line, newline included."""
BATCH_BYTES = 512 << 10
"""Most bytes of the reports that an agent sends, and the API accepts, at once."""
BATCH_REPORTS = 256
"""Most reports that an agent sends at once."""

INT32, INT64 = 2**31 - 1, 2**53 - 1
"""The largest integers for columns of 32 and of 64 bits. The second is 2**53 - 1, because a browser reads larger
integers inexactly."""
LATEST = 253_402_300_799.0
"""Seconds since the epoch at the end of the year 9999, where Python's calendar ends."""

_NOTHING = object()
_NAME_BYTES = 64
_MOST_ALLOCATIONS = 256
_MOST_PORTS = 1 + 1024
"""One port for a gang, and one for each slot of a node with as many slots as the API accepts."""
_ESCAPED = 3
"""Most bytes that clean text takes as JSON for each byte that it has in UTF-8."""


class ExitKind(enum.StrEnum):
    """Why a process or an attempt ended. Each kind has its own rule for what happens next."""

    FINISHED = "finished"  # the training (engine) or the script (driver) was completed
    LEFT = "left"  # asked to leave, and left at a boundary; the job continues, elsewhere or later
    PULL_FAILED = "pull-failed"  # a joining engine did not get the weights; the job continues
    SCRIPT_ERROR = "script-error"  # user code raised an exception, or exited with a status of its own
    LOST = "lost"  # the cause is not the script: a signal, a lost connection, a lost node
    STOPPED = "stopped"  # killed because its user stopped the job


class ReportKind(enum.StrEnum):
    """The kind of a report. The words in the comment at each kind are the keys of ``Report.body``; ``BODIES`` gives
    their types and ranges."""

    ATTEMPT_STARTED = "attempt-started"  # pid
    COORDINATOR_AT = "coordinator-at"  # address "host:port"; other nodes' supervisors need it
    # ports: a supervisor of a gang is up and holds these ports, one for MASTER_PORT and one for each slot, in order
    PORTS_RESERVED = "ports-reserved"
    # engines (most engines that can share the work), steps_total, epochs, follows_engines (the global batch does so)
    ENGINES_KNOWN = "engines-known"
    ENGINE_STARTED = "engine-started"  # allocation, slot, pid
    ENGINE_JOINED = "engine-joined"  # allocation, generation, step: it is a member and has the weights
    ENGINE_COUNTED = "engine-counted"  # allocation, step: its first micro-batch is in a committed step
    # allocation, slot, kind (ExitKind), code, signal, seconds, oom, message: the engine's process is gone
    ENGINE_GONE = "engine-gone"
    PULL_FAILED = "pull-failed"  # allocation, count, limit: a joining engine did not get the weights in time
    RESIZED = "resized"  # generation, step, workers, pause_seconds, joined, left, lost [allocation], recomputed
    # step, steps_total, epoch, epochs, workers, loss, samples_per_second, metrics {}, samples (of the training steps
    # since the previous such report), seconds (that these steps took), step_times (a ``StepTimes``; not in each report)
    PROGRESS = "progress"
    # step, epoch, workers, samples, seconds, metrics {}: a validation has ended; its metrics have their own names
    VALIDATED = "validated"
    # metric, mode ("min", "max"), value, epoch, step, file: the model of this epoch is the best so far, and is kept
    BEST_KEPT = "best-kept"
    CHECKPOINTED = "checkpointed"  # step, path
    # what, why; if replicas differ also engine, step, difference: the result is no longer exact
    GUARANTEE_ENDED = "guarantee-ended"
    # step, engines (how many were compared, at least 2), equal (bool), reason ("join", "epoch", "end", "interval")
    REPLICAS_COMPARED = "replicas-compared"
    # allocations (the engines whose bits differed), certain (they alone were wrong), step, micro_batch: an audit of a
    # micro-batch that was computed twice found other bits
    CORRUPTED = "corrupted"
    # place, error ("": it can be written again), seconds, given_up (reports): a disk is full, or no longer full
    STORAGE = "storage"
    RESTARTED = "restarted"  # what (driver, coordinator), why, count: a process of the attempt was started again
    # first, why, counts {kind: number}: the agent sends it in place of all reports from ``first`` to its own number
    REPORTS_LEFT_OUT = "reports-left-out"
    # kind (ExitKind), code, message, digest, step, whole, failed_step, oom: the last report of a supervisor
    ATTEMPT_ENDED = "attempt-ended"


@dataclass(frozen=True)
class Report:
    """One event that a supervisor reports. The reports of each job, fence and node are numbered 1, 2, 3 … without a
    gap."""

    job: str
    """Exec id, for example ``edt-7``."""
    fence: int
    """Number of the attempt."""
    node: str
    """Name of the node whose supervisor reports."""
    seq: int
    """Number of the report."""
    kind: ReportKind
    time: float
    """Wall clock of the node, in seconds since the epoch. It is for people; no program compares times of two nodes."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The fields that ``BODIES`` allows for the kind."""

    @classmethod
    def from_message(cls, data: Mapping[str, Any]) -> Report:
        """The report that JSON data holds. The fields of its body are not checked.

        Raises:
            ContractError: a field is missing or of the wrong type, or the kind is unknown.
        """
        if "kind" in data and data["kind"] not in tuple(ReportKind):
            raise ContractError(f"report of unknown kind {data['kind']!r}")
        return from_json_object(cls, data)


# ── what their bodies may hold ────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Field:
    """The values that a field of a body may have."""

    most: int
    """Bytes of the longest value as JSON."""
    fit: Callable[[Any], Any]
    """Turns any value into a value that may be stored, or into ``_NOTHING``."""


def _whole(low: int = 0, high: int = INT64) -> Field:
    """A field with an integer from ``low`` to ``high``."""
    return Field(17, lambda value: value if type(value) is int and low <= value <= high else _NOTHING)


def _number(low: float = -math.inf, high: float = math.inf) -> Field:
    """A field with a finite number from ``low`` to ``high``."""

    def fit(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _NOTHING
        try:
            number = float(value)
        except OverflowError:
            return _NOTHING
        return number if math.isfinite(number) and low <= number <= high else _NOTHING

    return Field(26, fit)


def _seconds() -> Field:
    """A field with a duration of at most 1e10 seconds. One below a nanosecond, which no clock measures, becomes 0: a
    rate over it would not be finite."""
    number = _number(0, 1e10)

    def fit(value: Any) -> Any:
        found = number.fit(value)
        return found if found is _NOTHING or found >= 1e-9 else 0.0

    return Field(number.most, fit)


def _text(most: int, pattern: str = "") -> Field:
    """A field with text of at most ``most`` bytes in UTF-8. Longer text is cut, and characters that a database refuses
    become U+FFFD. If ``pattern`` is given, the whole text must match it."""

    def fit(value: Any) -> Any:
        if not isinstance(value, str):
            return _NOTHING
        text = clean(value, most)
        return text if not pattern or re.fullmatch(pattern, text) else _NOTHING

    return Field(_ESCAPED * most + 2, fit)


def _metrics(most: int = 64) -> Field:
    """A field with at most ``most`` numbers by name; of more numbers the first ones are kept. A value that is no finite
    number, such as a diverged loss, becomes None."""

    def fit(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _NOTHING
        found: dict[str, float | None] = {}
        for name, item in value.items():
            if len(found) == most:
                break
            if isinstance(name, str) and name == clean(name, _NAME_BYTES):
                number = _NUMBER.fit(item)
                found[name] = None if number is _NOTHING else number
        return found

    return Field(most * (_ESCAPED * _NAME_BYTES + 32) + 2, fit)


def _fit_exit(value: Any) -> Any:
    return value if isinstance(value, str) and value in set(ExitKind) else ExitKind.LOST.value


def _fit_allocations(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _NOTHING
    return [number for number in value[:_MOST_ALLOCATIONS] if _ALLOCATION.fit(number) is not _NOTHING]


def _fit_ports(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_PORTS:
        return _NOTHING
    return list(value) if all(_PORT.fit(port) is not _NOTHING for port in value) else _NOTHING


def _fit_step_times(value: Any) -> Any:
    found = step_times.fitted(value)
    return _NOTHING if found is None else found


_FLAG = Field(5, lambda value: value if isinstance(value, bool) else _NOTHING)
_NUMBER = _number()
_SECONDS = _seconds()
_STEP = _whole()
_COUNT = _whole(high=INT32)
_MESSAGE = _text(1000)
_ALLOCATION = _whole(1)
_ALLOCATIONS = Field(18 * _MOST_ALLOCATIONS + 2, _fit_allocations)
"""A list of allocations; of more than ``_MOST_ALLOCATIONS`` the first ones are kept."""
_PORT = _whole(1, 65535)
_PORTS = Field(6 * _MOST_PORTS + 2, _fit_ports)
"""A list of ports. It is refused whole if one of them is no port, or if there are more than a node has slots."""
_STEP_TIMES = Field(step_times.BYTES, _fit_step_times)
_EXIT = Field(16, _fit_exit)
"""An ``ExitKind``. Any other value becomes LOST, after which the platform only tries again."""


@dataclass(frozen=True)
class Body:
    """The fields of one kind of report, the processes that may write it, and how often they may.

    All fields except those in ``needs`` may be missing or None, which means unknown. A report that lacks a field of
    ``needs`` is dropped.
    """

    fields: Mapping[str, Field]
    """The allowed fields by name."""
    needs: tuple[str, ...] = ()
    """Names of the fields that may not be missing."""
    of_training: bool = False
    """Whether coordinator and engines may write reports of this kind. User code runs in engines, so a supervisor
    accepts no reports of other kinds from them; it writes those itself."""
    burst: int = 1000
    """Number of reports of this kind that an attempt may send to the platform at once."""
    a_minute: int = 60
    """Number of further reports that it may send each minute. The agent leaves out the others and counts them in one
    report (REPORTS_LEFT_OUT)."""


BODIES: Mapping[ReportKind, Body] = {
    ReportKind.ATTEMPT_STARTED: Body({"pid": _COUNT}),
    ReportKind.COORDINATOR_AT: Body({"address": _text(300, r"[^\s/]{1,255}:\d{1,5}")}, needs=("address",)),
    ReportKind.PORTS_RESERVED: Body({"ports": _PORTS}, needs=("ports",), burst=10, a_minute=6),
    ReportKind.ENGINES_KNOWN: Body(
        {
            "engines": _whole(1, 1 << 20),
            "steps_total": _STEP,
            "epochs": _COUNT,
            "follows_engines": _FLAG,
        },
        needs=("engines",),
        of_training=True,
        burst=100,
        a_minute=6,
    ),
    ReportKind.ENGINE_STARTED: Body(
        {"allocation": _ALLOCATION, "slot": _text(64), "pid": _COUNT}, needs=("allocation",), burst=10_000, a_minute=600
    ),
    ReportKind.ENGINE_JOINED: Body(
        {"allocation": _ALLOCATION, "generation": _COUNT, "step": _STEP},
        needs=("allocation",),
        of_training=True,
        burst=10_000,
        a_minute=600,
    ),
    ReportKind.ENGINE_COUNTED: Body(
        {"allocation": _ALLOCATION, "step": _STEP},
        needs=("allocation",),
        of_training=True,
        burst=10_000,
        a_minute=600,
    ),
    ReportKind.ENGINE_GONE: Body(
        {
            "allocation": _ALLOCATION,
            "slot": _text(64),
            "kind": _EXIT,
            "code": _whole(-INT32, INT32),
            "signal": _whole(0, 255),
            "seconds": _SECONDS,
            "oom": _FLAG,
            "message": _MESSAGE,
        },
        needs=("allocation",),
        burst=10_000,
        a_minute=600,
    ),
    ReportKind.PULL_FAILED: Body(
        {"allocation": _ALLOCATION, "count": _COUNT, "limit": _COUNT}, of_training=True, burst=100, a_minute=6
    ),
    ReportKind.RESIZED: Body(
        {
            "generation": _COUNT,
            "step": _STEP,
            "workers": _COUNT,
            "pause_seconds": _SECONDS,
            "joined": _ALLOCATIONS,
            "left": _ALLOCATIONS,
            "lost": _ALLOCATIONS,
            "recomputed": _COUNT,
        },
        of_training=True,
        burst=2000,
        a_minute=60,
    ),
    ReportKind.PROGRESS: Body(
        {
            "step": _STEP,
            "steps_total": _STEP,
            "epoch": _COUNT,
            "epochs": _COUNT,
            "workers": _COUNT,
            "loss": _NUMBER,
            "samples_per_second": _number(0),
            "metrics": _metrics(),
            "samples": _STEP,
            "seconds": _SECONDS,
            "step_times": _STEP_TIMES,
        },
        of_training=True,
        burst=50_000,
        a_minute=600,
    ),
    ReportKind.VALIDATED: Body(
        {
            "step": _STEP,
            "epoch": _COUNT,
            "workers": _COUNT,
            "samples": _STEP,
            "seconds": _SECONDS,
            "metrics": _metrics(),
        },
        needs=("step", "metrics"),
        of_training=True,
        burst=20_000,
        a_minute=600,
    ),
    ReportKind.BEST_KEPT: Body(
        {
            "metric": _text(2 * _NAME_BYTES),
            "mode": _text(3, "min|max"),
            "value": _NUMBER,
            "epoch": _COUNT,
            "step": _STEP,
            "file": _text(255),
        },
        needs=("metric", "value"),
        of_training=True,
        burst=20_000,
        a_minute=600,
    ),
    ReportKind.CHECKPOINTED: Body({"step": _STEP, "path": _text(1024)}, of_training=True, burst=2000, a_minute=60),
    ReportKind.GUARANTEE_ENDED: Body(
        {
            "what": _text(400),
            "why": _MESSAGE,
            "engine": _STEP,
            "step": _STEP,
            "difference": _text(400),
        },
        of_training=True,
        burst=100,
        a_minute=6,
    ),
    ReportKind.REPLICAS_COMPARED: Body(
        {"step": _STEP, "engines": _whole(2, INT32), "equal": _FLAG, "reason": _text(64)},
        needs=("step", "engines", "equal"),
        of_training=True,
        burst=2000,
        a_minute=120,
    ),
    ReportKind.CORRUPTED: Body(
        {"allocations": _ALLOCATIONS, "certain": _FLAG, "step": _STEP, "micro_batch": _COUNT},
        needs=("step", "micro_batch"),
        of_training=True,
        burst=100,
        a_minute=6,
    ),
    ReportKind.STORAGE: Body(
        {"place": _text(64), "error": _text(400), "seconds": _SECONDS, "given_up": _COUNT},
        needs=("place",),
        of_training=True,
        burst=200,
        a_minute=12,
    ),
    ReportKind.RESTARTED: Body({"what": _text(64), "why": _MESSAGE, "count": _COUNT}, burst=200, a_minute=12),
    ReportKind.ATTEMPT_ENDED: Body(
        {
            "kind": _EXIT,
            "code": _whole(-INT32, INT32),
            "message": _MESSAGE,
            "digest": _text(128, r"[0-9A-Za-z:+/=_-]*"),
            "step": _STEP,
            "whole": _FLAG,
            "failed_step": _STEP,
            "oom": _FLAG,
        }
    ),
    ReportKind.REPORTS_LEFT_OUT: Body({"first": _whole(1), "why": _MESSAGE, "counts": _metrics(32)}, needs=("first",)),
}


@dataclass(frozen=True)
class Fitted:
    """A body as it may be stored, and the faults of the original body."""

    body: dict[str, Any] | None
    """The body; None: a field that its kind needs is missing, so the report must be dropped."""
    faults: tuple[str, ...] = ()
    """One sentence about each fault, without the values."""


def fit(kind: ReportKind, body: Any) -> Fitted:
    """Turn any JSON value into the body of a report of this kind. Never raises."""
    known = BODIES[kind]
    if not isinstance(body, Mapping):
        return Fitted(None if known.needs else {}, (f"{kind}: its body is no object",))
    fitted: dict[str, Any] = {}
    faults = []
    for name, allowed in known.fields.items():
        if name not in body:
            continue
        value = body[name]
        if value is None and name not in known.needs and allowed is not _EXIT:
            fitted[name] = None
            continue
        found = allowed.fit(value)
        if found is _NOTHING:
            faults.append(f"{kind}: {name} is not what it may be")
        else:
            fitted[name] = found
    if unknown := sum(name not in known.fields for name in body):
        faults.append(f"{kind}: {unknown} unknown field{'s' if unknown > 1 else ''}")
    if missing := [name for name in known.needs if name not in fitted]:
        return Fitted(None, (*faults, f"{kind}: {missing[0]} is missing"))
    return Fitted(fitted, tuple(faults))


def fit_time(value: Any, now: float) -> float:
    """The time of a report as seconds since the epoch, between the years 1970 and 9999.

    Args:
        value: the time as it was read; any JSON value.
        now: seconds since the epoch; returned if ``value`` is not such a time.
    """
    found = _number(0, LATEST).fit(value)
    return now if found is _NOTHING else float(found)


def clean(text: str, most: int) -> str:
    """The text cut to at most ``most`` bytes in UTF-8, with U+FFFD for control characters (except tab, newline and
    carriage return) and halves of surrogate pairs."""
    text = _ODD.sub("\ufffd", text[:most])
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
