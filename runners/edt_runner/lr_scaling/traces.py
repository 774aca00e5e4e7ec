"""Traces of batch sizes: one global batch, in samples, for each update of a training.

An epoch takes entries of the trace in turn while they fit into its samples. The first entry that has more samples than
the epoch has left begins the next epoch. The samples that are left over are not trained on in that epoch. If the trace
ends within an epoch, that epoch is complete if another entry like the last would not have fitted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, repeat, takewhile
from pathlib import Path
from typing import Any

from edt_runner.errors import UsageError, whole_number

COLUMN = "batchsize"
ENDINGS = ("error", "hold", "cycle", "stop")
_TAKES = (
    "the path of a CSV file, a list, a tuple, a NumPy array, a data frame, a generator, a function of the step or a "
    "whole number"
)


class TraceEnded(UsageError, IndexError):
    """The trace has no entry for the step that was asked for."""


class Trace:
    """Batch sizes by step, and the epochs that they form. Entries are read when they are needed.

    Args:
        source: the path of a CSV file with a column ``batchsize``; an object with such a column, for example a data
            frame; a list, a tuple, an array or a generator; a function of the step, which returns None to end the
            trace; or one number for all steps.
        micro_batch: samples of a micro-batch; each entry must be a multiple of it.
        capacity: the most samples of one epoch; None: no bound.
        at_end: what follows the last entry. ``error``: TraceEnded, also if the trace ends in the middle of an epoch.
            ``hold``: the last entry is repeated. ``cycle``: the trace is repeated from its beginning. ``stop``:
            nothing; the last epoch may be short, and the epochs after it are empty.

    Raises:
        UsageError: an entry is no whole number above 0, no multiple of ``micro_batch``, or more than an epoch; the
            message names its step. Entries that are known are checked at once; those of a generator or a function
            are checked when they are read.
        FileNotFoundError: there is no such file.
    """

    def __init__(
        self, source: Any, *, micro_batch: int = 1, capacity: int | None = None, at_end: str = "error"
    ) -> None:
        if at_end not in ENDINGS:
            raise UsageError(f"at_end: got {at_end!r}, takes one of {', '.join(ENDINGS)}")
        self.micro_batch = micro_batch
        self.capacity = capacity
        self.at_end = at_end
        self._entries: list[int] = []
        self._more: Iterator[Any] | None
        self._starts = [0]
        """First steps of all epochs whose first step is known."""
        known, self._more = _values(source)
        for value in known:
            self._take(value)
        if isinstance(self._more, repeat):
            self._read(0)
        if self._more is None and not self._entries:
            raise UsageError("trace: got no entries, takes at least one")

    def __getitem__(self, step: int) -> int:
        """The global batch, in samples, of a step. Steps are counted over all epochs.

        Raises:
            TraceEnded: the step is behind the last entry, and ``at_end`` gives no entry for it.
            UsageError: the step is negative.
        """
        if step < 0:
            raise UsageError(f"step: got {step}, takes a whole number, at least 0")
        self._read(step)
        if step < len(self._entries):
            return self._entries[step]
        if self.at_end == "hold" and self._entries:
            return self._entries[-1]
        if self.at_end == "cycle" and self._entries:
            return self._entries[step % len(self._entries)]
        raise TraceEnded(
            f"trace: it ended after {len(self._entries)} steps and has no batch for step {step}; a longer one is "
            "needed, or at_end='hold', 'cycle' or 'stop'"
        )

    @property
    def entries(self) -> list[int] | None:
        """All entries; None if the source may have more."""
        return None if self._more is not None else list(self._entries)

    def epoch_range(self, epoch: int) -> tuple[int, int]:
        """The steps of an epoch: its first step, and the first step after it.

        Raises:
            TraceEnded: the trace ends before the epoch does, and ``at_end`` is ``error``.
            UsageError: ``capacity`` is None.
        """
        if self.capacity is None:
            raise UsageError("capacity: got None, takes the samples of an epoch")
        while len(self._starts) < epoch + 2:
            self._starts.append(self._behind(self._starts[-1], len(self._starts) - 1))
        return self._starts[epoch], self._starts[epoch + 1]

    def epoch(self, epoch: int) -> list[int]:
        """The global batches, in samples, of an epoch's updates."""
        start, end = self.epoch_range(epoch)
        return [self[step] for step in range(start, end)]

    @property
    def whole_epochs(self) -> int | None:
        """How many epochs the trace's own entries fill; None: there is no end, or the end is not known yet."""
        if self._more is not None or self.capacity is None or self.at_end in ("hold", "cycle"):
            return None
        epochs, left = 0, self.capacity
        for entry in self._entries:
            if entry > left:
                epochs, left = epochs + 1, self.capacity
            left -= entry
        return epochs + (left < self._entries[-1])

    def _behind(self, start: int, epoch: int) -> int:
        """The first step after the epoch that begins at step ``start``."""
        assert self.capacity is not None
        left, step = self.capacity, start
        while left >= self.micro_batch:
            try:
                entry = self[step]
            except TraceEnded:
                if self.at_end == "stop" or (step > start and left < self._entries[-1]):
                    return step
                raise TraceEnded(
                    f"trace: it ended after {len(self._entries)} steps, in epoch {epoch} with {left} of "
                    f"{self.capacity} samples left; a longer one is needed, or at_end='hold', 'cycle' or 'stop'"
                ) from None
            if entry > left:
                return step
            left, step = left - entry, step + 1
        return step

    def _read(self, step: int) -> None:
        """Read entries until ``step`` is known or there are no more."""
        while self._more is not None and len(self._entries) <= step:
            try:
                value = next(self._more)
            except StopIteration:
                self._more = None
            else:
                self._take(value)

    def _take(self, value: Any) -> None:
        step = len(self._entries)
        batch = whole_number(value)
        if batch is None or batch < 1:
            raise UsageError(f"trace: got {value!r} at step {step}, takes a whole number of samples, at least 1")
        if batch % self.micro_batch:
            raise UsageError(f"trace: got {batch} at step {step}, takes a multiple of {self.micro_batch}")
        if self.capacity is not None and batch > self.capacity:
            raise UsageError(
                f"trace: got {batch} at step {step}, takes at most {self.capacity}, the samples of an epoch"
            )
        self._entries.append(batch)


def _values(source: Any) -> tuple[Iterable[Any], Iterator[Any] | None]:
    """The values of a source: those that are known now, and an iterator over those that come later."""
    if isinstance(source, str | Path):
        return _csv(Path(source)), None
    if whole_number(source) is not None:
        return (), repeat(source)
    if isinstance(source, Mapping) or hasattr(source, "columns"):
        return _column(source), None
    if hasattr(source, "tolist"):  # an array of one dimension, also of torch and pandas
        values = source.tolist()
        if not isinstance(values, list):
            raise UsageError(f"trace: got {values!r}, takes {_TAKES}")
        return values, None
    if isinstance(source, list | tuple | range):
        return source, None
    if isinstance(source, Iterable):
        return (), iter(source)
    if callable(source):
        return (), takewhile(lambda value: value is not None, map(source, count()))
    raise UsageError(f"trace: got {source!r}, takes {_TAKES}")


def _column(frame: Any) -> list[Any]:
    names = list(frame) if isinstance(frame, Mapping) else list(frame.columns)
    for name in names:
        if str(name).strip() == COLUMN:
            return list(frame[name])
    raise UsageError(f"trace: its columns are {', '.join(map(str, names))}, takes one named {COLUMN}")


def _csv(path: Path) -> list[Any]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, skipinitialspace=True)
        header = [name.strip() for name in next(rows, [])]
        if COLUMN not in header:
            raise UsageError(f"trace: the columns of {path} are {', '.join(header)}, takes one named {COLUMN}")
        place = header.index(COLUMN)
        return [_number(row[place].strip()) if place < len(row) else None for row in rows if row]


def _number(text: str) -> int | str:
    """The cell as a whole number; if it is none, the text itself, for the error message."""
    try:
        return int(text)
    except ValueError:
        return text
