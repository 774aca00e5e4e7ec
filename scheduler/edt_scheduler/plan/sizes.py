"""The sizes that a job may have, and how fast it trains at each. Pure.

An elastic job's sizes are the numbers of engines n at which ceil(E/n) drops. E micro-batches on n engines take
ceil(E/n) rounds. A size between two of these numbers would use a GPU and save no round. If the job's batch follows its
engines, E is the number of micro-batches of an epoch. This E is so large that almost every size is allowed. Until E is
known, the only size is the least one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from edt_scheduler.plan.curves import SERIAL, Curve, Point
from edt_scheduler.plan.state import Job
from edt_scheduler.plan.worth import Offer, Rungs, Weights, Work, envelope, pause_share, slowed, weight_of

_KEPT = 40_000
"""So many answers are kept, since one plan after the other asks for the same: enough for 12,500 jobs on 100,000 slots.
Each may hold a size for every slot of a job, so many more of them would fill the scheduler's memory.
"""


def sizes(engines: int | None, most: int) -> tuple[int, ...]:
    """The sizes a job may have, smallest first.

    Args:
        engines: E, the micro-batches of one step; None while it is unknown.
        most: the most slots the job may hold.

    >>> sizes(16, 16)
    (1, 2, 3, 4, 6, 8, 16)
    """
    if engines is None:
        return (1,)
    found, largest = [1], min(most, engines)
    while (rounds := -(-engines // found[-1])) > 1:  # the next size is the smallest that takes fewer rounds
        following = -(-engines // (rounds - 1))
        if following > largest:
            break
        found.append(following)
    return tuple(found)


def sizes_of(job: Job) -> tuple[int, ...]:
    """The sizes a job may have now, smallest first.

    None is below its least size, if it can use so many slots at all. The size at which a job is capped is always one of
    them. So the cap takes no slot from the job.
    """
    return _sizes_of(job.allowed, job.max, job.engines, job.cap, job.min)


@lru_cache(maxsize=_KEPT)
def _sizes_of(allowed: tuple[int, ...], most: int, engines: int | None, cap: int | None, least: int) -> tuple[int, ...]:
    if allowed:
        found = tuple(size for size in allowed if size <= most) or allowed[:1]
    elif engines is None:
        return (min(least, most),)
    else:
        found = sizes(engines, most)
        if cap is not None:
            found = tuple(sorted({*found, min(cap, most, engines)}))
    return tuple(size for size in found if size >= least) or found[-1:]


def least_of(job: Job) -> int:
    """The fewest slots with which an elastic job trains: fewer than its user has asked for if it can use no more."""
    return sizes_of(job)[0]


@dataclass(frozen=True, eq=False)
class Speeds:
    """How fast a job trains at each of its sizes."""

    of: Mapping[int, float]
    """Size to speed beside one worker."""
    alone: float | None
    """Seconds of a step with one worker; None: no step was measured."""


def speeds_of(job: Job, per_node: int, weights: Weights) -> tuple[Speeds, Work]:
    """How fast a job trains at each size that it may have now, and what it has to do.

    Until step times were measured, a tenth of a step is taken to be serial.

    Args:
        job: the job.
        per_node: slots of one node.
        weights: the parameters.
    """
    allowed = sizes_of(job)
    held = _held(job)
    growth = weights.growth if weights.is_costly(job.pause) else math.inf
    if job.speeds is not None:
        speeds = _given(job.speeds, allowed, held)
    else:
        if growth < math.inf and not job.points:
            allowed = tuple(size for size in allowed if size <= weights.probe or size in {held, allowed[0]})
        speeds = _speeds(job.points, None if job.allowed else job.engines or 1, per_node, allowed, growth, held)
    if job.steps_left is None:
        return speeds, Work(job.attained + weights.new_seconds, known=False)
    if speeds.alone is None:
        return speeds, Work(weights.new_seconds)
    return speeds, Work(job.steps_left * speeds.alone)


def _held(job: Job) -> int:
    """The slots that a job holds, as a size that it may keep; 0: its maximum was lowered, so it may not."""
    held = job.held
    return held if held <= job.max else 0


@lru_cache(maxsize=_KEPT)
def _given(given: tuple[tuple[int, float], ...], allowed: tuple[int, ...], held: int) -> Speeds:
    return Speeds({size: speed for size, speed in given if size in allowed or size == held}, 1.0)


@lru_cache(maxsize=_KEPT)
def _speeds(
    points: tuple[Point, ...], engines: int | None, per_node: int, allowed: tuple[int, ...], growth: float, held: int
) -> Speeds:
    def work(workers: int) -> float:
        return 1 / workers if engines is None else -(-engines // workers) / engines

    if held and held not in allowed:
        allowed = tuple(sorted({*allowed, held}))
    if not points:
        return Speeds({size: 1 / (SERIAL + (1 - SERIAL) * work(size)) for size in allowed}, None)
    curve = Curve.fit(points, per_node, work)
    tried = [size for size in allowed if size <= curve.largest * growth or size in {held, allowed[0]}]
    return Speeds({size: curve.speed(size) for size in tried}, curve.seconds(1))


def offer_of(job: Job, per_node: int, weights: Weights) -> Offer:
    """What each size of a job is worth to it.

    Args:
        job: the job, with the slots that it keeps.
        per_node: slots of one node.
        weights: the parameters.
    """
    speeds, work = speeds_of(job, per_node, weights)
    held = _held(job)
    share = pause_share(speeds.of, held, work, job.pause, weights)
    rungs, corners = _rungs(speeds, held, share, weights)
    free, _ = _rungs(speeds, 0, 0.0, weights)
    return Offer(rungs, corners, weight_of(work, weights), free[-1][0] if free else 0)


@lru_cache(maxsize=_KEPT)
def _rungs(speeds: Speeds, held: int, pause: float, weights: Weights) -> tuple[Rungs, Rungs]:
    rungs = slowed(tuple(speeds.of.items()), held, pause, weights)
    return rungs, tuple(envelope(rungs))
