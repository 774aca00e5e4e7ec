"""What every benchmark ends with: a table on the screen and, with --json, a file. DESIGN: one form for all."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """What one participant was measured at in one case; ``value`` is the median of ``runs``, or as it says itself."""

    case: str
    who: str
    value: float
    unit: str
    runs: Sequence[float]


@dataclass(frozen=True)
class Target:
    what: str
    target: float
    value: float
    unit: str
    met: bool


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, under two minutes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    return parser


def row(case: str, who: str, unit: str, runs: Sequence[float]) -> Row:
    return Row(case, who, statistics.median(runs), unit, tuple(runs))


def finish(
    benchmark: str,
    rows: Sequence[Row],
    targets: Sequence[Target],
    path: Path | None,
    absent: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print the table, a line for each case and a column for each participant; write the file.

    Args:
        absent: peers that do not run here, each with why: "torchft: not installed".
        notes: what a reader of the file has to know of its figures, which the benchmark has printed already.
    """
    cases = list(dict.fromkeys(f"{found.case}, {found.unit}" for found in rows))
    people = list(dict.fromkeys(found.who for found in rows))
    cells = {(f"{found.case}, {found.unit}", found.who): _cell(found) for found in rows}
    table = [["", *people], *([case, *(cells.get((case, who), "–") for who in people)] for case in cases)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *rest in table:
        aligned = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *aligned]))
    for line in absent:
        print(line)
    for target in targets:
        verdict = "met" if target.met else "MISSED"
        print(f"{verdict}: {target.what}: {target.value:.4g} {target.unit}, at most {target.target:g}")
    write(benchmark, rows, targets, path, absent, notes)


def write(
    benchmark: str,
    rows: Sequence[Row],
    targets: Sequence[Target],
    path: Path | None,
    absent: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the file, if there is to be one. A long benchmark calls this after each case, so that little is lost."""
    if path is None:
        return
    body = {
        "benchmark": benchmark,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "rows": [asdict(found) for found in rows],
        "targets": [asdict(target) for target in targets],
        "absent": list(absent),
        **({"notes": list(notes)} if notes else {}),
    }
    path.write_text(json.dumps(body, indent=1) + "\n")


def machine() -> Mapping[str, Any]:
    import torch

    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _cell(found: Row) -> str:
    return f"{_short(found.value)} ({_short(min(found.runs))}–{_short(max(found.runs))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
