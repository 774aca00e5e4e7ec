"""The figures of ``resize_pause``, from what the processes of one training have noted."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from _resize_notes import Account, Commit, Reader

STEPS_AFTER = 10
"""Of the new size, that belong to an event's window."""
MOST_INTERVALS = 99
"""Of a window, the last ones: of more of them the p99 would leave the longest out."""


@dataclass
class Event:
    """Something that happened to a training, at time.monotonic()."""

    kind: str
    moment: float
    before: int
    after: int
    """World sizes."""
    processes: frozenset[int] = frozenset()
    """Those that had committed a step before."""
    settled: float = math.inf
    """When the first step of the new size was committed."""


class Figures:
    """Figures of one training, in seconds where nothing else is said.

    Args:
        events: all that happened to it; the first one is that it came up.
        span: seconds before and after an event in which throughput counts.
    """

    def __init__(self, reader: Reader, events: Sequence[Event], span: float) -> None:
        self._reader, self._events, self.span = reader, events, span
        self._commits = reader.commits()
        self._times = [commit.time for commit in self._commits]
        ends = [event.moment for event in events[1:]] + [self._times[-1]]
        self._steady = [(event.settled + span / 5, end, event.after) for event, end in zip(events, ends, strict=True)]

    def step(self, workers: int) -> float:
        """The median of steady intervals."""
        return statistics.median(itertools.chain.from_iterable(self._steady_intervals(workers)))

    def excesses(self, kind: str) -> list[float]:
        """For each such event: the p99 of the intervals around it, less that of as many without one."""
        return [self._excess(event) for event in self._of(kind)]

    def without(self, workers: int) -> list[float]:
        """The same of windows in which nothing happens, as long as those of joins are: every other one, less the median
        of the rest."""
        joins = self._of("join") or self._events[1:]
        chunks = self._chunks(workers, round(statistics.median(len(self._window(event)) for event in joins)))
        rest = statistics.median(chunks[::2])
        return [chunk - rest for chunk in chunks[1::2]]

    def gaps(self, kind: str) -> list[float]:
        """For each such event: the longest of the three intervals between it and the steps after it."""
        found = []
        for event in self._of(kind):
            first = bisect_right(self._times, event.moment)
            found.append(max(b - a for a, b in itertools.pairwise([event.moment, *self._times[first : first + 3]])))
        return found

    def pauses(self, kind: str) -> list[float]:
        """For each such event: the longest interval around it, less a steady one."""
        longest = [max(commit.time - before.time for before, commit in self._window(event)) for event in self._of(kind)]
        return [max(0.0, found - self.step(event.after)) for found, event in zip(longest, self._of(kind), strict=True)]

    def first_steps(self) -> list[float]:
        """For each join: from the decision to the first step in which the process that joins has a share."""
        joins = self._of("join")
        return [self._reader.first_own(event.moment, event.after, event.processes) - event.moment for event in joins]

    def throughput_lost(self, kind: str) -> list[float]:
        """For each such event: percent of the samples that steady rates would have given around it, or around the first
        step in the new size of a join."""
        found = []
        for event in self._of(kind):
            wanted = self.span * (self._rate(event.before) + self._rate(event.after))
            middle = event.settled if kind == "join" else event.moment
            around = self._between(middle - self.span, middle + self.span)
            kept = sum(commit.samples for commit in around if commit.lost_at == math.inf)
            found.append(100 * (1 - kept / wanted))
        return found

    def accounts(self, kind: str, account: Callable[[float, float], Account]) -> list[Account]:
        """For each such event: of the samples from it to the next event."""
        ends = [event.moment for event in self._events[1:]] + [math.inf]
        return [account(e.moment, end) for e, end in zip(self._events, ends, strict=True) if e.kind == kind]

    def _of(self, kind: str) -> list[Event]:
        return [event for event in self._events if event.kind == kind]

    def _between(self, since: float, until: float) -> list[Commit]:
        return self._commits[bisect_right(self._times, since) : bisect_right(self._times, until)]

    def _window(self, event: Event) -> list[tuple[Commit, Commit]]:
        """The intervals around an event, each as the two steps that it lies between."""
        first = max(1, bisect_right(self._times, event.moment))
        last = bisect_right(self._times, event.settled) + STEPS_AFTER
        return list(itertools.pairwise(self._commits[first - 1 : last]))[-MOST_INTERVALS:]

    def _excess(self, event: Event) -> float:
        window = self._window(event)
        usual = {
            workers: statistics.median(self._chunks(workers, len(window))) for workers in (event.before, event.after)
        }
        slower = max(usual.values())  # also for a size that it passed through
        return p99(
            [b.time - a.time - max(usual.get(a.workers, slower), usual.get(b.workers, slower)) for a, b in window]
        )

    def _chunks(self, workers: int, number: int) -> list[float]:
        """The p99 of each so many steady intervals; of fewer where no two such windows lie between two events."""
        stretches = self._steady_intervals(workers)
        number = max(1, min(number, max(map(len, stretches)) // 2))
        return [p99(all_[at : at + number]) for all_ in stretches for at in range(0, len(all_) - number + 1, number)]

    def _steady_intervals(self, workers: int) -> list[list[float]]:
        """Between the steps of each stretch in which nothing happened."""
        return [
            [b.time - a.time for a, b in itertools.pairwise(self._between(since, until))]
            for since, until, by in self._steady
            if by == workers
        ]

    def _rate(self, workers: int) -> float:
        """Samples a second of such stretches."""
        samples = seconds = 0.0
        for since, until, by in self._steady:
            commits = self._between(since, until)
            if by == workers and len(commits) > 1:
                samples += sum(commit.samples for commit in commits[1:])
                seconds += commits[-1].time - commits[0].time
        return samples / seconds


def p99(values: Sequence[float]) -> float:
    """The smallest value that 99 % of them do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
