"""Reads the sample record, which ``edt_runner.engine.telemetry`` writes: which samples each committed step was made of.

A step that is reduced again, because an engine died in it, has another, higher generation. It was made of the tries of
the generation that some engine committed and went on from, a dead engine's among them. A step that a later attempt
committed again (it came after the checkpoint the attempt started from) counts as that attempt committed it. Where the
batch follows the engines, steps count micro-batches and a line's is the first of ``width``: a later attempt cuts them
otherwise, so that its first step voids all that earlier attempts committed from there on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class RecordError(Exception):
    """A sample record that says what must never happen: one step was committed in two ways."""


@dataclass(frozen=True)
class Entry:
    """One micro-batch of a committed training step."""

    epoch: int
    step: int
    micro_batch: int
    samples: tuple[int, ...]


def read(folder: Path) -> list[Entry]:
    """All entries of committed steps below ``folder``, in the order of the training.

    Raises RecordError where a step was committed in two ways.
    """
    files = _files(folder)
    # commits first: all tries of a generation were written before anybody's commit, even while engines go on writing
    committed = _committed(files)
    entries = [
        Entry(epoch, step, index, tuple(samples))
        for fence, path in files
        for epoch, step, generation, index, samples in _lines(path, "try")
        if committed.get(step) == (fence, generation)
    ]
    return sorted(entries, key=lambda entry: (entry.step, entry.micro_batch))


def widths(folder: Path) -> list[tuple[int, int]]:
    """(step, micro-batches) of each committed step of a training whose batch follows the engines, in order."""
    files = _files(folder)
    committed = _committed(files)
    found = {
        (step, width)
        for fence, path in files
        for step, generation, *rest in _lines(path, "commit")
        for width in rest
        if committed.get(step) == (fence, generation)
    }
    return sorted(found)


def _files(folder: Path) -> list[tuple[int, Path]]:
    """(fence, path) of each engine's."""
    return [(int(path.name.split("-")[1]), path) for path in sorted(folder.glob("samples-*.jsonl"))]


def _committed(files: Iterable[tuple[int, Path]]) -> dict[int, tuple[int, int]]:
    """The (fence, generation) in which each step counts.

    The only engine that had committed a step in a generation may die with it: the others reduce the step again and go
    on from there. So a step may be committed in two generations, but only in one of them by engines that have committed
    anything since.
    """
    generations: dict[
        tuple[int, int], dict[int, int]
    ] = {}  # (step, fence) -> generation -> last step of those that committed it
    first: dict[int, int] = {}  # fence -> its first step, where widths change
    # by whichever engine: those that were gone when all went back could not take back their own commits
    voids = [(step, (fence, generation)) for fence, path in files for step, generation in _lines(path, "commit-void")]
    for fence, path in files:
        lines = [
            line
            for line in _lines(path, "commit")
            if not any(line[0] >= begun and (fence, line[1]) < since for begun, since in voids)
        ]
        steps = [(step, generation) for step, generation, *_ in lines]
        last = max((step for step, _ in steps), default=0)
        if lines and len(lines[0]) > 2:
            first[fence] = min(lines[0][0], first.get(fence, lines[0][0]))
        for step, generation in steps:
            found = generations.setdefault((step, fence), {})
            found[generation] = max(last, found.get(generation, 0))
        if len({step for step, _ in steps}) < len(steps):
            raise RecordError(f"{path.name}: this engine committed a step twice")
    made: dict[int, tuple[int, int]] = {}
    for (step, fence), found in sorted(generations.items(), key=lambda item: item[0][1]):
        if any(fence < later and step >= begun for later, begun in first.items()):
            continue
        went_on = sorted(generation for generation, last in found.items() if last > step)
        if len(went_on) > 1:
            raise RecordError(
                f"step {step + 1} was committed in generations {', '.join(map(str, went_on))} of attempt {fence} "
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
