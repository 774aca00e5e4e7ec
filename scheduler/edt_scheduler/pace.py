"""How far a job is, how fast it trains, and when it will be done at that. Room: scheduler. Pure.

The pace is a mean of steps a second in which what was longer ago than SMOOTH_SECONDS counts little: validation and
pauses are part of it. With another number of engines it begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

SMOOTH_SECONDS = 30.0
PACE = "pace"
"""Under which name it is kept beside a job's progress."""


def observe(before: Mapping[str, Any] | None, told: Mapping[str, Any], fence: int, time: float) -> dict[str, Any]:
    """The pace once a report came. ``before``: what this function gave for the one before, as JSON; {}: none."""
    step, workers = told.get("step"), told.get("workers")
    if not isinstance(step, int):
        return dict(before or {})
    now = {"fence": fence, "workers": workers, "step": step, "time": time, "steps_per_second": None}
    if not before or (before["fence"], before["workers"]) != (fence, workers):
        return now
    steps, seconds = step - before["step"], time - before["time"]
    if steps < 0 or seconds <= 0:
        return now
    rate, known = steps / seconds, before["steps_per_second"]
    weight = 1.0 if known is None else 1.0 - math.exp(-seconds / SMOOTH_SECONDS)
    now["steps_per_second"] = rate if known is None else known + weight * (rate - known)
    return now


def eta_seconds(pace: Mapping[str, Any] | None, steps_total: int | None) -> float | None:
    """Seconds until the last step, at this pace; None: nobody can say."""
    rate = pace.get("steps_per_second") if pace else None
    if not pace or not rate or steps_total is None:
        return None
    return float(max(0, steps_total - pace["step"]) / rate)


def share_done(told: Mapping[str, Any], steps_total: int | None, *, finished: bool) -> float | None:
    """The share of its steps that a job has done, 0 to 1; None: nobody can say.

    ``told``: the body of its newest report of progress. A training that ended early has done a part of its steps, also
    where it is ``finished``; a script that told of no training has done all when it is.
    """
    step, total = told.get("step"), told.get("steps_total") or steps_total
    if not isinstance(step, int) or not isinstance(total, int) or total <= 0:
        return 1.0 if finished else None
    return min(1.0, max(0.0, step / total))


def usual_rate(rates: Sequence[float]) -> float | None:
    """Samples per second of a training as a whole: the median of what its reports told; None: they told nothing."""
    return median(rates) if rates else None
