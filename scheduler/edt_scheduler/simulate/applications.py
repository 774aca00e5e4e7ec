"""What was measured of an application: step times by placement and batch, and how far an epoch of each batch gets.

The files are those of Pollux's traces:

* ``placements.csv`` and ``scalability.csv``: seconds of a step, and how much of it the GPUs spend on their all-reduce,
  by GPUs on each node and by the batch of one GPU.
* ``validation-BATCH.csv``: one row an epoch, with the progress made so far (in iterations of the smallest batch), the
  iterations made so far, and the squared norm and the variance of the gradient.

What lies between two measurements is interpolated as Pollux's simulator does it: linearly between batches where a
placement was measured, else linearly between nodes, GPUs and batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator

from edt_scheduler.simulate.workload import BadWorkload, read_rows

GPUS_PER_NODE = 4
_MOST_NODES = 16
"""Nodes that were measured. A placement on more nodes takes as long as one on so many."""
_LIMITS = {"yolov3": 8}
"""The largest batch of one GPU, where it is not the largest measured one."""
_EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
_SLACK = 1e-8
"""Taken off before rounding up, so that a division without remainder does not end one higher."""

Floats = NDArray[np.float64]


class Application:
    """One application of a trace.

    Args:
        folder: its folder, which has its name.

    Raises:
        BadWorkload: if a file is missing or cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._epochs = {
            int(path.stem.partition("-")[2]): _columns(path) for path in sorted(folder.glob("validation-*.csv"))
        }
        if not self._epochs:
            raise BadWorkload(f"{folder} has no validation-BATCH.csv")
        self.batches = sorted(self._epochs)
        """The global batches, in samples, that were trained with."""
        self._lines: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        means: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for row in read_rows(folder / "placements.csv"):
            placement, local = row["placement"], int(row["local_bsz"])
            times = float(row["step_time"]), float(row["sync_time"])
            self._lines[placement].append((local, *times))
            means[len(placement), sum(map(int, placement)), local].append(times)
        for line in self._lines.values():
            line.sort()
        self._points = [(*place, *np.mean(times, axis=0)) for place, times in sorted(means.items())]
        self._points += [
            tuple(float(row[name]) for name in ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"))
            for row in read_rows(folder / "scalability.csv")
        ]
        locals_ = [local for line in self._lines.values() for local, _, _ in line]
        self.min_local, self.max_local = min(locals_), _LIMITS.get(self.name, max(locals_))
        """The smallest and the largest batch of one GPU in one pass, in samples."""
        shortest = min(len(columns["progress"]) for columns in self._epochs.values())
        self.epochs = _EPOCHS.get(self.name, shortest)
        self.progress = [0.0] + [
            float(min(columns["progress"][epoch] for columns in self._epochs.values())) for epoch in range(self.epochs)
        ]
        """The progress at which each epoch ends; entry 0 is 0."""

    @property
    def initial_batch(self) -> int:
        """The smallest global batch: progress counts its iterations."""
        return self.batches[0]

    @property
    def max_batch(self) -> int:
        """The largest global batch, in samples."""
        return self.batches[-1]

    @property
    def is_rigid(self) -> bool:
        """Whether the application cannot use more than one GPU."""
        return self.name == "ncf"

    def most_gpus(self, batch: int | None = None) -> int:
        """The most GPUs that share a global batch; None: the largest batch."""
        return 1 if self.is_rigid else max(1, (batch or self.max_batch) // self.min_local)

    def split(self, batch: int, gpus: int, *, accumulates: bool = False) -> tuple[int, int]:
        """How GPUs share a global batch: the batch of one pass of one GPU, and how many passes come before the last.

        Args:
            batch: the global batch, in samples.
            gpus: how many GPUs share it.
            accumulates: whether one GPU alone always makes two passes, as Optimus reckons.
        """
        local = math.ceil(batch / gpus - _SLACK)
        before = math.ceil(local / self.max_local - _SLACK) - 1
        if gpus == 1 and (accumulates or batch > self.initial_batch):
            before = max(1, before)  # one pass alone says nothing about the variance of the gradient
        once = math.ceil(local / (before + 1) - _SLACK)
        return min(once, int(self.max_batch / (gpus * (before + 1)))), before

    def step_seconds(self, batch: int, placement: Sequence[int], *, accumulates: bool = False) -> float:
        """Seconds of one iteration of a global batch on so many GPUs of each node."""
        local, before = self.split(batch, sum(placement), accumulates=accumulates)
        step, sync = self.times(tuple(placement), local)
        return step + before * (step - sync)

    @cache  # noqa: B019 (applications are few and live as long as the program)
    def times(self, placement: tuple[int, ...], local: int) -> tuple[float, float]:
        """Seconds of a pass with its all-reduce, and of the all-reduce alone.

        Args:
            placement: GPUs on each node.
            local: the batch of one GPU, in samples.

        Raises:
            BadWorkload: if nothing like that was measured.
        """
        used = tuple(number for number in placement if number)
        first = min(used[turn:] + used[:turn] for turn in range(len(used)))
        line = self._lines.get("".join(map(str, first)))
        if line is not None:
            at = [point[0] for point in line]
            return float(np.interp(local, at, [point[1] for point in line])), float(
                np.interp(local, at, [point[2] for point in line])
            )
        step, sync = self._spread(min(len(used), _MOST_NODES), sum(used), local)
        if math.isnan(step):
            where = f"{sum(used)} GPUs on {len(used)} nodes"
            raise BadWorkload(f"{self.name}: nothing was measured around {where} with {local} samples on each GPU")
        return step, sync

    def fastest(self, batch: int, gpus: int, per_node: int) -> float:
        """Seconds of an iteration of a global batch on so many GPUs, wherever on nodes of ``per_node`` they are."""
        local, before = self.split(batch, gpus)
        found = [self._spread(nodes, gpus, local) for nodes in range(-(-gpus // per_node), min(gpus, _MOST_NODES) + 1)]
        for place, line in self._lines.items():
            if sum(map(int, place)) == gpus and line[0][0] <= local <= line[-1][0]:
                found.append(self.times(tuple(map(int, place)), local))
        return min(step + before * (step - sync) for step, sync in found if not math.isnan(step))

    @cache  # noqa: B019
    def _spread(self, nodes: int, gpus: int, local: int) -> tuple[float, float]:
        """The times on so many nodes, between what was measured; NaN: outside of it."""
        step, sync = self._between([nodes, gpus, local])[0]
        return float(step), float(sync)

    @cached_property
    def _between(self) -> LinearNDInterpolator:
        points = np.array(self._points, dtype=float)
        return LinearNDInterpolator(points[:, :3], points[:, 3:])

    @cache  # noqa: B019
    def gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient in an epoch, with a global batch."""
        return self._value("grad_sqr", batch, epoch), self._value("grad_var", batch, epoch)

    def gain(self, batch: int, epoch: int) -> float:
        """How far an iteration of a global batch gets, in iterations of the smallest one.

        The formula is Pollux's (OSDI 2021, section 3.1): (variance + square) / (variance / scale + square).
        """
        square, variance = self.gradient(batch, epoch)
        return (variance + square) / (variance / (batch / self.initial_batch) + square)

    def iterations(self, batch: int, epoch: int) -> float:
        """Iterations of a global batch until an epoch has ended, counted from 0."""
        return self._value("iteration", batch, epoch)

    def _value(self, column: str, batch: int, epoch: int) -> float:
        low = max(each for each in self.batches if each <= batch)
        high = min(each for each in self.batches if each >= batch)
        under, over = float(self._epochs[low][column][epoch]), float(self._epochs[high][column][epoch])
        return under if low == high else ((batch - low) * over + (high - batch) * under) / (high - low)


def compact(gpus: int, per_node: int = GPUS_PER_NODE) -> tuple[int, ...]:
    """GPUs on each node, on as few nodes as possible."""
    whole, rest = divmod(gpus, per_node)
    return (per_node,) * whole + ((rest,) if rest else ())


def _columns(path: Path) -> dict[str, Floats]:
    rows = list(read_rows(path))
    try:
        return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    except (IndexError, ValueError, TypeError) as error:
        raise BadWorkload(f"{path}: {error}") from None
