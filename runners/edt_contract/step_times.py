"""Where the time of a training's steps goes, engine by engine: a part of progress reports.

An engine measures in which phase it is; the first engine sends means over some steps; the platform stores the newest
ones and shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edt_contract.encoding import ContractError, from_json_object, to_json_object

PHASES = ("data", "forward", "backward", "copies", "reduce", "wait", "apply", "other")
"""The phases of a step, in the order of the columns of microseconds. At each instant an engine is in one of them."""
COMPUTING = (1, 2)
"""Columns whose share of a step is its efficiency: forward and backward pass."""
BUSY = (0, 1, 2, 3)
"""Columns of the work that an engine does by itself before it needs the others' sums."""

MOST_ENGINES = 64
"""Of more engines than this only the slowest and the fastest have rows of their own."""
MOST_STRAGGLERS = 8

_MOST_STEPS = 2**53 - 1
_MOST_ENGINE = 2**53 - 1
_MOST_RANK = 1 << 20
_MOST_MICRO_BATCHES = 1e6
_MOST_MICROSECONDS = 10**10
_MOST_SLOWER = 1000.0

BYTES = 1024 + (MOST_ENGINES + 1) * (9 + 18 + 12 + 4 + 13 * len(PHASES))
"""Most bytes of a ``StepTimes`` as JSON, with a space after each comma."""


@dataclass(frozen=True)
class StepTimes:
    """Means over the training steps of some seconds. The tuples of engines have one item an engine, in rank order."""

    steps: int
    """Number of steps, at least 1."""
    ranks: tuple[int, ...]
    engines: tuple[int, ...]
    """Allocation ids."""
    micro_batches: tuple[float, ...]
    """Micro-batches a step."""
    microseconds: tuple[tuple[int, ...], ...]
    """Microseconds a step in each of ``PHASES``."""
    others: int = 0
    """Number of engines that have no row here, because there are more than ``MOST_ENGINES``."""
    others_micro_batches: float = 0.0
    """Mean over these engines, as the next."""
    others_microseconds: tuple[int, ...] = ()
    slowest: int | None = None
    """Rank of the engine that is busy for longest, so that the others wait for it; None: none waits."""
    waited_microseconds: int = 0
    """By how much it is busy for longer than the median of the others, a step."""
    stragglers: tuple[int, ...] = ()
    """Ranks of the engines that have taken longer for a micro-batch than the others for some time."""
    slower: tuple[float, ...] = ()
    """For each of them, by which share of the others' median it takes longer for a micro-batch: 0.4 is 40 %."""

    @property
    def step_microseconds(self) -> int:
        """Duration of a step."""
        return max(sum(row) for row in (*self.microseconds, self.others_microseconds))

    @property
    def efficiency(self) -> float:
        """The share of all engines' time that is forward and backward pass, 0 to 1."""
        others = [self.others * each for each in self.others_microseconds] or [0] * len(PHASES)
        return share_computing([sum(column) for column in zip(*self.microseconds, others, strict=True)])


def share_computing(microseconds: Sequence[int]) -> float:
    """The share of some time in each of ``PHASES`` that is forward and backward pass, 0 to 1."""
    return sum(microseconds[column] for column in COMPUTING) / max(1, sum(microseconds))


def fitted(value: Any) -> dict[str, Any] | None:
    """Turn any JSON value into the JSON of a ``StepTimes`` of at most ``BYTES`` bytes; None: it is none."""
    try:
        times = from_json_object(StepTimes, value) if isinstance(value, dict) else None
    except (ContractError, RecursionError):
        return None
    return to_json_object(times) if times is not None and _is_whole(times) else None


def _is_whole(times: StepTimes) -> bool:
    """Whether all parts belong together, and all numbers are in their ranges and as short as they should be."""
    count, stragglers, others = len(times.ranks), len(times.stragglers), times.others_microseconds
    rows = (*times.microseconds, *([others] if times.others else []))
    named = (*times.stragglers, *([] if times.slowest is None else [times.slowest]))
    return (
        0 < count <= MOST_ENGINES
        and len(times.engines) == len(times.micro_batches) == len(times.microseconds) == count
        and len(set(times.ranks)) == count
        and stragglers == len(times.slower) <= MOST_STRAGGLERS
        and bool(others) == bool(times.others)
        and set(named) <= set(times.ranks)
        and _within(1, _MOST_STEPS, [times.steps])
        and _within(0, _MOST_RANK, [*times.ranks, times.others])
        and _within(1, _MOST_ENGINE, times.engines)
        and _short(_MOST_MICRO_BATCHES, [*times.micro_batches, times.others_micro_batches])
        and _short(_MOST_SLOWER, times.slower)
        and _within(0, _MOST_MICROSECONDS, [times.waited_microseconds])
        and all(len(row) == len(PHASES) and _within(0, _MOST_MICROSECONDS, row) for row in rows)
    )


def _within(low: int, high: int, numbers: Sequence[int]) -> bool:
    return all(low <= number <= high for number in numbers)


def _short(high: float, numbers: Sequence[float]) -> bool:
    """Whether all numbers are from 0 to ``high`` and have at most two decimals."""
    return all(0 <= number <= high and number == round(number, 2) for number in numbers)
