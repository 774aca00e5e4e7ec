"""A training's course, as a curve shows it: what stands of it, and few enough points. Room: scheduler. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from edt_scheduler.views import MetricPoint

MOST_METRICS = 64
"""So many metrics a training has. A script that names one after each step would have as many curves as points."""
_KEPT_OF_A_PART = 4


def standing(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points of the steps that count. ``points`` come as they were told: an attempt goes on from a checkpoint, and
    what the one before had done beyond it is done again."""
    kept: list[MetricPoint] = []
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept


def thinned(points: Sequence[MetricPoint], most: int) -> list[MetricPoint]:
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


class Told(Protocol):
    """A point as it is stored, in short."""

    @property
    def fence(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def loss(self) -> float | None: ...


def sparse(points: Sequence[Told], most: int) -> list[int]:
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


def with_few_metrics(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points with those metrics alone that are named first."""
    few = frozenset(islice({name: None for point in points for name in point.metrics}, MOST_METRICS))
    return [
        replace(point, metrics={name: value for name, value in point.metrics.items() if name in few})
        for point in points
    ]


def _loss(point: MetricPoint) -> float:
    return point.loss if point.loss is not None else 0.0
