"""What a change costs the coordinator, and how that grows with the number of engines: 64 to 1,024, simulated.

The coordinator's state machine is the real one, and so are the messages: each is written and read as the line that goes
over a connection. The engines answer at once (`tests/support/fleet.py`); nothing trains, and no socket is open.

  messages, KB   between the coordinator and the engines and supervisors, both ways, in one change
  ms             processor time of the coordinator's process: deciding, writing and reading lines
  exponent       how it grows: p of n^p, fitted over all numbers of engines. n log n is 1.18 from 64 to 1,024

  join, leave      of one engine, from its request to the comparison of replicas after it
  death            of one engine: all others notice it, and all have summed their micro-batches
  death in a step  half of them have summed theirs, and three in ten have not committed the step before
  node             eight engines die at once
  straggler        is waited for too long: a regroup without a death
  takeover         the coordinator dies, and another begins with what the engines say
  all join         as many as there are, at once, after the first; for each of them
  an hour          1 % die and are replaced, 1 % leave and as many join, one in 200 is waited for; for each change
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "runners")]

import _report  # noqa: E402

from support.fleet import Counts, Fleet  # noqa: E402

SIZES = (64, 128, 256, 512, 1024)
QUICK_SIZES = (64, 128, 256)
N_LOG_N = 1.0 + math.log(10 / 6) / math.log(16)
"""The exponent that fits n log n from 64 to 1,024 engines."""
_UNITS = ("messages", "KB", "ms")
Figures = tuple[float, float, float]
"""Messages, kilobytes, milliseconds."""


def figures(counts: Counts, among: int = 1) -> Figures:
    return counts.messages / among, counts.volume / 1000 / among, 1000 * counts.seconds / among


def measured(fleet: Fleet) -> dict[str, Figures]:
    """Each kind of change once. As many engines as before are left."""

    def one(happen: Callable[[], object]) -> Figures:
        return figures(fleet.measure(happen))

    found = {"leave": one(fleet.leave), "join": one(fleet.join)}
    found["death"] = one(fleet.die)
    fleet.join()
    found["death in a step"] = one(lambda: fleet.die(summed=0.5, behind=0.3))
    fleet.join()
    found["node"] = one(lambda: fleet.die(8))
    fleet.join(8)
    found["straggler"] = one(fleet.hang)
    found["takeover"] = one(fleet.take_over)
    return found


def an_hour(fleet: Fleet, engines: int) -> Figures:
    """An hour's changes in a random order; for each change."""
    few = max(1, round(engines / 100))
    kinds = ["death"] * few + ["leave"] * few + ["straggler"] * max(1, round(engines / 200))
    fleet.chance.shuffle(kinds)
    total = Counts()
    changes = 0
    for kind in kinds:
        happen = {"death": fleet.die, "leave": fleet.leave, "straggler": fleet.hang}[kind]
        steps: list[Callable[[], object]] = [happen] if kind == "straggler" else [happen, fleet.join]
        for step in steps:
            counts = fleet.measure(step)
            total.messages += counts.messages
            total.volume += counts.volume
            total.decide += counts.seconds
            changes += 1
    return figures(total, changes)


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(value) for value in values]).slope


def main() -> None:
    given = _report.arguments(__doc__).parse_args()
    sizes, rounds = (QUICK_SIZES, 2) if given.quick else (SIZES, 2)
    runs: dict[str, dict[int, list[Figures]]] = {}
    for size in sizes:
        fleet = Fleet(size, 2 * size)
        runs.setdefault("all join", {})[size] = [figures(fleet.counts, size)]
        for _ in range(rounds):
            for kind, found in measured(fleet).items():
                runs.setdefault(kind, {}).setdefault(size, []).append(found)
        runs.setdefault("an hour", {})[size] = [an_hour(fleet, size)]
    rows, targets = [], []
    for kind, by_size in runs.items():
        for place, unit in enumerate(_UNITS):
            medians = [statistics.median(found[place] for found in by_size[size]) for size in sizes]
            rows += [_report.row(kind, str(size), unit, [found[place] for found in by_size[size]]) for size in sizes]
            growth = exponent(sizes, medians)
            rows.append(_report.row(kind, "exponent", unit, [growth]))
            targets.append(_report.Target(f"{kind}, {unit}", round(N_LOG_N, 2), growth, "", growth <= N_LOG_N))
    _report.finish("thousand_engines", rows, targets, given.json)


if __name__ == "__main__":
    main()
