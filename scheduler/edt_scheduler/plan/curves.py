"""How fast a job trains on so many workers: a curve that is fitted to the step times that its engines report. Pure.

The model of one step's seconds on n workers of some nodes is

    T(n) = a * work(n) + b + c * [more than one node] + d * (n - 1),   all of a, b, c, d >= 0

with the part of a step that one worker computes (``work``: ceil(E/n)/E where E micro-batches make a step), what every
worker does alike (b), the network between nodes (c) and what each further worker costs (d). It is fitted by
non-negative least squares on relative errors. Two points of Amdahl's law with a serial part of 10 % count a little, so
that one measured size is enough to begin with. What was measured on as few nodes as possible overrules the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

SERIAL = 0.1
"""The part of a step that more workers do not shorten, before anything else is known of a job."""
_PRIOR_WEIGHT = 0.05
_PRIOR_FACTOR = 8
"""How much larger than the first measured size the second point of the prior is."""


class Point(NamedTuple):
    """What was measured with one number of workers."""

    workers: int
    nodes: int
    seconds: float
    """Mean seconds of a step, without the first steps after a resize."""
    weight: float = 1.0
    """How much it counts beside others: 1 for a point of the job itself, less for one of an earlier job like it."""


@dataclass(frozen=True)
class Curve:
    """Seconds of a step by workers. ``largest``: the most workers that were measured."""

    work: Callable[[int], float]
    per_node: int
    known: dict[int, float]
    terms: tuple[float, float, float, float]
    largest: int

    @classmethod
    def fit(cls, points: Sequence[Point], per_node: int, work: Callable[[int], float] | None = None) -> Curve:
        """The curve of these points.

        Args:
            points: what was measured: one or more.
            per_node: workers that fit on one node.
            work: the part of a step that one of n workers computes; None: 1/n.
        """
        work = work or (lambda workers: 1 / workers)
        base = min(points, key=lambda each: (each.nodes > math.ceil(each.workers / per_node), each.workers))
        alone = base.seconds / (SERIAL + (1 - SERIAL) * work(base.workers))
        prior = [
            Point(n, math.ceil(n / per_node), alone * (SERIAL + (1 - SERIAL) * work(n)), _PRIOR_WEIGHT)
            for n in (base.workers, base.workers * _PRIOR_FACTOR)
        ]
        rows = [
            [each.weight * term / each.seconds for term in (work(each.workers), 1.0, each.nodes > 1, each.workers - 1)]
            for each in (*points, *prior)
        ]
        matrix = np.array(rows)
        if all(each.nodes == 1 for each in points):
            # Within one node nothing is learned of the network, and a cost for each further worker that was seen there
            # would forbid to ever try a second node.
            matrix[:, 2:] = 0.0
        found, _ = nnls(matrix, np.array([each.weight for each in (*points, *prior)]))
        known = {
            each.workers: each.seconds
            for each in sorted(points, key=lambda each: each.weight)
            if each.nodes <= math.ceil(each.workers / per_node)
        }
        largest = max(each.workers for each in points)
        return cls(work, per_node, known, (float(found[0]), float(found[1]), float(found[2]), float(found[3])), largest)

    def seconds(self, workers: int) -> float:
        """Seconds of a step on so many workers, on as few nodes as possible."""
        measured = self.known.get(workers)
        if measured is not None:
            return measured
        shared, same, network, each = self.terms
        return shared * self.work(workers) + same + network * (workers > self.per_node) + each * (workers - 1)

    def speed(self, workers: int) -> float:
        """How many times as fast as with one worker."""
        return self.seconds(1) / self.seconds(workers)
