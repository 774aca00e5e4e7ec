"""What no policy can beat: a lower bound of the mean completion time of a workload whose future is known.

Its proof, for batches that do not change. GPU-seconds get a price: lambda(t) >= 0 at time t, in seconds. Take any
schedule of the simulator's cluster of M GPUs. In it job j, submitted at r_j, holds n_j(t) GPUs and ends at C_j. Since
all jobs together never hold more than M,

    sum_j (C_j - r_j)  >=  sum_j [C_j - r_j + integral of lambda(t) n_j(t) dt]  -  M * integral of lambda(t) dt,

and in the brackets no job depends on another. A job begins at the first decision after its submission and stands still
for a pause first, so that it does all its steps W_j between x_j and C_j. With n GPUs it does at most s_j(n) steps per
second, on whatever nodes they are. So for each mu >= 0, which is the price of a step,

    integral of lambda n_j  >=  mu W_j  -  integral from x_j to C_j of  max over n of (mu s_j(n) - lambda(t) n)  dt,

because the integral of s_j(n_j(t)) is at least W_j. Prices are constant in each of many slots of time. For one mu the
right side and C_j together are then linear in C_j within a slot, and least at one end of it. The bound of the slot is
that of the best mu of a grid, and the job's bound is that of its worst slot. Behind the last slot GPUs cost nothing,
and with mu <= 1 / max s_j an end there is no cheaper than one at its beginning.

This holds for all prices, which are only chosen to make it large: by steps along the number of GPUs that the jobs would
take above M (a subgradient), smaller ones towards the end. Two things make W_j smaller than it is, so that nothing that
the simulator does is missed: it rounds the end of each epoch to whole seconds, which may save half a second of each,
and a batch that its GPUs do not divide is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edt_scheduler.simulate.applications import Floats
from edt_scheduler.simulate.cluster import Rules
from edt_scheduler.simulate.training import Training

_SLOTS = 400
_FIRST_STEP = 0.03
"""By how much a price changes at first, beside the mean price."""
_PRICES_OF_WORK = 40


@dataclass(frozen=True)
class _Kind:
    """What jobs of one application and batch have in common."""

    sizes: Floats
    """Numbers of GPUs, from 0."""
    speeds: Floats
    """Steps per second with them, where noise makes them neither faster nor slower."""
    steps: float
    """Steps of a job at least."""
    work_prices: Floats
    """The grid for mu, in seconds for a step. The last one is that of the fastest size."""


def lower_bound(
    jobs: Sequence[Training], rules: Rules, progress: Callable[[float], None] | None = None, steps: int = 250
) -> float:
    """Seconds from submission to end, in the mean, that no policy can beat with batches that do not change.

    Args:
        jobs: the jobs of the workload (``cluster.trainings``), before they begin.
        rules: how cluster and clock behave.
        progress: is told the part of the work that is done, from 0 to 1.
        steps: how often the prices are changed. More of them make the bound larger, and none makes it wrong.
    """
    kinds: dict[tuple[str, int], _Kind] = {}
    saved = 0.5 / min(1.0, *(job.slower for job in jobs))
    for job in jobs:
        key = job.application.name, job.batch
        if key not in kinds:
            kinds[key] = _kind(job, rules, saved)
    relaxed = _Relaxation(jobs, [kinds[job.application.name, job.batch] for job in jobs], rules)
    return float(relaxed.best(steps, progress)) / len(jobs)


def _kind(job: Training, rules: Rules, saved: float) -> _Kind:
    """What jobs like this one have in common. ``saved``: seconds that rounding takes off an epoch, at most."""
    application, batch = job.application, job.batch
    most = min(rules.nodes * rules.gpus, application.most_gpus(batch))
    epochs = range(application.epochs)
    gains = [application.gain(batch, epoch) for epoch in epochs]
    sizes, speeds = [0], [0.0]
    for gpus in range(1, most + 1):
        local, before = application.split(batch, gpus)
        rounded = gpus * local * (before + 1)
        more = max(application.gain(rounded, epoch) / gains[epoch] for epoch in epochs) if rounded != batch else 1.0
        sizes.append(gpus)
        speeds.append(more / application.fastest(batch, gpus, rules.gpus))
    ends = application.progress
    each = [(ends[epoch + 1] - ends[epoch]) / gains[epoch] for epoch in epochs]
    steps = sum(max(0.0, number - saved * max(speeds)) for number in each)
    corners = _corners(sizes, speeds)
    alone = 1 / max(speeds)
    grid = np.append(np.geomspace(alone / 2, alone * 200, _PRICES_OF_WORK), alone)
    return _Kind(np.array([float(sizes[at]) for at in corners]), np.array([speeds[at] for at in corners]), steps, grid)


def _corners(sizes: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """The corners of the upper concave envelope: no other size is the best one at any price."""
    found: list[int] = []
    for at in range(len(sizes)):
        while len(found) > 1:
            one, two = found[-2:]
            if (speeds[at] - speeds[one]) * (sizes[two] - sizes[one]) < (speeds[two] - speeds[one]) * (
                sizes[at] - sizes[one]
            ):
                break
            found.pop()
        found.append(at)
    return found


class _Relaxation:
    """The jobs of a workload, each for itself, at prices."""

    def __init__(self, jobs: Sequence[Training], kinds: Sequence[_Kind], rules: Rules) -> None:
        self._gpus = rules.nodes * rules.gpus
        self._submits = np.array([float(job.submit) for job in jobs])
        self._slower = np.array([job.slower for job in jobs])
        self._kinds = kinds
        self._begins = np.array([_first_decision(job.submit, rules) for job in jobs]) + rules.pause
        self._alone = np.array(
            [job.slower * kind.steps / kind.speeds.max() for job, kind in zip(jobs, kinds, strict=True)]
        )
        work = np.array([kind.steps * (kind.sizes[1:] / kind.speeds[1:]).min() for kind in kinds]) * self._slower
        self._machine = _machine_ends(self._begins, work / self._gpus)
        end = max((self._begins + self._alone).max(), self._machine.max()) * 1.1
        self._ends = np.linspace(0.0, end, _SLOTS + 1)
        self._length = end / _SLOTS

    def best(self, steps: int, progress: Callable[[float], None] | None) -> float:
        """The largest bound of the sum of completion times that was found."""
        middles = (self._ends[:-1] + self._ends[1:]) / 2
        there = (self._submits[:, None] <= middles) & (middles < self._machine[:, None])
        prices: Floats = there.sum(axis=0) / self._gpus
        best, _ = self.at(np.zeros(_SLOTS))
        scale = _FIRST_STEP * float(prices[prices > 0].mean())
        mean, square = np.zeros(_SLOTS), np.zeros(_SLOTS)
        for turn in range(1, steps + 1):
            value, taken = self.at(prices)
            best = max(best, value)
            excess = taken / self._gpus - 1
            mean, square = 0.9 * mean + 0.1 * excess, 0.99 * square + 0.01 * excess**2  # Adam (Kingma and Ba, 2015)
            step = (mean / (1 - 0.9**turn)) / (np.sqrt(square / (1 - 0.99**turn)) + 1e-3)
            prices = np.maximum(0.0, prices + scale * (1 - turn / steps) * step)
            if progress is not None:
                progress(turn / steps)
        return best

    def at(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at prices, one for each slot, and the GPUs that all jobs would take in each slot."""
        total = -self._gpus * float(prices.sum()) * self._length
        taken = np.zeros(_SLOTS)
        profits: dict[int, tuple[Floats, Floats]] = {}
        for job, kind in enumerate(self._kinds):
            if id(kind) not in profits:
                values = (
                    kind.work_prices[:, None, None] * kind.speeds[:, None] - kind.sizes[:, None] * prices
                )  # by price of work, size, slot
                choice = values.argmax(axis=1)
                gained = np.take_along_axis(values, choice[:, None, :], axis=1)[:, 0, :]
                summed = np.concatenate([np.zeros((len(values), 1)), gained.cumsum(axis=1)], axis=1) * self._length
                profits[id(kind)] = summed, kind.sizes[choice]
            value, used = self._of_job(job, kind, *profits[id(kind)])
            total += value
            taken += used
        return total, taken

    def _of_job(self, job: int, kind: _Kind, summed: Floats, sizes: Floats) -> tuple[float, Floats]:
        """A job's part of the bound, and the GPUs that it would take in each slot.

        Noise that makes a job slower by a factor makes its price of a step higher by the same one, so that all jobs of
        a kind have the same profits.
        """
        begin, first_end = self._begins[job], self._begins[job] + self._alone[job]
        at = begin / self._length
        low = int(at)
        before = summed[:, low] + (at - low) * (summed[:, low + 1] - summed[:, low])
        paid = kind.work_prices * self._slower[job] * kind.steps
        first = int(first_end / self._length)
        ends = self._ends[first:].copy()
        profits = summed[:, first:].copy()
        part = first_end / self._length - first
        profits[:, 0] += part * (profits[:, 1] - profits[:, 0])
        ends[0] = first_end
        values = ends - self._submits[job] + paid[:, None] - (profits - before[:, None])
        least = np.minimum(values[:, :-1], values[:, 1:])
        of_slots = least.max(axis=0)
        behind = float(np.where(kind.work_prices <= kind.work_prices[-1], values[:, -1], -math.inf).max())
        slot = int(of_slots.argmin())
        best = float(of_slots[slot])
        price = int(least[:, slot].argmax())
        last = slot + int(values[price, slot + 1] < values[price, slot])
        if behind < best:
            best, price, last = behind, len(values) - 1, len(ends) - 1
        share = np.clip((ends[last] - self._ends[:-1]) / self._length, 0, 1)
        share = share * np.clip((self._ends[1:] - begin) / self._length, 0, 1)
        return best, sizes[price] * share


def _first_decision(submit: float, rules: Rules) -> float:
    if rules.at_once:
        return submit
    return max(1.0, math.ceil(submit / rules.round_seconds)) * rules.round_seconds


def _machine_ends(begins: Floats, seconds: Floats) -> Floats:
    """When each job ends on one machine as fast as all GPUs, the shortest remaining first. Prices begin with that."""
    order = np.argsort(begins, kind="stable")
    left, ends = seconds.copy(), np.zeros(len(begins))
    live: list[int] = []
    now, coming = 0.0, 0
    while live or coming < len(order):
        if not live:
            now = max(now, float(begins[order[coming]]))
        while coming < len(order) and begins[order[coming]] <= now:
            live.append(int(order[coming]))
            coming += 1
        job = min(live, key=lambda each: left[each])
        until = now + float(left[job])
        if coming < len(order):
            until = min(until, float(begins[order[coming]]))
        left[job] -= until - now
        now = until
        if left[job] <= 1e-9:
            live.remove(job)
            ends[job] = now
    return ends
