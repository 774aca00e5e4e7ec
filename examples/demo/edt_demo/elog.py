"""The loss of every step, out of a job's log. Room: examples; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"\] Train,\tTimestamp: (\d+),\tGlobal steps: (\d+),.*?\tLoss: ([0-9.naif]+)")


@dataclass(frozen=True)
class Step:
    """One committed step."""

    time: float
    """Seconds since the epoch, wall clock."""
    step: int
    loss: float


def steps(log: str) -> tuple[Step, ...]:
    """Steps that a log in WMLA's format tells of, each once, as they were told last; in order."""
    found = {int(step): Step(int(time) / 1000, int(step), float(loss)) for time, step, loss in _LINE.findall(log)}
    return tuple(found[number] for number in sorted(found))
