"""Reads traces of available devices, and computes from them the number of engines of each update.

A trace is a CSV with a column ``Time`` (seconds of any clock, or ISO dates) and a column of counts, for example
``GPUs`` or ``TPU_cores``. The count of a row holds from the row's time to the time of the next row. The trace has no
facts about a training, so the user must give the number of devices of an engine, the largest number of engines, and
the duration of an update.
"""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edt_runner.errors import UsageError

TIME = "time"
_KNOWN = ("gpus", "tpu_cores", "count", "devices", "nodes", "available")
"""Names of count columns; the first name that the CSV has counts."""


@dataclass(frozen=True)
class Availability:
    """The number of devices over time.

    Args:
        seconds: time of each row in seconds since the first row, ascending.
        devices: number of devices from each row's time to the next row's time.
        end: seconds at which the last row's count ends. The last row lasts as long as the row before it.
        column: name of the column of counts.
    """

    seconds: tuple[float, ...]
    devices: tuple[int, ...]
    end: float
    column: str

    def engines(self, unit: int, most: int | None) -> tuple[int, ...]:
        """The number of engines for which each row has room. ``unit``: devices of an engine; ``most``: largest number
        of engines; None: no limit."""
        return tuple(min(count // unit, count if most is None else most) for count in self.devices)

    def lasting(self, engines: Sequence[int], micro_batches: int) -> float:
        """The duration of an update with which the trace lasts exactly for a training.

        Args:
            engines: number of engines in each row.
            micro_batches: micro-batches of the training.

        Returns:
            Seconds of one update.

        Raises:
            UsageError: no row has room for an engine.
        """
        total = sum(count * length for count, length in zip(engines, self._lengths(), strict=True))
        if not total:
            raise UsageError(
                f"{self.column}: got no row with room for one engine (the most devices are {max(self.devices)}), takes "
                "one at least; --unit says how many devices an engine takes"
            )
        return total / micro_batches

    def _lengths(self) -> tuple[float, ...]:
        return tuple(later - begun for begun, later in zip(self.seconds, (*self.seconds[1:], self.end), strict=True))


class Walk:
    """Iterator over the number of engines of each update, to the end of the trace.

    At each time the job has as many engines as the present row says. An update takes ``step_seconds`` for any number
    of engines: more engines make an update larger, not longer. While there are no engines, no update is made.

    ``now`` is the position in the trace in seconds; ``waited`` is the number of seconds without an engine so far.

    Args:
        trace: the trace.
        engines: number of engines in each row.
        step_seconds: seconds of one update.

    Raises:
        UsageError: ``step_seconds`` is not a finite number above 0.
    """

    def __init__(self, trace: Availability, engines: Sequence[int], step_seconds: float) -> None:
        if not 0 < step_seconds < math.inf:
            raise UsageError(f"step_seconds: got {step_seconds!r}, takes a number of seconds above 0")
        self._trace, self._engines, self._step = trace, engines, step_seconds
        self.now = self.waited = 0.0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        starts = self._trace.seconds
        while self.now < self._trace.end:
            row = bisect.bisect_right(starts, self.now) - 1
            if self._engines[row]:
                self.now += self._step
                return self._engines[row]
            until = starts[row + 1] if row + 1 < len(starts) else self._trace.end
            self.waited += until - self.now
            self.now = until
        raise StopIteration


def is_availability(header: Sequence[str]) -> bool:
    """Whether a CSV with these columns is a trace of devices."""
    return TIME in _plain(header)


def read(path: Path, column: str | None = None) -> Availability:
    """Read a trace of devices from a CSV.

    Args:
        path: the file.
        column: name of the column of counts; None: a known name, or the only other column.

    Raises:
        UsageError: the file is no such trace; the message names the column, or the row and its value.
        OSError: the file cannot be read.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    if not rows or not is_availability(rows[0]):
        raise UsageError(f"{path}: got the columns {_names(rows[0] if rows else ())}, takes Time and a count")
    header = rows[0]
    when, which = _plain(header).index(TIME), _count_column(path, header, column)
    times, devices = [], []
    for number, row in enumerate(rows[1:], 1):
        if len(row) <= max(when, which):
            raise UsageError(f"{path}: row {number}: got {len(row)} columns, takes {len(header)}")
        times.append(_time(path, number, row[when]))
        devices.append(_count(path, number, header[which].strip(), row[which]))
        if number > 1 and times[-1] <= times[-2]:
            raise UsageError(f"{path}: row {number}: got Time {row[when].strip()}, takes one later than the row before")
    if not times:
        raise UsageError(f"{path}: got no rows, takes one at least")
    seconds = tuple(time - times[0] for time in times)
    end = seconds[-1] + (seconds[-1] - seconds[-2] if len(seconds) > 1 else 1.0)
    return Availability(seconds, tuple(devices), end, header[which].strip())


def _count_column(path: Path, header: Sequence[str], wanted: str | None) -> int:
    plain = _plain(header)
    if wanted is not None:
        if wanted.strip().lower() not in plain:
            raise UsageError(f"column: got {wanted!r}, takes one of {_names(header)} of {path}")
        return plain.index(wanted.strip().lower())
    found = next((plain.index(name) for name in _KNOWN if name in plain), None)
    if found is not None:
        return found
    others = [number for number, name in enumerate(plain) if name and name != TIME and not name.startswith("unnamed")]
    if len(others) != 1:
        raise UsageError(f"column: got none, takes the one of {_names(header)} that holds the counts of {path}")
    return others[0]


def _plain(header: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _names(header: Sequence[str]) -> str:
    return ", ".join(repr(name.strip()) for name in header if name.strip()) or "none"


def _time(path: Path, number: int, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text.strip()).timestamp()
        except ValueError:
            found = math.nan
    if not math.isfinite(found):
        raise UsageError(f"{path}: row {number}: got Time {text.strip()!r}, takes seconds or an ISO date")
    return found


def _count(path: Path, number: int, name: str, text: str) -> int:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0 and found.is_integer()):
        raise UsageError(
            f"{path}: row {number}: got {name} {text.strip()!r}, takes a whole number of devices, at least 0"
        )
    return int(found)
