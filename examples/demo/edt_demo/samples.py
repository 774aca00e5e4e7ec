"""Counting: was every sample trained on once an epoch? Room: examples; reads the engines' sample record.

The record is written by the engines: what each step was tried with, and which try was committed. The counting is
ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edt_runner.engine.record import Entry, audit, read
from edt_runner.errors import RecordError


@dataclass(frozen=True)
class Gap:
    """What one epoch did not train on, and where."""

    epoch: int
    """Counted from 1, as the log does; so is the step."""
    steps: tuple[int, ...]
    """Steps of which a micro-batch is missing."""
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Count:
    """What became of all samples of a training."""

    trained: int
    """Samples in committed steps, over all epochs."""
    expected: int
    gaps: tuple[Gap, ...]
    repeated: int
    """Samples that an epoch trained on more than once."""
    broken: str | None = None
    """Why the record cannot be counted: it says what must never happen."""

    @property
    def lost(self) -> int:
        return sum(len(gap.samples) for gap in self.gaps)

    @property
    def exact(self) -> bool:
        return not self.lost and not self.repeated and not self.broken

    def in_words(self) -> str:
        """A sentence that names each step and each sample that is missing."""
        if self.broken:
            return self.broken
        if self.exact:
            return f"{self.trained:,} of {self.expected:,} samples trained on, 0 lost, 0 repeated"
        parts = [
            f"epoch {gap.epoch}, step {_listed(gap.steps) or 'unknown'}: samples {_listed(gap.samples)} were lost"
            for gap in self.gaps
        ]
        if self.repeated:
            parts.append(f"{self.repeated} samples were trained on more than once in an epoch")
        return "; ".join(parts)


def count(folder: Path, *, samples: int, epochs: int, logical_workers: int) -> Count:
    """Count what the record below ``folder`` holds of a training of ``epochs`` passes over ``samples`` samples."""
    try:
        entries = read(folder)
    except RecordError as error:
        return Count(0, samples * epochs, (), 0, str(error))
    return count_entries(entries, samples=samples, epochs=epochs, logical_workers=logical_workers)


def count_entries(entries: Sequence[Entry], *, samples: int, epochs: int, logical_workers: int) -> Count:
    """The same of entries at hand. Pure."""
    audits = audit(entries, samples, epochs)
    return Count(
        trained=sum(len(entry.samples) for entry in entries),
        expected=samples * epochs,
        gaps=tuple(
            Gap(found.epoch + 1, _incomplete(entries, found.epoch, logical_workers), found.lost)
            for found in audits
            if found.lost
        ),
        repeated=sum(len(found.repeated) for found in audits),
    )


def _incomplete(entries: Sequence[Entry], epoch: int, logical_workers: int) -> tuple[int, ...]:
    """Steps of an epoch that lack a micro-batch."""
    workers: dict[int, set[int]] = {}
    for entry in entries:
        workers.setdefault(entry.step, set())
        if entry.epoch == epoch:
            workers[entry.step].add(entry.worker)
    steps = [entry.step for entry in entries if entry.epoch == epoch]
    if not steps:
        return ()
    return tuple(step + 1 for step in range(min(steps), max(steps) + 1) if len(workers.get(step, ())) < logical_workers)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
