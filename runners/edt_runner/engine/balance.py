"""How many micro-batches each rank gets, by how fast its engine is. Pure.

A step takes as long as its slowest engine. So an engine that is slow for long (a straggler) gets fewer micro-batches,
and the others get more. The result of the training stays the same bit for bit, because a split never changes it.

Every engine decides this for itself. All have the same numbers, and all decisions are made with whole numbers, so all
decide the same.

An engine may be slow for a moment, and a change has a price: batches that were loaded ahead are loaded by another
engine. So the counts change only if three windows in a row say that they should, and only if the longest engine then
needs 10 % less time. Counts that gain nothing any more are given up for even ones. After each change, the next one to
uneven counts needs more windows, so that the counts do not swing to and fro.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from statistics import median_low

from edt_runner.splits import even_counts

WINDOW_STEPS = 16
"""Training steps from one decision to the next."""
_LASTS, _LASTS_MOST = 3, 12
"""Windows in a row in which uneven counts must be better than those in use. They double with each such change. Even
counts are taken again after ``_LASTS`` windows in which they are no worse."""
_TENTHS = 9
"""Other counts are taken if the longest engine needs at most so many tenths of its time with them."""
_PROBE_STEPS = 4
_PROBE_WINDOWS, _PROBE_WINDOWS_MOST = 8, 64
"""Windows until an engine without micro-batches computes one again, to see how fast it is now. They double with each
probe."""


class Balance:
    """The number of micro-batches of each rank, which follows the measured times.

    Args:
        ranks: number of ranks of the membership.
    """

    def __init__(self, ranks: int) -> None:
        self.reset(ranks)

    def reset(self, ranks: int) -> None:
        """Forget everything, because the membership has changed. The counts are even again."""
        self._ranks = ranks
        self._steps: list[tuple[Sequence[int], Sequence[int]]] = []
        """Counts and times of the training steps of the current window."""
        self._known = [0] * ranks
        """The newest time of each rank for a micro-batch, in microseconds; 0: it has computed none yet."""
        self._times: tuple[int, ...] = (1,) * ranks
        """The times of all ranks in the last window."""
        self._windows: deque[tuple[int, ...]] = deque(maxlen=_LASTS_MOST)
        """The times of the windows since the last change of the counts."""
        self._fitted: tuple[int, ...] | None = None
        """The times to which the counts are fitted; None: the counts are even."""
        self._micro_batches = 0
        """Number of micro-batches of the largest step of the last window; 0: there was no window yet."""
        self._lasts = _LASTS
        self._probe_steps = 0
        """Remaining steps in which ranks without micro-batches get one."""
        self._idle_windows, self._probe_windows = 0, _PROBE_WINDOWS
        self._made: dict[int, tuple[int, ...]] = {}
        """What ``counts`` has returned since the last change."""

    def add(self, counts: Sequence[int], busy_microseconds: Sequence[int]) -> bool:
        """Note a training step. A step that was tried more than once is left out, because its times are not those of
        its counts.

        Args:
            counts: the number of micro-batches that each rank has computed.
            busy_microseconds: the time that each rank has spent on them: data, forward, backward and copies.

        Returns:
            Whether ``counts`` gives other numbers from now on.

        Raises:
            ValueError: there is not one number for each rank.
        """
        if not len(counts) == len(busy_microseconds) == self._ranks:
            raise ValueError(f"got {len(counts)} counts and {len(busy_microseconds)} times for {self._ranks} ranks")
        self._steps.append((counts, busy_microseconds))
        changed = self._probe_steps == 1
        self._probe_steps = max(0, self._probe_steps - 1)
        if len(self._steps) == WINDOW_STEPS:
            self._measure()
            changed = self._decide() or changed
            changed = self._begin_probe() or changed
        if changed:
            self._made.clear()
        return changed

    def counts(self, micro_batches: int) -> tuple[int, ...]:
        """Return the number of micro-batches of each rank in the coming step, which has ``micro_batches`` of them."""
        if micro_batches not in self._made:
            counts = self._settled(micro_batches)
            self._made[micro_batches] = self._with_probes(counts) if self._probe_steps else counts
        return self._made[micro_batches]

    def stragglers(self) -> tuple[int, ...]:
        """Return the ranks that have fewer micro-batches than in an even split, in ascending order."""
        counts, even = self._settled(self._micro_batches), even_counts(self._micro_batches, self._ranks)
        return tuple(rank for rank in range(self._ranks) if counts[rank] < even[rank])

    def gain_percent(self) -> int:
        """Return by how many percent the longest engine's time is shorter than in an even split, by the times of the
        last window. 0 if the counts are even; below 0 if an even split is better by now."""
        if self._fitted is None:
            return 0
        even = longest(even_counts(self._micro_batches, self._ranks), self._times)
        return 100 * (even - longest(self._settled(self._micro_batches), self._times)) // even

    def _measure(self) -> None:
        """End the window: take the median of each rank's times for a micro-batch. A rank that has computed none keeps
        its newest time; if there is none, it counts as fast as the others."""
        for rank in range(self._ranks):
            times = [max(1, busy[rank] // counts[rank]) for counts, busy in self._steps if counts[rank]]
            if times:
                self._known[rank] = median_low(times)
        typical = median_low([time for time in self._known if time] or [1])
        self._times = tuple(time or typical for time in self._known)
        self._windows.append(self._times)
        self._micro_batches = max(sum(counts) for counts, _ in self._steps)
        self._steps.clear()

    def _decide(self) -> bool:
        """Change the counts if others are better and that lasts. Returns whether they have changed."""
        now, even = self._settled(self._micro_batches), even_counts(self._micro_batches, self._ranks)
        usual = tuple(map(median_low, zip(*list(self._windows)[-_LASTS:], strict=True)))
        best = fitted_counts(self._micro_batches, usual)
        if best not in (now, even) and self._lasting(self._lasts, best, now, _TENTHS):
            self._fitted = usual
            self._lasts = min(2 * self._lasts, _LASTS_MOST)
        elif now != even and self._lasting(_LASTS, even, now, 10):
            self._fitted = None
        else:
            return False
        self._windows.clear()
        return True

    def _lasting(self, windows: int, counts: Sequence[int], now: Sequence[int], tenths: int) -> bool:
        """Return whether, in each of the last ``windows`` windows, the longest engine needs at most ``tenths`` / 10 of
        its time with ``counts`` instead of ``now``."""
        last = list(self._windows)[-windows:]
        return len(last) == windows and all(10 * longest(counts, at) <= tenths * longest(now, at) for at in last)

    def _begin_probe(self) -> bool:
        """Let ranks without micro-batches compute one in the coming steps, if it is time. Returns whether they do."""
        counts = self._settled(self._micro_batches)
        if self._with_probes(counts) == counts:
            self._idle_windows = 0
            return False
        self._idle_windows += 1
        if self._idle_windows < self._probe_windows:
            return False
        self._idle_windows, self._probe_steps = 0, _PROBE_STEPS
        self._probe_windows = min(2 * self._probe_windows, _PROBE_WINDOWS_MOST)
        return True

    def _settled(self, micro_batches: int) -> tuple[int, ...]:
        """Return the counts of a step, without probes."""
        if self._fitted is None:
            return even_counts(micro_batches, self._ranks)
        return fitted_counts(micro_batches, self._fitted)

    def _with_probes(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``counts`` with one micro-batch for each rank that has none and would have one in an even split. It is
        taken from the ranks that have the most beyond an even split."""
        even, probed = even_counts(sum(counts), self._ranks), list(counts)
        for rank in range(self._ranks):
            if even[rank] and not counts[rank]:
                giver = max(range(self._ranks), key=lambda each: (probed[each] - even[each], -each))
                probed[giver] -= 1
                probed[rank] += 1
        return tuple(probed)


def longest(counts: Sequence[int], times: Sequence[int]) -> int:
    """Return the time of the engine that needs the longest for a step.

    Args:
        counts: number of micro-batches of each rank.
        times: time of each rank for one micro-batch.
    """
    return max(count * time for count, time in zip(counts, times, strict=True))


def fitted_counts(micro_batches: int, times: Sequence[int]) -> tuple[int, ...]:
    """Return the ``shortest_counts`` if the longest engine needs at least 10 % less time with them than with even ones;
    else even ones."""
    even, best = even_counts(micro_batches, len(times)), shortest_counts(micro_batches, times)
    return best if 10 * longest(best, times) <= _TENTHS * longest(even, times) else even


def shortest_counts(micro_batches: int, times: Sequence[int]) -> tuple[int, ...]:
    """Return the counts with which the longest engine needs the least time. Of several, the ones nearest to even counts
    are taken.

    Args:
        micro_batches: number of micro-batches of the step.
        times: time of each rank for one micro-batch, from 1 on.
    """
    even = even_counts(micro_batches, len(times))
    low, high = 0, longest(even, times)  # the least time is in low + 1 .. high
    while high - low > 1:
        middle = (low + high) // 2
        if sum(middle // time for time in times) >= micro_batches:
            high = middle
        else:
            low = middle
    most = [high // time for time in times]
    counts = [min(pair) for pair in zip(even, most, strict=True)]
    fewest = [(count, rank) for rank, count in enumerate(counts) if count < most[rank]]
    heapify(fewest)
    for _ in range(micro_batches - sum(counts)):  # each goes to the rank with the fewest
        count, rank = fewest[0]
        counts[rank] = count + 1
        if counts[rank] < most[rank]:
            heapreplace(fewest, (count + 1, rank))
        else:
            heappop(fewest)
    return tuple(counts)
