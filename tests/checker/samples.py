"""The record of samples: of what each committed step was made.

Each engine appends to ``samples-<fence>-<engine>.jsonl``
    ["try", epoch, step, generation, micro-batch, [indices]]   a micro-batch, before the step's reduction begins
    ["commit", step, generation]                               it has committed the step
    ["commit", step, generation, width]                        the same where the batch follows the engines
    ["commit-void", step, generation]                          all went back to this step, into this generation
A step was made of the tries of the (fence, generation) that committed it; where several did, of the newest. A commit
does not count if its generation is older than one in which all went back to this step or to one before it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """A line of a record that is no line of a record."""


@dataclass(frozen=True)
class Audit:
    """What became of the samples of one epoch."""

    epoch: int
    lost: tuple[int, ...]
    repeated: tuple[int, ...]

    def __str__(self) -> str:
        return f"epoch {self.epoch}: lost {_some(self.lost)}, repeated {_some(self.repeated)}"


def audit(folder: Path, samples: int | None = None, epochs: int | None = None) -> list[Audit]:
    """Count each epoch. Where it is not said how many samples there are, every sample of any epoch belongs into all."""
    tries: dict[tuple[int, int, int], list[tuple[int, list[int]]]] = defaultdict(list)
    newest: dict[int, tuple[int, int]] = {}
    returns: list[tuple[int, tuple[int, int]]] = []
    for path in sorted(folder.glob("samples-*.jsonl")):
        fence = int(path.name.split("-")[1])
        for line in _lines(path):
            match line:
                case ["try", int(epoch), int(step), int(round_), int(), list(indices)]:
                    tries[step, fence, round_].append((epoch, indices))
                case ["commit", int(step), int(round_)] | ["commit", int(step), int(round_), int()]:
                    newest[step] = max(newest.get(step, (0, -1)), (fence, round_))
                case ["commit-void", int(step), int(round_)]:
                    returns.append((step, (fence, round_)))
                case _:
                    raise Unreadable(f"{path.name}: {json.dumps(line)[:80]}")
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for step, won in newest.items():
        if any(step >= begun and won < since for begun, since in returns):
            continue
        for epoch, indices in tries[(step, *won)]:
            counts[epoch].update(indices)
    every = set(range(samples)) if samples else {index for count in counts.values() for index in count}
    number = epochs if epochs is not None else max(counts, default=-1) + 1
    return [_judge(epoch, counts[epoch], every) for epoch in range(number)]


def _judge(epoch: int, count: Counter[int], every: set[int]) -> Audit:
    lost = tuple(sorted(index for index in every if not count[index]))
    return Audit(epoch, lost, tuple(sorted(index for index in count if count[index] > 1 or index not in every)))


def _lines(path: Path) -> list[Any]:
    """All whole lines: a process that was killed may have left half a one, which nobody has relied on."""
    data = path.read_bytes()
    try:
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    except ValueError as error:
        raise Unreadable(f"{path.name}: {error}") from None


def _some(indices: tuple[int, ...]) -> str:
    return f"{list(indices[:5])}{' …' if len(indices) > 5 else ''} ({len(indices)})"
