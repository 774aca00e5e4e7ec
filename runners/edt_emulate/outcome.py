"""Computes the results of an emulation from the records of its trainings.

Engines report loss and metrics as means over the epoch so far. This module computes the values of each single update:
with m_k the mean after n_k samples of the epoch, update k has (m_k n_k - m_{k-1} n_{k-1}) / (n_k - n_{k-1}).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_runner.lr_scaling.emulation import Point, Record
from edt_runner.lr_scaling.update import DETAILS

LOSS = "loss"


@dataclass(frozen=True)
class Curve:
    """A value over the training."""

    step: tuple[int, ...]
    """Number of micro-batches done at each value."""
    value: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """The result of one training.

    Args:
        name: name of the training.
        loss, metric: final values: of the last validation, or else the means over the last epoch. NaN: unknown.
        updates: number of updates.
        mean_batch: mean number of samples of an update.
        digest: digest of the trained state.
        curves: curves by name: ``loss`` and ``metric`` (of each update), ``batch``, ``learning_rate``, and, if there
            were validations, ``test loss`` and ``test metric``. Unknown curves are missing.
    """

    name: str
    loss: float
    metric: float
    updates: int
    mean_batch: float
    digest: str
    curves: Mapping[str, Curve]

    def to_json_object(self, metric: str | None) -> dict[str, Any]:
        """The result as a JSON object. ``metric``: name of the metric; None: there is none."""
        names = {"metric": metric, "test metric": f"test {metric}"}
        found = {"run": self.name, "updates": self.updates, "mean_batch": self.mean_batch, "digest": self.digest}
        final = {LOSS: _number(self.loss)} | ({metric: _number(self.metric)} if metric else {})
        curves = {
            names.get(name) or name: {"step": list(curve.step), "value": [_number(each) for each in curve.value]}
            for name, curve in self.curves.items()
        }
        return {**found, "final": final, "curves": curves}


def metrics_of(record: Record) -> list[str]:
    """Names of the metrics other than the loss."""
    points = record.validations or record.updates
    return [name for name in (points[-1].metrics if points else ()) if name != LOSS and name not in DETAILS]


def metric_of(record: Record) -> str | None:
    """Name of the metric that is shown beside the loss: an accuracy, or else the first metric. None: there is none."""
    names = metrics_of(record)
    return next((name for name in names if "acc" in name.lower()), names[0] if names else None)


def outcome(name: str, record: Record, metric: str | None) -> Outcome:
    """Compute the result of a training that is over.

    Args:
        name: name of the training.
        record: its record.
        metric: name of the metric; None: there is none.

    Raises:
        ValueError: the record has no update.
    """
    if not record.updates:
        raise ValueError(f"{name}: the record holds no update")
    samples, batches = _samples(record)
    curves = {
        "batch": Curve(_steps(record.updates), tuple(_values(record.updates, "batch", batches))),
        LOSS: Curve(_steps(record.updates), _own(record.updates, LOSS, samples)),
    }
    if any("learning_rate" in point.metrics for point in record.updates):
        rates = _values(record.updates, "learning_rate", [math.nan] * len(batches))
        curves["learning_rate"] = Curve(_steps(record.updates), tuple(rates))
    last = (record.validations or record.updates)[-1].metrics
    for shown, of in (("loss", LOSS), ("metric", metric)):
        if of is not None and of in record.updates[-1].metrics:
            curves[shown] = Curve(_steps(record.updates), _own(record.updates, of, samples))
        if of is not None and record.validations:
            values = tuple(point.metrics.get(of, math.nan) for point in record.validations)
            curves[f"test {shown}"] = Curve(_steps(record.validations), values)
    return Outcome(
        name,
        last.get(LOSS, math.nan),
        last.get(metric, math.nan) if metric else math.nan,
        len(record.updates),
        math.fsum(curves["batch"].value) / len(record.updates),
        record.digest or "",
        curves,
    )


def smooth(curve: Curve, window: float) -> list[float]:
    """Means of a curve over ``window`` micro-batches around each update. Each update is weighted by its number of
    micro-batches. A value that is not finite leaves its update out; a mean over no other value is NaN."""
    sizes = [step - before for before, step in zip((0, *curve.step), curve.step, strict=False)]
    sums, counts = [0.0], [0]
    for value, size in zip(curve.value, sizes, strict=True):
        counted = size if math.isfinite(value) else 0  # a sum that has met a NaN stays NaN
        sums.append(sums[-1] + (value * size if counted else 0.0))
        counts.append(counts[-1] + counted)
    found = []
    for step in curve.step:
        low = bisect.bisect_left(curve.step, step - window / 2)
        high = bisect.bisect_right(curve.step, step + window / 2)
        count = counts[high] - counts[low]
        found.append((sums[high] - sums[low]) / count if count else math.nan)
    return found


def _steps(points: Sequence[Point]) -> tuple[int, ...]:
    return tuple(point.step for point in points)


def _samples(record: Record) -> tuple[list[float], list[float]]:
    """For each update: the number of samples of its epoch up to its end, and the number of its own samples."""
    assert record.shape is not None
    schedule = record.schedule
    in_unit = record.shape["batch_size"] / schedule.batch_size  # in some data sets the unit is a batch, not a sample
    behind, own, epoch = [], [], 0
    for point in record.updates:
        done = point.step - (point.epoch - 1) * schedule.steps_per_epoch
        behind.append(min(done * schedule.batch_size, schedule.train_samples) * in_unit)
        own.append(behind[-1] - (behind[-2] if len(behind) > 1 and point.epoch == epoch else 0.0))
        epoch = point.epoch
    return behind, own


def _values(points: Sequence[Point], name: str, otherwise: Sequence[float]) -> list[float]:
    return [point.metrics.get(name, other) for point, other in zip(points, otherwise, strict=True)]


def _own(points: Sequence[Point], name: str, samples: Sequence[float]) -> tuple[float, ...]:
    """Each update's own value, computed from the means over the epoch so far."""
    found, epoch, total, count = [], 0, 0.0, 0.0
    for point, behind in zip(points, samples, strict=True):
        if point.epoch != epoch:
            epoch, total, count = point.epoch, 0.0, 0.0
        mean = point.metrics.get(name, math.nan)
        found.append((mean * behind - total) / (behind - count) if behind > count else mean)
        total, count = mean * behind, behind
    return tuple(found)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
