"""What a training did: samples from the engines' records, losses from its log.

The engines record what each step was tried with, and which try was committed. The counting is done here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edt_demo.sample_record import Entry, RecordError, audit, read


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
        sentences = [
            f"epoch {gap.epoch}, step {_listed(gap.steps) or 'unknown'}: samples {_listed(gap.samples)} were lost"
            for gap in self.gaps
        ]
        if self.repeated:
            sentences.append(f"{self.repeated} samples were trained on more than once in an epoch")
        return "; ".join(sentences)


def count(folder: Path, *, samples: int, epochs: int, micro_batches: int) -> Count:
    """Count what the record below ``folder`` holds of a training of ``epochs`` passes over ``samples`` samples."""
    try:
        entries = read(folder)
    except RecordError as error:
        return Count(0, samples * epochs, (), 0, str(error))
    return count_entries(entries, samples=samples, epochs=epochs, micro_batches=micro_batches)


def count_entries(entries: Sequence[Entry], *, samples: int, epochs: int, micro_batches: int) -> Count:
    """The same of entries at hand. Pure."""
    audits = audit(entries, samples, epochs)
    return Count(
        trained=sum(len(entry.samples) for entry in entries),
        expected=samples * epochs,
        gaps=tuple(
            Gap(found.epoch + 1, _incomplete(entries, found.epoch, micro_batches), found.lost)
            for found in audits
            if found.lost
        ),
        repeated=sum(len(found.repeated) for found in audits),
    )


def _incomplete(entries: Sequence[Entry], epoch: int, micro_batches: int) -> tuple[int, ...]:
    """Steps of an epoch that lack a micro-batch."""
    workers: dict[int, set[int]] = {}
    for entry in entries:
        workers.setdefault(entry.step, set())
        if entry.epoch == epoch:
            workers[entry.step].add(entry.micro_batch)
    steps = [entry.step for entry in entries if entry.epoch == epoch]
    if not steps:
        return ()
    return tuple(step + 1 for step in range(min(steps), max(steps) + 1) if len(workers.get(step, ())) < micro_batches)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


_LINE = re.compile(r"\] Train,\tTimestamp: (\d+),\tGlobal steps: (\d+),.*?\tLoss: ([0-9.naif]+)")


@dataclass(frozen=True)
class LossPoint:
    """One committed step."""

    time: float
    """Seconds since the epoch, wall clock."""
    step: int
    loss: float


def losses(log: str) -> tuple[LossPoint, ...]:
    """The loss of each step in a log of WMLA's format, the last where a step was logged twice; in order."""
    found = {int(step): LossPoint(int(time) / 1000, int(step), float(loss)) for time, step, loss in _LINE.findall(log)}
    return tuple(found[number] for number in sorted(found))
