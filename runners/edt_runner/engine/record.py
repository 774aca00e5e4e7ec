"""The sample record: which samples each committed step was made of. Room: runners; files only.

Off unless EDT_SAMPLE_RECORD names a folder. Each engine appends to a file of its own, a line a micro-batch, after
the commit; ``read`` puts the files of all engines together. A step that was committed again by a later attempt
(it came after the checkpoint the attempt started from) counts as that attempt committed it. It is how the demo
and the tests count samples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Entry:
    """One micro-batch of a committed training step."""

    epoch: int
    step: int
    worker: int
    samples: tuple[int, ...]


class Recorder:
    """Collects a step's micro-batches and writes them once the step is committed."""

    def __init__(self, folder: str | None, fence: int, name: str) -> None:
        self._held: list[str] = []
        self._file: TextIO | None = None
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = (Path(folder) / f"samples-{fence}-{name}.jsonl").open("a", buffering=1)

    def hold(self, epoch: int, step: int, worker: int, samples: npt.NDArray[np.int64]) -> None:
        if self._file:
            self._held.append(json.dumps([epoch, step, worker, samples.tolist()]))

    def commit(self) -> None:
        if self._file and self._held:
            self._file.write("\n".join(self._held) + "\n")
            self._held.clear()


def read(folder: Path) -> list[Entry]:
    """All entries below ``folder``, in the order of the training."""
    newest: dict[int, int] = {}
    found: list[tuple[int, Entry]] = []
    for path in sorted(folder.glob("samples-*.jsonl")):
        fence = int(path.name.split("-")[1])
        for line in path.read_text().splitlines():
            epoch, step, worker, samples = json.loads(line)
            found.append((fence, Entry(epoch, step, worker, tuple(samples))))
            newest[step] = max(newest.get(step, 0), fence)
    entries = [entry for fence, entry in found if fence == newest[entry.step]]
    return sorted(entries, key=lambda entry: (entry.step, entry.worker))


@dataclass(frozen=True)
class Audit:
    """What became of the samples of one epoch."""

    epoch: int
    lost: tuple[int, ...]
    repeated: tuple[int, ...]


def audit(entries: Iterable[Entry], samples: int, epochs: int) -> list[Audit]:
    """Count the samples 0..``samples``-1 of each epoch: each should have been trained on exactly once."""
    counts: list[Counter[int]] = [Counter() for _ in range(epochs)]
    for entry in entries:
        counts[entry.epoch].update(entry.samples)
    return [
        Audit(
            epoch,
            tuple(index for index in range(samples) if not count[index]),
            tuple(index for index in sorted(count) if count[index] > 1),
        )
        for epoch, count in enumerate(counts)
    ]
