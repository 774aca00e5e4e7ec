"""What the body of each kind of report may hold: a table, for who writes, carries and takes reports. Room: runners.

Pure. A report lies on a disk that a job's own processes may be able to write, and it passes through processes that run
user code. So nobody believes its form: supervisor, agent and scheduler each make every body ``fit`` this table. What
comes out has known keys alone, each of a known type and range, fits every column that it is stored in, and has at most
``BODY_BYTES`` as JSON. A new kind needs an entry in ``BODIES``; a new field needs one in its kind's entry, or it is
left out on the way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from edt_runner.contract import ExitKind, ReportKind

BODY_BYTES = 16 << 10
"""No body is longer as JSON, whatever is in it; a test computes that from the table. Most have some hundred bytes."""
LINE_BYTES = 20 << 10
"""No report is longer, newline included; a longer line is no report."""
BATCH_BYTES = 512 << 10
"""An agent sends, and the API takes, no more reports at once than have so many bytes."""
BATCH_REPORTS = 256
"""Nor more reports than this."""

INT32, INT64 = 2**31 - 1, 2**53 - 1
"""The largest numbers for columns of 32 and of 64 bits. A browser reads integers exactly up to the second."""
LATEST = 253_402_300_799.0
"""Seconds since the epoch at the end of the year 9999: no calendar goes on."""

_NOTHING = object()
_NAME_BYTES = 64
_ESCAPED = 3
"""Bytes that clean text may take as JSON for each byte that it has in UTF-8."""


class Field(Protocol):
    """What a value may be."""

    @property
    def most(self) -> int:
        """Bytes of the longest one as JSON."""

    def fit(self, value: Any) -> Any:
        """The value as it may be stored, or ``_NOTHING``."""


@dataclass(frozen=True)
class Whole:
    """An integer."""

    low: int = 0
    high: int = INT64
    most: int = 17

    def fit(self, value: Any) -> Any:
        is_one = isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high
        return int(value) if is_one else _NOTHING


@dataclass(frozen=True)
class Number:
    """A finite number."""

    low: float = -math.inf
    high: float = math.inf
    most: int = 26

    def fit(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _NOTHING
        try:
            number = float(value)
        except OverflowError:
            return _NOTHING
        return number if math.isfinite(number) and self.low <= number <= self.high else _NOTHING


@dataclass(frozen=True)
class Flag:
    """True or false."""

    most: int = 5

    def fit(self, value: Any) -> Any:
        return value if isinstance(value, bool) else _NOTHING


@dataclass(frozen=True)
class Text:
    """Text of so many bytes in UTF-8; longer text is cut, what no database takes becomes U+FFFD."""

    bytes: int
    pattern: str = ""

    @property
    def most(self) -> int:
        return _ESCAPED * self.bytes + 2

    def fit(self, value: Any) -> Any:
        if not isinstance(value, str):
            return _NOTHING
        text = clean(value, self.bytes)
        return text if not self.pattern or re.fullmatch(self.pattern, text) else _NOTHING


@dataclass(frozen=True)
class Exit:
    """How something ended. What is no kind of exit counts as lost: the kind that only tries again."""

    most: int = 16

    def fit(self, value: Any) -> Any:
        return value if isinstance(value, str) and value in set(ExitKind) else ExitKind.LOST.value


@dataclass(frozen=True)
class Allocations:
    """Some allocations; of more than ``number`` the first."""

    number: int = 256

    @property
    def most(self) -> int:
        return 18 * self.number + 2

    def fit(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return _NOTHING
        return [number for number in value[: self.number] if _ALLOCATION.fit(number) is not _NOTHING]


@dataclass(frozen=True)
class Metrics:
    """Numbers by name; of more than ``number`` the first. None: a value that is no number, as a diverged loss is."""

    number: int = 64

    @property
    def most(self) -> int:
        return self.number * (_ESCAPED * _NAME_BYTES + 32) + 2

    def fit(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return _NOTHING
        found: dict[str, float | None] = {}
        for name, item in value.items():
            if len(found) == self.number:
                break
            if isinstance(name, str) and name == clean(name, _NAME_BYTES):
                number = Number().fit(item)
                found[name] = None if number is _NOTHING else number
        return found


@dataclass(frozen=True)
class Body:
    """What a kind of report holds, who may say it, and how often.

    Every field may be missing or None, which means that nobody knows, but those in ``needs``: without them the report
    says nothing, and counts as none.
    """

    fields: Mapping[str, Field]
    needs: tuple[str, ...] = ()
    of_training: bool = False
    """The training itself says it: coordinator and engines, beside which user code runs. All else a supervisor says
    of what it has seen, so it takes no such report from them."""
    burst: int = 1000
    """So many of an attempt are carried to the platform whenever they come …"""
    a_minute: int = 60
    """… and from then on so many a minute. What is beyond is counted and told in one report (REPORTS_LEFT_OUT)."""


_ALLOCATION = Whole(1)
_MESSAGE = Text(1000)
_STEP = Whole()
_COUNT = Whole(high=INT32)

_BODIES: dict[ReportKind, Body] = {
    ReportKind.ATTEMPT_STARTED: Body({"pid": _COUNT}),
    ReportKind.COORDINATOR_AT: Body({"address": Text(300, r"[^\s/]{1,255}:\d{1,5}")}, needs=("address",)),
    ReportKind.ENGINES_KNOWN: Body(
        {
            "engines": Whole(1, 1 << 20),
            "steps_total": _STEP,
            "epochs": _COUNT,
            "follows_engines": Flag(),
        },
        needs=("engines",),
        of_training=True,
        burst=100,
        a_minute=6,
    ),
    ReportKind.ENGINE_STARTED: Body(
        {"allocation": _ALLOCATION, "slot": Text(64), "pid": _COUNT}, needs=("allocation",), burst=10_000, a_minute=600
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
            "slot": Text(64),
            "kind": Exit(),
            "code": Whole(-INT32, INT32),
            "signal": Whole(0, 255),
            "seconds": Number(0, 1e10),
            "oom": Flag(),
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
            "pause_seconds": Number(0, 1e10),
            "joined": Allocations(),
            "left": Allocations(),
            "lost": Allocations(),
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
            "loss": Number(),
            "samples_per_second": Number(0),
            "metrics": Metrics(),
        },
        of_training=True,
        burst=50_000,
        a_minute=600,
    ),
    ReportKind.CHECKPOINTED: Body({"step": _STEP, "path": Text(1024)}, of_training=True, burst=2000, a_minute=60),
    ReportKind.GUARANTEE_ENDED: Body(
        {
            "what": Text(400),
            "why": _MESSAGE,
            "engine": Whole(),
            "step": _STEP,
            "difference": Text(400),
        },
        of_training=True,
        burst=100,
        a_minute=6,
    ),
    ReportKind.REPLICAS_COMPARED: Body(
        {"step": _STEP, "engines": Whole(2, INT32), "equal": Flag(), "reason": Text(64)},
        needs=("step", "engines", "equal"),
        of_training=True,
        burst=2000,
        a_minute=120,
    ),
    ReportKind.STORAGE: Body(
        {"place": Text(64), "error": Text(400), "seconds": Number(0, 1e10), "given_up": _COUNT},
        needs=("place",),
        of_training=True,
        burst=200,
        a_minute=12,
    ),
    ReportKind.RESTARTED: Body({"what": Text(64), "why": _MESSAGE, "count": _COUNT}, burst=200, a_minute=12),
    ReportKind.ATTEMPT_ENDED: Body(
        {
            "kind": Exit(),
            "code": Whole(-INT32, INT32),
            "message": _MESSAGE,
            "digest": Text(128, r"[0-9A-Za-z:+/=_-]*"),
            "step": _STEP,
            "whole": Flag(),
            "failed_step": _STEP,
            "oom": Flag(),
        }
    ),
    ReportKind.REPORTS_LEFT_OUT: Body({"first": Whole(1), "why": _MESSAGE, "counts": Metrics(32)}, needs=("first",)),
}
BODIES: Mapping[ReportKind, Body] = MappingProxyType(_BODIES)


@dataclass(frozen=True)
class Fitted:
    """A body as it may be stored, and what of the one that came did not fit."""

    body: dict[str, Any] | None
    """None: what its kind needs is not there, so it is no report."""
    faults: tuple[str, ...] = ()
    """One sentence each, without the values."""


def fit(kind: ReportKind, body: Any) -> Fitted:
    """Make any JSON value the body of a report of this kind. Never raises."""
    known = BODIES[kind]
    if not isinstance(body, Mapping):
        return Fitted(None if known.needs else {}, (f"{kind}: its body is no object",))
    fitted: dict[str, Any] = {}
    faults = []
    for name, field in known.fields.items():
        if name not in body:
            continue
        value = body[name]
        if value is None and name not in known.needs and not isinstance(field, Exit):
            fitted[name] = None
            continue
        found = field.fit(value)
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
    """When something happened, as seconds since the epoch that a calendar knows; ``now`` where that cannot be read."""
    found = Number(0, LATEST).fit(value)
    return now if found is _NOTHING else float(found)


def clean(text: str, most: int) -> str:
    """Text of at most ``most`` bytes in UTF-8, with U+FFFD for control characters and halves of surrogate pairs."""
    text = _ODD.sub("\ufffd", text[:most])
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


_ODD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
