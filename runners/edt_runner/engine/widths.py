"""How many micro-batches a tick has. Pure; room: runners.

E, or as many as there are engines, or as many as somebody has laid down for a position. A width is fixed when its tick
is first tried: after a crash in it the survivors do the same micro-batches, and the next tick has the new width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Widths(Protocol):
    """What says how wide a tick is; the same in all processes of a job."""

    def at(self, tick: int, engines: int) -> int:
        """Of the tick at position ``tick`` that ``engines`` engines share, before it is clipped at the end of its kind
        and epoch (``Schedule.at``)."""


@dataclass(frozen=True)
class Fixed:
    """Always ``workers``: E."""

    workers: int

    def at(self, tick: int, engines: int) -> int:
        return self.workers


@dataclass(frozen=True)
class PerEngine:
    """One micro-batch an engine."""

    def at(self, tick: int, engines: int) -> int:
        return engines


@dataclass(frozen=True)
class Traced:
    """As laid down, whatever the engines are.

    Args:
        changes: (position, width from there on), ascending; the first at position 0.
    """

    changes: Sequence[tuple[int, int]]

    def at(self, tick: int, engines: int) -> int:
        return self.changes[max(0, bisect_right(self.changes, tick, key=lambda change: change[0]) - 1)][1]

    @property
    def most(self) -> int:
        """The largest width."""
        return max(width for _, width in self.changes)
