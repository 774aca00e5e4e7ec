"""What is known of how long a job's steps take, and which jobs count as alike. Pure.

The first engine reports progress twice a second, with the seconds that the steps since its last report took and how
many workers did them. Of these the platform keeps, for each number of workers and nodes and each model of GPU, one mean
that follows the newest steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edt_scheduler.model.jobs import JobSpec

WARM_UP_STEPS = 20
"""So many steps after a resize or a start are not measured: caches fill, and kernels are chosen."""
WARM_UP_SECONDS = 10.0
"""After so many seconds a step counts, however few there have been since: some steps take minutes."""
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
        list(spec.arguments),
        spec.worker_device_num,
    ]
    digest = hashlib.sha256(json.dumps(parts).encode())
    digest.update(script)
    return digest.hexdigest()
