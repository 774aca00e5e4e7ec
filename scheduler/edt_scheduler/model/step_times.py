"""Where the time of a job's steps goes, by its newest report: its efficiency, its slots, and who is slow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edt_contract.encoding import from_json_object
from edt_contract.step_times import PHASES, StepTimes, share_computing

TIME = "time"
"""The key under which the time of the report is stored beside a job's step times, in seconds since the epoch."""


@dataclass(frozen=True)
class EngineTimes:
    """Means of one engine, or over several."""

    micro_batches: float
    """Micro-batches a step."""
    seconds: Mapping[str, float]
    """Seconds a step in each phase."""
    efficiency: float
    """The share of its time that is forward and backward pass, 0 to 1."""
    rank: int | None = None
    """None: these are means over several engines, as below."""
    allocation: int | None = None
    node: str | None = None
    """Name of its node; None also: the job has no such allocation."""
    slot: str | None = None
    slower: float | None = None
    """By which share of the others' median it takes longer for a micro-batch, if that lasts; None: it does not."""


@dataclass(frozen=True)
class JobStepTimes:
    """Where the time of a job's steps goes: means over the training steps of some seconds."""

    time: float
    """When it was reported, in seconds since the epoch."""
    steps: int
    """Number of these steps."""
    step_seconds: float
    efficiency: float
    """The share of all engines' time that is forward and backward pass, 0 to 1."""
    engines: tuple[EngineTimes, ...]
    """In rank order. Of more than 64 engines the slowest and the fastest."""
    others: int
    """Number of engines that are not among ``engines``."""
    mean_of_others: EngineTimes | None
    """None: there are no others."""
    waited_for: int | None
    """Allocation of the engine that is busy for longest, so that the others wait for it; None: none waits."""
    waited_seconds: float
    """By how much it is busy for longer than the median of the others, a step."""
    remarks: tuple[str, ...]
    """A sentence about each engine that has been slower than the others for some time."""


def efficiency(stored: Mapping[str, Any] | None) -> float | None:
    """The share of all engines' time that is forward and backward pass, 0 to 1; None: it was not reported.

    Args:
        stored: the newest step times of a job, as they are stored.
    """
    return from_json_object(StepTimes, stored).efficiency if stored else None


def of_job(stored: Mapping[str, Any], places: Mapping[int, tuple[str, str]], *, over: bool) -> JobStepTimes:
    """What a job's stored step times say.

    Args:
        stored: the step times.
        places: names of node and slot of the job's allocations, by their numbers.
        over: whether the job has ended.
    """
    times = from_json_object(StepTimes, stored)
    slower = dict(zip(times.stragglers, times.slower, strict=True))
    rows = zip(times.ranks, times.engines, times.micro_batches, times.microseconds, strict=True)
    engines = []
    for rank, engine, count, row in rows:
        node, slot = places.get(engine, (None, None))
        engines.append(
            EngineTimes(count, _seconds(row), share_computing(row), rank, engine, node, slot, slower.get(rank))
        )
    others = times.others_microseconds
    waited_for = next((engine.allocation for engine in engines if engine.rank == times.slowest), None)
    return JobStepTimes(
        time=stored[TIME],
        steps=times.steps,
        step_seconds=times.step_microseconds / 1e6,
        efficiency=times.efficiency,
        engines=tuple(engines),
        others=times.others,
        mean_of_others=(
            EngineTimes(times.others_micro_batches, _seconds(others), share_computing(others)) if others else None
        ),
        waited_for=waited_for,
        waited_seconds=times.waited_microseconds / 1e6,
        remarks=tuple(
            _remark(engine, times, waited=engine.allocation == waited_for, over=over)
            for engine in engines
            if engine.slower is not None
        ),
    )


def _seconds(microseconds: tuple[int, ...]) -> dict[str, float]:
    return {phase: each / 1e6 for phase, each in zip(PHASES, microseconds, strict=True)}


def _remark(engine: EngineTimes, times: StepTimes, *, waited: bool, over: bool) -> str:
    """The sentence about an engine that has been slow for some time."""
    place = f" on node {engine.node}, slot {engine.slot}" if engine.node is not None else ""
    two = len(times.ranks) + times.others == 2
    others, wait = ("the other one", "waits") if two else ("the others", "wait")
    slower = f"{100 * (engine.slower or 0):.0f} % slower than {others}"
    said = f"Engine {engine.allocation}{place} {'was' if over else 'is'} {slower}"
    if engine.micro_batches < _usual(times) - 0.25:
        return f"{said}; it {'got' if over else 'gets'} fewer micro-batches."
    if waited:
        took = f"{times.waited_microseconds / 1000:.1f} ms a step"
        return f"{said}, which {'waited' if over else wait} {took} for it."
    return f"{said}."


def _usual(times: StepTimes) -> float:
    """Micro-batches a step of an engine that is not slow, on average."""
    slow = set(times.stragglers)
    counts = [count for rank, count in zip(times.ranks, times.micro_batches, strict=True) if rank not in slow]
    total, number = sum(counts) + times.others * times.others_micro_batches, len(counts) + times.others
    return total / number if number else 0.0
