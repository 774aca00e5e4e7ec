"""What a comparison prints and writes: a table, a JSON file, pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edt_scheduler.simulate.cluster import Rules, Run
from edt_scheduler.simulate.gantt import gantt
from edt_scheduler.simulate.metrics import Metrics, measure
from edt_scheduler.simulate.traces import Found

_HEADER = (
    "policy",
    "mean s",
    "median s",
    "p99 s",
    "makespan s",
    "queue s",
    "resizes",
    "lost",
    "worst rho",
    "unfair",
    "used",
    "useful",
    "decision ms",
    "max ms",
)
LEGEND = """\
mean, median, p99: from submission to end; queue: until the first GPU; resizes: of a job, in the mean; lost: GPU-seconds
in which jobs waited for a resize, of all that they held; rho: that time beside the one on a fair part of the cluster,
unfair: jobs above 1; used: GPU-seconds held, of all until the last end; useful: GPU-seconds that one GPU would have
needed for the same, of those held; bound: no policy with batches that do not change can have a lower mean"""


def table(runs: Mapping[str, Run], bound: float | None) -> str:
    """The figures of some runs, a line for each policy.

    Args:
        runs: policy to its run.
        bound: the lower bound of the mean; None: it was not asked for.
    """
    lines = [_HEADER, *(_line(name, measure(run)) for name, run in runs.items())]
    if bound is not None:
        lines.append(("bound", f"{bound:.0f}", *[""] * (len(_HEADER) - 2)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in lines
    )


def _line(name: str, found: Metrics) -> tuple[str, ...]:
    return (
        name,
        f"{found.mean:.0f}",
        f"{found.median:.0f}",
        f"{found.p99:.0f}",
        f"{found.makespan:.0f}",
        f"{found.queued:.0f}",
        f"{found.resizes:.2f}",
        f"{found.lost:.2%}",
        f"{found.unfairness:.2f}",
        f"{found.unfair:.0%}",
        f"{found.used:.0%}",
        f"{found.useful:.0%}",
        f"{1000 * found.decision_mean:.2f}",
        f"{1000 * found.decision_max:.1f}",
    )


def document(found: Found, rules: Rules, runs: Mapping[str, Run], bound: float | None) -> Mapping[str, Any]:
    """All figures of a comparison, as a JSON document has them: those of the table, and each job's."""
    return {
        "workload": found.title,
        "note": found.note,
        "rules": asdict(rules),
        "bound": bound,
        "policies": {name: {**asdict(measure(run)), "each": _jobs(run)} for name, run in runs.items()},
    }


def _jobs(run: Run) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "name": job.name,
            "application": job.application.name,
            "submitted": job.submit,
            "begun": job.begun,
            "ended": job.ended,
            "resizes": job.resizes,
            "gpu_seconds": job.held_seconds,
            "lost_gpu_seconds": job.lost_seconds,
        }
        for job in run.jobs
    ]


def write_json(path: Path, body: Mapping[str, Any]) -> None:
    """Write a document.

    Raises:
        OSError: if that cannot be done.
    """
    path.write_text(json.dumps(body, indent=1) + "\n")


def draw(path: Path, title: str, runs: Mapping[str, Run]) -> Sequence[Path]:
    """Write a picture of each run: to ``path``, or where there are several runs to names with the policy in them.

    Returns:
        The files that were written.

    Raises:
        OSError: if one cannot be written.
    """
    written = []
    for name, run in runs.items():
        target = path if len(runs) == 1 else path.with_stem(f"{path.stem}-{name}")
        target.write_text(gantt(run, f"{title}: {name}"))
        written.append(target)
    return written
