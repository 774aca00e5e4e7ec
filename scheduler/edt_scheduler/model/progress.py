"""How far a training is, how fast it is, when it will end, and the curve of its metrics. Pure.

The pace is a mean in steps per second. Times longer ago than SMOOTH_SECONDS count little. Validation and pauses are
part of the pace. When the number of engines changes, a new mean begins.
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
"""The key under which the pace is stored beside a job's progress."""


def with_report(before: Mapping[str, Any] | None, report: Mapping[str, Any], fence: int, time: float) -> dict[str, Any]:
    """The pace after a report.

    Args:
        before: What this function returned for the previous report, as JSON; {} or None: there was none.
        report: Body of the PROGRESS report.
        fence: Number of the attempt that reported.
        time: When the report was written, in seconds since the epoch.
    """
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
    """Seconds until the last step at this pace; None: unknown."""
    rate = pace.get("steps_per_second") if pace else None
    if not pace or not rate or steps_total is None:
        return None
    return _finite(max(0, steps_total - pace["step"]) / rate)


def share_done(report: Mapping[str, Any], steps_total: int | None, *, finished: bool) -> float | None:
    """The share of its steps that a job has done, 0 to 1; None: unknown.

    A training that ended early has done a part of its steps, even if the job is finished. A finished job whose script
    reported no training has done all.

    Args:
        report: Body of the job's newest PROGRESS report; empty: there was none.
        steps_total: The job's number of steps, if the report has none.
        finished: Whether the job's state is FINISHED.
    """
    step, total = report.get("step"), report.get("steps_total") or steps_total
    if not isinstance(step, int) or not isinstance(total, int) or total <= 0:
        return 1.0 if finished else None
    return min(1.0, max(0.0, step / total))


def early_end(report: Mapping[str, Any], steps_total: int | None, epochs: int | None, *, finished: bool) -> str | None:
    """Where a finished training ended before its last step, in words; None: it did not.

    Args:
        report: Body of the job's newest PROGRESS report; empty: there was none.
        steps_total: The job's number of steps, if the report has none.
        epochs: The job's number of epochs, if the report has none.
        finished: Whether the job's state is FINISHED.
    """
    share = share_done(report, steps_total, finished=finished)
    if not finished or share is None or share >= 1.0:
        return None
    epoch, last = report.get("epoch"), report.get("epochs") or epochs
    if isinstance(epoch, int) and isinstance(last, int):
        return f"ended early at epoch {epoch} of {last}"
    return f"ended early at step {report['step']} of {report.get('steps_total') or steps_total}"


def mean_rate(samples: int, seconds: float) -> float | None:
    """Samples per second of all training steps of a job; None: it has reported none, or not how long they took, or what
    it reported has no finite mean."""
    return _finite(samples / seconds) if samples > 0 and seconds > 0 else None


def usual_rate(rates: Sequence[float]) -> float | None:
    """Samples per second of a training whose engines did not report how long their steps took: the median of the rates
    in its reports; None: there are no rates, or their median is not finite.
    """
    return _finite(median(rates)) if rates else None


@dataclass(frozen=True)
class MetricPoint:
    """What one PROGRESS or VALIDATED report says."""

    step: int
    time: float
    epoch: int | None
    workers: int | None
    loss: float | None
    samples_per_second: float | None
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """A training's metrics, downsampled for a curve. The steps only grow."""

    points: tuple[MetricPoint, ...]
    total: int
    """Number of points before downsampling."""
    validations: tuple[MetricPoint, ...] = ()
    """Its validations, downsampled likewise. Their steps only grow, too."""
    validations_total: int = 0
    """Number of validations before downsampling."""


MOST_METRICS = 64
"""The most metrics of one training. A script that names a metric after each step would otherwise have as many curves as
points.
"""
_KEPT_OF_A_PART = 4


def final_points(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points of the steps that count.

    ``points`` are in the order in which they were reported. An attempt resumes from a checkpoint, and repeats the steps
    that the previous attempt had done after this checkpoint. The points of the repeated steps replace the earlier ones.
    """
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept


def downsampled(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
    """At most ``most`` points (but 4 at least) that keep the shape of the loss.

    The points are divided into parts of equal length. Of each part these points are kept: the first, the last, and
    those with the smallest and the largest loss. The first and the last of all points are among them.
    """
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
    """The fields of a stored point that thinning out needs."""

    @property
    def fence(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def loss(self) -> float | None: ...


def indices_to_keep(points: Sequence[StoredPoint], most: int) -> list[int]:
    """The indices, in order, of at most ``most`` points that are kept for good.

    Kept are the first and the last point of each attempt, and the points with the smallest and the largest loss. The
    range of steps is divided into equal parts, and the point of each part that was reported last is kept, too. The last
    report counts because steps can be repeated. If the first two kinds are already too many, ``most`` of them are kept.
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
    """The points with only the first MOST_METRICS metrics that they name."""
    few = frozenset(islice({name: None for point in points for name in point.metrics}, MOST_METRICS))
    return [
        replace(point, metrics={name: value for name, value in point.metrics.items() if name in few})
        for point in points
    ]


def _finite(value: float) -> float | None:
    """The value; None: it is not finite. PostgreSQL stores no such number in JSON, and no answer of the API has one."""
    return value if math.isfinite(value) else None


def _loss(point: MetricPoint) -> float:
    return point.loss if point.loss is not None else 0.0
