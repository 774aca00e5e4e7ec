"""What validations say about a training: the newest metrics, the best value of each, and the one to show first. Pure.

The metrics of a validation are named as in Keras: ``val_accuracy`` is the validation's accuracy. So no name means two
things, and a training's own metrics keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from edt_contract.metrics import better
from edt_scheduler.model.progress import MOST_METRICS, MetricPoint

PREFIX = "val_"
LOSS = "loss"
VAL_LOSS = PREFIX + LOSS

Best = Mapping[str, Mapping[str, Any]]
"""The best value of each metric by its name, as JSON: ``value``, ``epoch`` and ``step``."""


def named(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """The metrics of a VALIDATED report under the names that everybody sees."""
    return {PREFIX + name: value for name, value in metrics.items()}


def with_point(best: Best, point: MetricPoint) -> Best:
    """The best values after a validation. Of equal values the earlier one stays.

    Only the first MOST_METRICS names count, and values that are not numbers never do.
    """
    found = dict(best)
    for name, value in point.metrics.items():
        if value is None or (name not in found and len(found) >= MOST_METRICS):
            continue
        before = found.get(name)
        if before is None or better(name, (before["value"], value)) != before["value"]:
            found[name] = {"value": value, "epoch": point.epoch, "step": point.step}
    return found


def up_to(best: Best, step: int) -> Best:
    """The best values that were found by this step."""
    return {name: each for name, each in best.items() if each["step"] <= step}


def best_of(points: Iterable[MetricPoint]) -> Best:
    """The best values of several validations, which are in order."""
    best: Best = {}
    for point in points:
        best = with_point(best, point)
    return best


def main_metric(validation: Mapping[str, Any] | None, progress: Mapping[str, Any]) -> tuple[str, float | None] | None:
    """Name and newest value of the metric that a list shows of a job; None: it has reported none.

    A validation's first metric besides its loss comes first, then a validation's loss, then the loss of the training. A
    value that is None is not a number.

    Args:
        validation: the job's newest validation; None: it has none.
        progress: body of its newest PROGRESS report; empty: there was none.
    """
    metrics: Mapping[str, float | None] = validation["metrics"] if validation is not None else {}
    others = islice((name for name in metrics if name != VAL_LOSS), 1)
    for name in (*others, VAL_LOSS):
        if name in metrics:
            return name, metrics[name]
    return (LOSS, progress.get(LOSS)) if LOSS in progress else None
