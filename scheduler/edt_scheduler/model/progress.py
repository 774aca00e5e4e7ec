"""How far a training is, how fast it goes, when it will be done at that, and its course as a curve shows it. Pure.

The pace is a mean of steps a second in which what was longer ago than SMOOTH_SECONDS counts little: validation and
pauses are part of it. With another number of engines it begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any, Protocol

SMOOTH_SECONDS = 30.0
PACE = "pace"
"""Under which name it is kept beside a job's progress."""


def with_report(before: Mapping[str, Any] | None, report: Mapping[str, Any], fence: int, time: float) -> dict[str, Any]:
    """The pace once a report came. ``before``: what this function gave for the one before, as JSON; {}: none."""
    step, workers = report.get("step"), report.get("workers")
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


def share_done(report: Mapping[str, Any], steps_total: int | None, *, finished: bool) -> float | None:
    """The share of its steps that a job has done, 0 to 1; None: nobody can say.

    ``told``: the body of its newest report of progress. A training that ended early has done a part of its steps, also
    where it is ``finished``; a script that told of no training has done all when it is.
    """
    step, total = report.get("step"), report.get("steps_total") or steps_total
    if not isinstance(step, int) or not isinstance(total, int) or total <= 0:
        return 1.0 if finished else None
    return min(1.0, max(0.0, step / total))


def usual_rate(rates: Sequence[float]) -> float | None:
    """Samples per second of a training as a whole: the median of what its reports told; None: they told nothing."""
    return median(rates) if rates else None


@dataclass(frozen=True)
class MetricPoint:
    """What one PROGRESS report said."""

    step: int
    time: float
    epoch: int | None
    workers: int | None
    loss: float | None
    samples_per_second: float | None
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """A training's metrics, downsampled to what a curve shows; steps only grow."""

    points: tuple[MetricPoint, ...]
    total: int
    """How many points there were."""


MOST_METRICS = 64
"""So many metrics a training has. A script that names one after each step would have as many curves as points."""
_KEPT_OF_A_PART = 4


def final_points(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points of the steps that count. ``points`` come as they were told: an attempt goes on from a checkpoint, and
    what the one before had done beyond it is done again."""
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept


def downsampled(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
    """At most ``most`` points (never fewer than 4) that keep the shape of the loss: of each of several parts, equally
    long, the first, the last, the least and the greatest. The very first and last are among them."""
    parts = max(1, most // _KEPT_OF_A_PART)
    if len(points) <= max(most, _KEPT_OF_A_PART):
        return list(points)
    kept: set[int] = set()
    for part in range(parts):
        begin, end = len(points) * part // parts, len(points) * (part + 1) // parts
        told = [index for index in range(begin, end) if points[index].loss is not None]
        kept |= {begin, end - 1}
        if told:
            kept |= {
                min(told, key=lambda index: _loss(points[index])),
                max(told, key=lambda index: _loss(points[index])),
            }
    return [points[index] for index in sorted(kept)]


class StoredPoint(Protocol):
    """A point as it is stored, in short."""

    @property
    def fence(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def loss(self) -> float | None: ...


def indices_to_keep(points: Sequence[StoredPoint], most: int) -> list[int]:
    """The indices of at most ``most`` points that are to stay for good, in order.

    The first and the last of each attempt, the least and the greatest loss, and, of the steps, one of each of equally
    long parts: the one told last, which is what counts of a step that was done again. Where already the first are too
    many, as many of them as there is room for.
    """
    if len(points) <= most:
        return list(range(len(points)))
    ends: dict[int, tuple[int, int]] = {}
    for index, point in enumerate(points):
        ends[point.fence] = (ends.get(point.fence, (index,))[0], index)
    told = [(point.loss, index) for index, point in enumerate(points) if point.loss is not None]
    must = sorted({index for pair in ends.values() for index in pair} | {each(told)[1] for each in (min, max) if told})
    if len(must) > most:
        return [must[round(place * (len(must) - 1) / (most - 1))] for place in range(most)]
    low, high = min(point.step for point in points), max(point.step for point in points)
    parts = most - len(must)
    by_part = {(point.step - low) * parts // (high - low + 1): index for index, point in enumerate(points)}
    return sorted({*must, *by_part.values()})


def limit_metrics(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points with those metrics alone that are named first."""
    few = frozenset(islice({name: None for point in points for name in point.metrics}, MOST_METRICS))
    return [
        replace(point, metrics={name: value for name, value in point.metrics.items() if name in few})
        for point in points
    ]


def _loss(point: MetricPoint) -> float:
    return point.loss if point.loss is not None else 0.0
