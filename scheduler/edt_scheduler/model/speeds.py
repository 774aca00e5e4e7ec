"""What is known of how long a job's steps take, and which jobs count as alike. Pure.

The first engine reports progress twice a second, with the seconds that the steps since its last report took and how
many workers did them. Of these the platform keeps, for each number of workers and nodes and each model of GPU, one mean
that follows the newest steps.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_scheduler.model.jobs import MOST_SLOTS, JobSpec

WARM_UP_STEPS = 20
"""So many steps after a resize or a start are not measured: caches fill, and kernels are chosen."""
WARM_UP_SECONDS = 10.0
"""After so many seconds a step counts, however few there have been since: some steps take minutes."""
WRITE_SECONDS = 10.0
"""A mean is written at most so often, apart from the first one of a size."""
MEMORY_STEPS = 200
"""A mean follows about so many of the newest steps."""
CHANGED = 0.02
"""A mean that has changed by less than this share is not written again."""
OF_OTHERS = 0.5
"""How much a point of jobs that are alike counts beside a job's own."""


@dataclass(frozen=True)
class Measured:
    """One measured point."""

    model: str
    """Model of the GPUs, in lower case; "": they are not GPUs, or it is unknown."""
    workers: int
    nodes: int
    step_seconds: float
    samples: int
    """Number of steps."""


def measured(rows: Iterable[Any]) -> dict[Any, tuple[Measured, ...]]:
    """The points of rows whose first column says whose they are, by that."""
    found: dict[Any, list[Measured]] = {}
    for owner, *point in rows:
        found.setdefault(owner, []).append(Measured(*point))
    return {owner: tuple(points) for owner, points in found.items()}


def of_model(points: Sequence[Measured], model: str | None) -> tuple[Measured, ...]:
    """Those points that were measured on GPUs of one model.

    ``model``: the one that counts; None, or one on which nothing was measured: that on which most steps were measured.
    """
    models = {each.model for each in points}
    if len(models) < 2:
        return tuple(points)
    if model not in models:
        steps = {name: sum(each.samples for each in points if each.model == name) for name in models}
        model = max(sorted(models), key=lambda name: steps[name])
    return tuple(each for each in points if each.model == model)


def mixed(before: float, samples: int, seconds: float, steps: int) -> float:
    """The mean seconds of a step after some more steps.

    Args:
        before: the mean so far.
        samples: of how many steps.
        seconds: the mean of the new steps.
        steps: how many these are.
    """
    known = min(samples, MEMORY_STEPS)
    return (before * known + seconds * steps) / (known + steps)


def is_news(before: float, after: float) -> bool:
    """Whether a mean has changed enough to be written."""
    return abs(after - before) > CHANGED * before


MEASURING = "measuring"
"""The key under which what is being measured is stored beside a job's progress."""


@dataclass(frozen=True)
class News:
    """A mean that is to be written."""

    workers: int
    step_seconds: float
    steps: int
    """Number of steps that were measured since the last one was written."""


def with_report(
    before: Mapping[str, Any] | None, report: Mapping[str, Any], fence: int, time: float
) -> tuple[dict[str, Any] | None, News | None]:
    """What is being measured after a report, and what of it is to be written.

    Args:
        before: What this function returned first for the previous report, as JSON; None: there was none, or the
            membership has changed since.
        report: Body of the PROGRESS report.
        fence: Number of the attempt that reported.
        time: When the report was written, in seconds since the epoch.
    """
    step, workers, seconds = report.get("step"), report.get("workers"), report.get("seconds")
    if step is None or not workers or workers > MOST_SLOTS or seconds is None:
        return dict(before) if before else None, None
    anew = {"fence": fence, "workers": workers, "from": step, "at": time, "step": step, "time": time}
    if not before or (before["fence"], before["workers"]) != (fence, workers) or step < before["step"]:
        return anew, None
    now = {**before, "step": step, "time": time}
    steps = step - before["step"]
    warm = before["step"] - before["from"] >= WARM_UP_STEPS or before["time"] - before["at"] >= WARM_UP_SECONDS
    if not warm or not steps or seconds <= 0:
        return now, None
    known = before.get("steps", 0)
    now["mean"] = mixed(before.get("mean", 0.0), known, seconds / steps, steps)
    now["steps"], now["unwritten"] = known + steps, before.get("unwritten", 0) + steps
    written = before.get("written")
    if written is not None and (time - before["written_at"] < WRITE_SECONDS or not is_news(written, now["mean"])):
        return now, None
    news = News(workers, now["mean"], now["unwritten"])
    return now | {"written": now["mean"], "written_at": time, "unwritten": 0}, news


_OF_NO_WEIGHT = re.compile(
    r"--?(lr|learning[-_]rate|epochs?|seed|momentum|weight[-_]decay|gamma|warm[-_]?up.*|patience|dropout|name|run[-_]name"
    r"|tags?|notes?|log[-_]dir|out(put)?([-_]dir)?|save[-_]dir|experiment)"
)
"""Arguments that do not change how long a step takes, as far as names can tell."""


def _of_weight(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that say nothing about speed, and their values."""
    found, skips = [], False
    for each in arguments:
        name, has_value, _ = each.partition("=")
        if _OF_NO_WEIGHT.fullmatch(name):
            skips = not has_value
        elif skips and not each.startswith("--"):
            skips = False
        else:
            found.append(each)
            skips = False
    return found


def prior_key(owner_id: int, spec: JobSpec, script: bytes) -> str:
    """What jobs have in common that count as alike for their speed.

    Args:
        owner_id: the user who submits. Nobody learns from another user's jobs.
        spec: the submission.
        script: the main script's text; empty if the job runs a command.
    """
    gang = list(spec.gang.command) if spec.gang is not None else []
    parts = [
        owner_id,
        spec.framework,
        spec.backend,
        spec.model_main,
        gang,
        _of_weight(spec.arguments),
        spec.worker_device_num,
    ]
    digest = hashlib.sha256(json.dumps(parts).encode())
    digest.update(script)
    return digest.hexdigest()
