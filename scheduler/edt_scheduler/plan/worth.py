"""What each number of workers is worth to a job, beside what it has now. Pure.

The utility of n workers is

    U(n) = weight * s(n)^(1 - beta) / (1 - beta),    weight = priority * (max(L, 60) / 600)^-alpha

with the speed s(n) beside one worker and the seconds L for which one worker would still need. beta = 1 is proportional
fairness, 2 Pollux's objective, 0 throughput alone; alpha = 1 with beta = 0 is shortest remaining time first.

A resize has to pay: every size but the present one counts as if it were slower by the pause that it costs, spread over
the time for which the decision may hold. So a job stays as it is unless another size is worth more than its pause, and
the next plan does not change what this one has done. Growing has to pay more often over than shrinking does, since
somebody else waits for what is given back.

Only the corners of the upper concave envelope are offered. With them, giving each worker to the job to which it is
worth most is optimal up to one corner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LEAST_SECONDS = 60.0
"""L is at least so much: a job that is about to end is worth no more than one that has a minute left."""
MOST_SLOWED = 0.05
"""The least part of its speed with which a size counts after a resize."""


@dataclass(frozen=True)
class Weights:
    """The parameters of the policy. One set serves every workload; load 0.5 of the traces has chosen it."""

    alpha: float = 0.5
    """How much shorter work comes first, where it is known how much is left."""
    alpha_unknown: float = 0.3
    """The same where it is not known. L is then the GPU-seconds that the job has had, and 600 more."""
    beta: float = 1.2
    grow: float = 4.0
    """How often over growing has to pay for its pause."""
    shrink: float = 2.0
    """How often over leaving a size for a smaller one counts its pause."""
    horizon_seconds: float = 600.0
    """For how long a decision is reckoned to hold, unless the job ends before."""
    horizon_pauses: float = 20.0
    """The same in pauses of a resize: where resizes are costly, there are fewer of them, and each holds for longer."""
    least_share: float = 1 / 40
    """Which part of that time the pause of a resize is reckoned to be at least, so that none is made for little."""
    new_seconds: float = 600.0
    """L of a job of which nothing is known yet."""
    growth: float = 4.0
    """How many times as many workers as were measured so far a job gets at most."""
    probe: int = 4
    """The most workers of a job of which nothing was measured yet, where a resize is costly."""

    def is_costly(self, pause: float) -> bool:
        """Whether a resize costs so much that a job should not try sizes far from those that were measured."""
        return self.grow * pause > 0.02 * self.horizon_seconds


@dataclass(frozen=True)
class Work:
    """How much a job has to do, in seconds that one worker needs. ``known``: whether its script says so."""

    seconds: float
    known: bool = True


Rungs = tuple[tuple[int, float], ...]
"""Numbers of workers with their utility, both rising."""


@dataclass(frozen=True)
class Offer:
    """What the sizes of a job are worth to it."""

    rungs: Rungs
    """Its sizes that are worth more than all smaller ones, smallest first, with their utility without the weight."""
    corners: Rungs
    """Those of them that lie on the upper concave envelope."""
    weight: float = 1.0
    most: int = 0
    """What it has use for: the largest size that is worth more to it than all smaller ones, were resizes free. Unlike
    the rungs it does not depend on what the job holds, and what users are entitled to must not depend on that."""


def weight_of(work: Work, weights: Weights) -> float:
    """How much a job's utility counts: the more, the less it has to do."""
    alpha = weights.alpha if work.known else weights.alpha_unknown
    return float((max(work.seconds, LEAST_SECONDS) / weights.new_seconds) ** -alpha)


def offer(speeds: Mapping[int, float], held: int, work: Work, pause: float, weights: Weights) -> Offer:
    """What each size of a job is worth. A size that is worth no more than a smaller one is left out.

    Args:
        speeds: the sizes that the job may have, and its speed at each beside one worker.
        held: the workers that it has; 0: none.
        work: what it has to do.
        pause: seconds that a resize costs it.
        weights: the parameters.
    """
    rungs = slowed(tuple(speeds.items()), held, pause_share(speeds, held, work, pause, weights), weights)
    return Offer(rungs, tuple(envelope(rungs)), weight_of(work, weights), max(speeds, default=0))


def pause_share(speeds: Mapping[int, float], held: int, work: Work, pause: float, weights: Weights) -> float:
    """Which part the pause of a resize is of the time for which the decision may hold, in two decimal digits, so that
    few values come up again and again. 0: the job has no workers yet.
    """
    if not held:
        return 0.0
    horizon = max(weights.horizon_seconds, weights.horizon_pauses * pause)
    if work.known:
        horizon = max(1.0, min(horizon, max(work.seconds, LEAST_SECONDS) / speeds[held]))
    return float(f"{max(pause / horizon, weights.least_share):.1e}")


def slowed(speeds: tuple[tuple[int, float], ...], held: int, pause: float, weights: Weights) -> Rungs:
    """The rungs of a job, each size but the present one slower by the pause that it costs (``pause_share``)."""
    found: list[tuple[int, float]] = []
    best = 0.0
    for size, full in sorted(speeds):
        speed = full
        if held and size != held:
            speed *= max(MOST_SLOWED, 1 - (weights.grow if size > held else weights.shrink) * pause)
        if speed > best:
            best = speed
            found.append((size, utility(best, weights.beta)))
    return tuple(found)


def utility(speed: float, beta: float) -> float:
    """The utility of a speed, without the job's weight."""
    return math.log(speed) if beta == 1 else speed ** (1 - beta) / (1 - beta)


def envelope(rungs: Iterable[tuple[int, float]], least: int = 0, most: float = math.inf) -> Sequence[tuple[int, float]]:
    """The corners of the upper concave envelope of the rungs from ``least`` to ``most``, the first of them included."""
    found: list[tuple[int, float]] = []
    slopes: list[float] = []
    for size, worth in rungs:
        if size < least or size > most:
            continue
        while found:
            slope = (worth - found[-1][1]) / (size - found[-1][0])
            if not slopes or slope < slopes[-1]:
                slopes.append(slope)
                break
            slopes.pop()
            found.pop()
        found.append((size, worth))
    return found
