"""The sample record: which samples each committed step was made of. Room: runners; files only.

Off unless EDT_SAMPLE_RECORD names a folder. Each engine appends JSON lines to ``samples-<fence>-<engine>.jsonl``:

    ["try", epoch, step, round, worker, [indices]]    one for each of its micro-batches, before the reduction begins
    ["commit", step, round]                           after it has committed the step
    ["commit", step, round, width]                    the same where the batch follows the engines
    ["commit-void", step, round]                      all went back to a checkpoint: what any engine had committed from
                                                      this step on, in an earlier round or attempt, is void

A step that is reduced again, because an engine died in it, has another, higher round. It was made of the tries of
the round that some engine committed and went on from, a dead engine's among them; a step that a later attempt
committed again (it came after the checkpoint the attempt started from) counts as that attempt committed it. Where the
batch follows the engines, steps count micro-batches and a line's is the first of ``width``: a later attempt cuts them
otherwise, so that its first step voids all that earlier attempts committed from there on. It is how the demo and the
tests count samples.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edt_runner.errors import RecordError
from edt_runner.storage import PatientLog

_HELD_BYTES = 16 << 20


@dataclass(frozen=True)
class Entry:
    """One micro-batch of a committed training step."""

    epoch: int
    step: int
    worker: int
    samples: tuple[int, ...]


class Recorder:
    """Holds the micro-batches of the step being computed and writes down what becomes of them."""

    def __init__(self, folder: str | None, fence: int, name: str) -> None:
        self._held: dict[int, tuple[int, int, npt.NDArray[np.int64]]] = {}
        self._log: PatientLog | None = None
        if folder:
            path = Path(folder) / f"samples-{fence}-{name}.jsonl"
            self._log = PatientLog(path, most=_HELD_BYTES, mode=0o666)
            self._log.write(b"")

    def hold(self, epoch: int, step: int, worker: int, samples: npt.NDArray[np.int64]) -> None:
        """A micro-batch of the step being computed; replaces an earlier one of the same worker."""
        if self._log is not None:
            self._held[worker] = (epoch, step, samples)

    def drop(self, workers: Collection[int] | None = None) -> None:
        """Forget what is held of these logical workers; None: of all."""
        for worker in list(self._held) if workers is None else workers:
            self._held.pop(worker, None)

    def keep(self, workers: Collection[int]) -> None:
        """Forget what is held of all others."""
        self._held = {worker: held for worker, held in self._held.items() if worker in workers}

    def trying(self, step: int, round_: int) -> None:
        """All held is about to be reduced, in this round."""
        if self._held:
            self._write(
                ["try", epoch, step, round_, worker, samples.tolist()]
                for worker, (epoch, of, samples) in sorted(self._held.items())
                if of == step
            )

    def commit(self, step: int, round_: int, width: int | None = None) -> None:
        """The training step is committed as this round reduced it. Nothing is held any more. ``width``: of a step whose
        micro-batches are as many as there are engines."""
        if self._log is not None:
            self._held.clear()
            self._write([["commit", step, round_] if width is None else ["commit", step, round_, width]])

    def go_back(self, step: int, round_: int) -> None:
        """All engines go back to a checkpoint after which ``step`` is the next, and go on in ``round_``."""
        if self._log is not None:
            self._held.clear()
            self._write([["commit-void", step, round_]])

    def _write(self, lines: Iterable[list[Any]]) -> None:
        """In one call: what is in the kernel's hands outlives this process. What a full disk does not take is held; if
        that becomes too much the record ends and shows a gap, and the training goes on."""
        if self._log is None:
            return
        self._log.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        if self._log.lost:
            print(f"the sample record ends here: {self._log.error}", file=sys.stderr, flush=True)
            self._log = None
            self._held.clear()


def read(folder: Path) -> list[Entry]:
    """All entries of committed steps below ``folder``, in the order of the training.

    Raises RecordError where a step was committed in two ways.
    """
    files = _files(folder)
    # commits first: all tries of a round were written before anybody's commit, even while engines go on writing
    committed = _committed(files)
    entries = [
        Entry(epoch, step, worker, tuple(samples))
        for fence, path in files
        for epoch, step, round_, worker, samples in _lines(path, "try")
        if committed.get(step) == (fence, round_)
    ]
    return sorted(entries, key=lambda entry: (entry.step, entry.worker))


def widths(folder: Path) -> list[tuple[int, int]]:
    """(step, micro-batches) of each committed step of a training whose batch follows the engines, in order."""
    files = _files(folder)
    committed = _committed(files)
    found = {
        (step, width)
        for fence, path in files
        for step, round_, *rest in _lines(path, "commit")
        for width in rest
        if committed.get(step) == (fence, round_)
    }
    return sorted(found)


def _files(folder: Path) -> list[tuple[int, Path]]:
    """(fence, path) of each engine's."""
    return [(int(path.name.split("-")[1]), path) for path in sorted(folder.glob("samples-*.jsonl"))]


def _committed(files: Iterable[tuple[int, Path]]) -> dict[int, tuple[int, int]]:
    """The (fence, round) that made each step.

    The only engine that had applied a round may die with it: the others reduce the step again and go on from there.
    So two rounds may stand as committed, but only one of them by engines that have committed anything since.
    """
    rounds: dict[tuple[int, int], dict[int, int]] = {}  # (step, fence) -> round -> last step of those that committed it
    first: dict[int, int] = {}  # fence -> its first step, where widths change
    # by whichever engine: those that were gone when all went back could not take back their own commits
    voids = [(step, (fence, round_)) for fence, path in files for step, round_ in _lines(path, "commit-void")]
    for fence, path in files:
        lines = [
            line
            for line in _lines(path, "commit")
            if not any(line[0] >= begun and (fence, line[1]) < since for begun, since in voids)
        ]
        steps = [(step, round_) for step, round_, *_ in lines]
        last = max((step for step, _ in steps), default=0)
        if lines and len(lines[0]) > 2:
            first[fence] = min(lines[0][0], first.get(fence, lines[0][0]))
        for step, round_ in steps:
            found = rounds.setdefault((step, fence), {})
            found[round_] = max(last, found.get(round_, 0))
        if len({step for step, _ in steps}) < len(steps):
            raise RecordError(f"{path.name}: this engine committed a step twice")
    made: dict[int, tuple[int, int]] = {}
    for (step, fence), found in sorted(rounds.items(), key=lambda item: item[0][1]):
        if any(fence < later and step >= begun for later, begun in first.items()):
            continue
        went_on = sorted(round_ for round_, last in found.items() if last > step)
        if len(went_on) > 1:
            raise RecordError(
                f"step {step + 1} was committed in rounds {', '.join(map(str, went_on))} of attempt {fence} "
                "by engines that went on: the commit rule is broken"
            )
        made[step] = (fence, went_on[0] if went_on else max(found))
    return made


def _lines(path: Path, kind: str) -> Iterator[list[Any]]:
    """The contents of a file's lines of one kind; its last one may be torn, since its writer may have been killed."""
    text, _, _ = path.read_text().rpartition("\n")
    for line in text.splitlines():
        if line.startswith(f'["{kind}"'):
            yield json.loads(line)[1:]


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
