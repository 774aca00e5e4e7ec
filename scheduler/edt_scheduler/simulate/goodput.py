"""How fast an application trains when its batch may change: fitted to what was measured, and the best batch of a size.

Goodput is what Pollux (OSDI 2021) calls it: iterations of the smallest batch per second, which is the speed of a batch
times how far an iteration of it gets. The seconds of an iteration on n GPUs with m samples each are

    (passes) * (a + b * m) + all-reduce,    all-reduce = c + d * (n - 2)

with c and d of one node, or of several. All terms are fitted by non-negative least squares on relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from edt_scheduler.simulate.applications import GPUS_PER_NODE, Application, Floats

_BATCHES = 30
"""How many global batches are tried, at equal ratios between the smallest and the largest."""
_PRIOR = 0.4
"""How much the rows count which say that further GPUs cost nothing."""
_FARTHER = 1.1
"""How much longer an all-reduce between nodes takes than within one, as long as none was measured."""


@dataclass(frozen=True)
class StepModel:
    """Seconds of an iteration by GPUs and batch. ``largest``: the most GPUs that were measured."""

    start: float
    sample: float
    near: tuple[float, float]
    far: tuple[float, float]
    largest: int

    @classmethod
    def fit(cls, seen: Mapping[tuple[int, int, int], tuple[float, float]]) -> StepModel:
        """The model of what was measured.

        Args:
            seen: (nodes, GPUs, batch of one pass) to the seconds of a pass and of its all-reduce: one entry or more.
        """
        compute = np.array([step - sync for step, sync in seen.values()])
        batches = np.array([local for _, _, local in seen], dtype=float)
        if len(set(batches)) == 1:
            half = float(compute.mean()) / 2
            start, sample = half, half / float(batches[0])
        else:
            terms = np.stack([1 / compute, batches / compute], axis=1)
            start, sample = map(float, nnls(terms, np.ones(len(batches)))[0])
        near, far = _all_reduce(seen)
        return cls(start, sample, near, far, max(gpus for _, gpus, _ in seen))

    def seconds(self, gpus: int, local: Floats, before: Floats) -> Floats:
        """Seconds of an iteration, for each of several batches.

        Args:
            gpus: how many GPUs share the batch, on as few nodes as possible.
            local: samples of one pass of one GPU.
            before: passes before the last one.
        """
        first, more = self.near if gpus <= GPUS_PER_NODE else self.far
        network = first + more * (gpus - 2) if gpus > 1 else 0.0
        found: Floats = (self.start + self.sample * local) * (before + 1) + network
        return found


def _all_reduce(
    seen: Mapping[tuple[int, int, int], tuple[float, float]],
) -> tuple[tuple[float, float], tuple[float, float]]:
    """c and d within a node, and between nodes."""
    rows, wanted = [], []
    shared = {key: times for key, times in seen.items() if key[1] > 1}
    if not shared:
        return (0.0, 0.0), (0.0, 0.0)
    many = any(gpus > 2 for _, gpus, _ in shared)
    for (nodes, gpus, _), (step, sync) in shared.items():
        further = (gpus - 2) * many
        terms = (1.0, further, 0.0, 0.0) if nodes == 1 else (0.0, 0.0, 1.0, further)
        rows.append([term / step for term in terms])
        wanted.append(sync / step)
    weak = _PRIOR / max(step for step, _ in seen.values())
    rows += [[0.0, weak, 0.0, 0.0], [0.0, 0.0, 0.0, weak]]
    first, more, far_first, far_more = map(float, nnls(np.array(rows), np.array([*wanted, 0.0, 0.0]))[0])
    if all(nodes == 1 for nodes, _, _ in shared):
        far_first, far_more = max(far_first, first * _FARTHER), max(far_more, more * _FARTHER)
    if all(nodes > 1 for nodes, _, _ in shared):
        first = more = 0.0
    return (first, more), (far_first, far_more)


def best_batch(
    application: Application, model: StepModel, gradient: tuple[float, float], gpus: int
) -> tuple[float, int, int] | None:
    """The global batch with the highest goodput on so many GPUs.

    Args:
        application: what its batches may be.
        model: its step times.
        gradient: squared norm and variance of its gradient.
        gpus: how many GPUs share the batch.

    Returns:
        Iterations of the smallest batch per second, samples of one pass of one GPU, and passes before the last one;
        None: no batch can be shared by so many.
    """
    smallest = max(application.initial_batch, application.min_local * gpus)
    if smallest > application.max_batch:
        return None
    each = np.geomspace(smallest, application.max_batch, _BATCHES) / gpus
    before = np.ceil(each / application.max_local - 1e-8) - 1
    if gpus == 1:  # one pass alone says nothing about the variance of the gradient
        before = np.where(each > application.initial_batch + 1e-8, np.maximum(before, 1), before)
    local = np.ceil(each / (before + 1) - 1e-8)
    square, variance = gradient
    scale = gpus * local * (before + 1) / application.initial_batch
    found = (variance + square) / (variance / scale + square) / model.seconds(gpus, local, before)
    found = np.where((local >= application.min_local) & (local <= application.max_local), found, 0.0)
    best = int(found.argmax())
    return (float(found[best]), int(local[best]), int(before[best])) if found[best] > 0 else None
