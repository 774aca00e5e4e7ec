"""Where the time of the training steps goes, engine by engine, and for which engine the others wait. Pure: no clock.

Every engine has a ``StepProfile`` and adds the same rows to it, one for each engine, once a training step. The first
engine takes the means from it for progress reports. With EDT_PROFILE_STEP=1 each engine prints its own row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add, sub
from statistics import median
from typing import NamedTuple

from edt_contract.step_times import BUSY, MOST_ENGINES, MOST_STRAGGLERS, StepTimes, share_computing
from edt_runner.step_times import PHASES

_ENDS = 8
"""Of many engines, so many of the slowest and of the fastest have rows of their own."""
_WINDOWS, _SLOW_WINDOWS = 10, 8
"""An engine is a straggler when it was slow in so many of the last windows. A window is what ``taken`` returns once."""
_SLOW = 0.15
"""An engine is slow when it takes longer for a micro-batch than the median of the others by this share of it."""


@dataclass
class _Sums:
    """Sums over some steps."""

    steps: int = 0
    micro_batches: list[int] = field(default_factory=list)
    """One an engine."""
    microseconds: list[int] = field(default_factory=list)
    """One an engine and phase, engine by engine."""

    def copy(self) -> _Sums:
        return _Sums(self.steps, self.micro_batches, self.microseconds)

    def since(self, before: _Sums) -> _Sums:
        """The sums over the steps that came after ``before``."""
        return _Sums(
            self.steps - before.steps,
            list(map(sub, self.micro_batches, before.micro_batches)),
            list(map(sub, self.microseconds, before.microseconds)),
        )


class _Row(NamedTuple):
    """Means of one engine, or over some engines, a step."""

    micro_batches: float
    microseconds: tuple[int, ...]

    @property
    def busy(self) -> int:
        """Microseconds of the work that the engine does by itself."""
        return sum(self.microseconds[column] for column in BUSY)


class StepProfile:
    """Sums of the time of each engine in each phase, and who was slow."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, because other engines train from now on."""
        self._engines: tuple[str, ...] = ()
        self._sums, self._taken, self._printed = _Sums(), _Sums(), _Sums()
        self._slower: list[deque[float]] = []
        """Of each engine, by which share it was slower than the others, in each of the last windows."""

    def add(self, engines: Sequence[str], micro_batches: Sequence[int], microseconds: Sequence[Sequence[int]]) -> None:
        """Add a training step. If ``engines`` are not those of the step before, everything else is forgotten.

        Args:
            engines: names in rank order.
            micro_batches: of each engine, in this step.
            microseconds: of each engine, in each of ``PHASES``; shape (engines, phases).

        Raises:
            ValueError: there is not one number for each engine and phase.
        """
        if engines != self._engines and tuple(engines) != self._engines:
            self._begin(tuple(engines))
        flat = [*chain.from_iterable(microseconds)]
        if len(micro_batches) != len(self._engines) or len(flat) != len(self._sums.microseconds):
            raise ValueError(
                f"micro_batches, microseconds: got {len(micro_batches)} and {len(flat)} numbers, takes "
                f"{len(self._engines)} and {len(self._sums.microseconds)}"
            )
        sums = self._sums
        sums.steps += 1
        sums.micro_batches = list(map(add, sums.micro_batches, micro_batches))
        sums.microseconds = list(map(add, sums.microseconds, flat))

    def _begin(self, engines: tuple[str, ...]) -> None:
        self._engines = engines
        self._sums = _Sums(0, [0] * len(engines), [0] * len(engines) * len(PHASES))
        self._taken, self._printed = self._sums.copy(), self._sums.copy()
        self._slower = [deque(maxlen=_WINDOWS) for _ in engines]

    def taken(self) -> StepTimes | None:
        """Return the means over the steps since the last call; None: there was none.

        The names of the engines are allocation ids.
        """
        window, self._taken = self._sums.since(self._taken), self._sums.copy()
        if not window.steps:
            return None
        rows = _rows(window)
        for slower, history in zip(_slower_than_others(rows), self._slower, strict=True):
            history.append(slower)
        slowest, waited = _waited_for(rows)
        lasting = self._stragglers()
        shown = _shown(rows, {*lasting, *([] if slowest is None else [slowest])})
        others = [row for rank, row in enumerate(rows) if rank not in shown]
        mean = _mean(others) if others else _Row(0.0, ())
        return StepTimes(
            steps=window.steps,
            ranks=tuple(shown),
            engines=tuple(int(self._engines[rank]) for rank in shown),
            micro_batches=tuple(rows[rank].micro_batches for rank in shown),
            microseconds=tuple(rows[rank].microseconds for rank in shown),
            others=len(others),
            others_micro_batches=mean.micro_batches,
            others_microseconds=mean.microseconds,
            slowest=slowest,
            waited_microseconds=waited,
            stragglers=tuple(lasting),
            slower=tuple(lasting.values()),
        )

    def text(self, engine: str | None = None) -> str:
        """Return a table for people over the steps since the last call: a line an engine; "": there was no step.

        Args:
            engine: name of the only engine whose line is wanted; None: all.
        """
        window, self._printed = self._sums.since(self._printed), self._sums.copy()
        if not window.steps:
            return ""
        lines = [
            _line(rank, name, row)
            for rank, (name, row) in enumerate(zip(self._engines, _rows(window), strict=True))
            if engine in (None, name)
        ]
        steps = f"{window.steps} step{'' if window.steps == 1 else 's'}"
        return "\n".join((f"where a step's time goes, in ms and percent, over {steps}:", _HEAD, *lines))

    def _stragglers(self) -> dict[int, float]:
        """Ranks of the engines that were slow in most of the last windows, in rank order, and their median slowness."""
        found = {
            rank: round(min(1000.0, median(history)), 2)
            for rank, history in enumerate(self._slower)
            if sum(slower >= _SLOW for slower in history) >= _SLOW_WINDOWS
        }
        worst = sorted(found, key=lambda rank: found[rank])[-MOST_STRAGGLERS:]
        return {rank: found[rank] for rank in sorted(worst)}


def _rows(sums: _Sums) -> list[_Row]:
    """The means of each engine over at least one step."""
    width, steps = len(PHASES), sums.steps
    whole = [round(number / steps) for number in sums.microseconds]
    return [
        _Row(round(count / steps, 2), tuple(whole[rank * width : (rank + 1) * width]))
        for rank, count in enumerate(sums.micro_batches)
    ]


def _mean(rows: Sequence[_Row]) -> _Row:
    count = len(rows)
    columns = zip(*(row.microseconds for row in rows), strict=True)
    return _Row(
        round(sum(row.micro_batches for row in rows) / count, 2), tuple(round(sum(each) / count) for each in columns)
    )


def _waited_for(rows: Sequence[_Row]) -> tuple[int | None, int]:
    """The rank that is busy for longest, and for how many microseconds longer than the median of the others."""
    if len(rows) < 2:
        return None, 0
    busy = [row.busy for row in rows]
    rank = max(range(len(rows)), key=lambda each: busy[each])
    waited = round(busy[rank] - median([*busy[:rank], *busy[rank + 1 :]]))
    return (rank, waited) if waited > 0 else (None, 0)


def _slower_than_others(rows: Sequence[_Row]) -> list[float]:
    """By which share of the others' median each engine takes longer for a micro-batch; negative: it takes less. An
    engine without micro-batches counts as no slower."""
    paces = {rank: row.busy / row.micro_batches for rank, row in enumerate(rows) if row.micro_batches > 0}
    if len(paces) < 2:
        return [0.0] * len(rows)
    order = sorted(paces, key=lambda rank: paces[rank])
    values = [paces[rank] for rank in order]
    found = [0.0] * len(rows)
    for place, rank in enumerate(order):
        others = _median_without(values, place)
        found[rank] = paces[rank] / others - 1.0 if others > 0 else 0.0
    return found


def _median_without(ordered: Sequence[float], place: int) -> float:
    """The median of ascending numbers, of which there are at least 2, without the one at ``place``."""
    count = len(ordered) - 1
    low, high = (each + (each >= place) for each in ((count - 1) // 2, count // 2))
    return (ordered[low] + ordered[high]) / 2


def _shown(rows: Sequence[_Row], named: Iterable[int]) -> list[int]:
    """Ranks that get rows of their own: all, or the slowest and the fastest and those that are ``named``."""
    if len(rows) <= MOST_ENGINES:
        return list(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda rank: rows[rank].busy)
    return sorted({*order[:_ENDS], *order[-_ENDS:], *named})


# ── for people ────────────────────────────────────────────────────────────────────────────────────────────────────
_HEAD = "".join(
    (
        f"{'engine':>8} {'rank':>5} {'micro-batches':>14} {'step':>9} ",
        *(f"{phase.value:>15}" for phase in PHASES),
        f" {'efficiency':>11}",
    )
)


def _line(rank: int, name: str, row: _Row) -> str:
    step = sum(row.microseconds)
    phases = (f"{each / 1000:9.2f} {_percent(each, step):>5}" for each in row.microseconds)
    first = f"{name:>8} {rank:>5} {row.micro_batches:>14g} {step / 1000:>9.2f} "
    return first + "".join(phases) + f" {round(100 * share_computing(row.microseconds))} %".rjust(12)


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / max(1, whole))} %"
