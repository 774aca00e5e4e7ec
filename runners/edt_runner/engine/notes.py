"""What each engine tells all others with each reduction: a row of whole numbers, the same columns for all.

All engines get the same rows, so all decide alike from them, without a further message: when to switch to another
generation, and how to split the next steps.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from edt_runner.comm.exchange import MOST_NOTE
from edt_runner.step_times import PHASES, Phase

_MICROSECONDS = 1e6


class Column(enum.IntEnum):
    """The columns before those of the phases."""

    GENERATION = 0  # the newest generation that the engine announces
    FASTER = 1  # 1: the engine is connected over the faster network of its group


FIRST_PHASE = len(Column)
WIDTH = FIRST_PHASE + len(PHASES)
"""Number of columns. The last are the microseconds that the engine has spent in each of ``PHASES`` since its last
notes: in the step that is reduced now and, for what follows a reduction, in the step before."""

_BUSY = [FIRST_PHASE + PHASES.index(each) for each in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COPIES)]


def notes(generation: int, seconds: Sequence[float], *, faster: bool = False) -> list[int]:
    """Return an engine's row.

    Args:
        generation: the generation that it announces.
        faster: whether it is connected over the faster network.
        seconds: what it has spent in each of ``PHASES``.
    """
    return [generation, int(faster), *(min(MOST_NOTE, round(each * _MICROSECONDS)) for each in seconds)]


def unanimous(table: Sequence[Sequence[int]], column: Column = Column.GENERATION) -> int:
    """Return the number that every engine has in a column; 0: they have different ones.

    If generations differ, no engine switches. The lower generation may have been taken back, and all engines will soon
    announce the higher one.
    """
    values = {row[column] for row in table}
    return values.pop() if len(values) == 1 else 0


def busy(table: Sequence[Sequence[int]]) -> list[int]:
    """Return for each engine the microseconds that it has spent on its micro-batches."""
    return [sum(row[column] for column in _BUSY) for row in table]


def phases(table: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return for each engine the microseconds that it has spent in each of ``PHASES``."""
    return [row[FIRST_PHASE:] for row in table]
