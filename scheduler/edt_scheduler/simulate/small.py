"""A small workload of our own, for where no traces are: four applications described by formulas, and forty jobs.

A pass of m samples on one GPU takes ``overhead + sample * m`` seconds. An all-reduce takes ``near`` seconds within a
node and ``far`` seconds between nodes, times 2 (n - 1) / n. The variance of the gradient grows with the epochs beside
its squared norm, so that larger batches pay more towards the end.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from edt_scheduler.simulate.applications import Application
from edt_scheduler.simulate.workload import Submission

NODES = 4
"""Nodes of the cluster that the workload is made for, each with 4 GPUs."""
_JOBS = 40
_HOURS = 2.0


@dataclass(frozen=True)
class _Described:
    epochs: int
    steps: int
    """Steps of the smallest batch in an epoch."""
    batches: tuple[int, int]
    """The smallest and the largest global batch, in samples."""
    local: tuple[int, int]
    """The smallest and the largest batch of one GPU in one pass."""
    overhead: float
    sample: float
    near: float
    far: float
    noise: tuple[float, float]
    """Variance of the gradient beside its squared norm, with the smallest batch, in the first and the last epoch."""
    tuned: tuple[tuple[int, int], ...]
    """(GPUs, batch) that users choose."""
    share: int
    """How many of ten jobs it is."""
    rigid: bool = False


_APPLICATIONS = {
    "ranking": _Described(
        6, 400, (4096, 4096), (256, 4096), 0.01, 4e-5, 0.0, 0.0, (1.0, 2.0), ((1, 4096),), 3, rigid=True
    ),
    "vision": _Described(
        24, 300, (128, 2048), (16, 256), 0.015, 1.5e-3, 0.02, 0.06, (3.0, 20.0), ((2, 512), (4, 1024), (8, 2048)), 4
    ),
    "speech": _Described(
        12, 500, (32, 512), (8, 64), 0.03, 6e-3, 0.05, 0.15, (2.0, 12.0), ((1, 64), (2, 128), (4, 256)), 2
    ),
    "language": _Described(3, 6000, (16, 256), (2, 16), 0.05, 2.5e-2, 0.08, 0.25, (4.0, 30.0), ((4, 64), (8, 128)), 1),
}


class Formula(Application):
    """An application whose step times are reckoned, not measured."""

    def __init__(self, name: str) -> None:
        described = _APPLICATIONS[name]
        self.name = name
        self._described = described
        self.batches = list(described.batches)
        self.min_local, self.max_local = described.local
        self.epochs = described.epochs
        self.progress = [float(epoch * described.steps) for epoch in range(described.epochs + 1)]
        self._lines = {}

    @property
    def is_rigid(self) -> bool:
        return self._described.rigid

    @cache  # noqa: B019 (applications are few and live as long as the program)
    def _spread(self, nodes: int, gpus: int, local: int) -> tuple[float, float]:
        each = self._described.near if nodes == 1 else self._described.far
        sync = each * 2 * (gpus - 1) / gpus
        return self._described.overhead + self._described.sample * local + sync, sync

    def _value(self, column: str, batch: int, epoch: int) -> float:
        first, last = self._described.noise
        if column == "grad_sqr":
            return 1.0
        if column == "grad_var":
            return first + (last - first) * epoch / max(1, self.epochs - 1)
        return sum(self._described.steps / self.gain(batch, each) for each in range(epoch + 1))


def applications() -> Sequence[str]:
    """The names of the applications that are described here."""
    return tuple(_APPLICATIONS)


def small_workload() -> Sequence[Submission]:
    """Who submits what and when: the same each time."""
    chance = random.Random(7)  # noqa: S311 (it has to be the same each time)
    names = [name for name, described in _APPLICATIONS.items() for _ in range(described.share)]
    moments = sorted(int(chance.random() * _HOURS * 3600) for _ in range(_JOBS))
    found = []
    for number, at in enumerate(moments):
        name = names[int(chance.random() * len(names))]
        tuned = _APPLICATIONS[name].tuned
        gpus, batch = tuned[int(chance.random() * len(tuned))]
        found.append(Submission(f"{name}-{number}", at, name, gpus, batch))
    return found
