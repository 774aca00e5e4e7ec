"""What each engine tells all others with each reduction: a row of whole numbers, the same columns for all.

All engines get the same rows, so all decide alike from them, without a further message: when to switch to another
generation, how to split the next steps, and whether two engines have computed the same micro-batch with other bits.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from edt_runner.comm.exchange import MOST_NOTE
from edt_runner.step_times import PHASES, Phase

_TICK_MICROSECONDS = 16
"""Times are told in whole ticks of this length, so that a phase of four minutes fits."""
_PART_BITS = 21
_PART = (1 << _PART_BITS) - 1


class Column(enum.IntEnum):
    """The columns before those of the phases."""

    GENERATION = 0  # the newest generation that the engine announces
    FASTER = 1  # 1: the engine is connected over the faster network of its group
    AUDIT_NEXT = 2  # 1: the next training step is audited; only the first engine in rank order says so
    HAS_CHECKSUM = 3  # 1: the engine has computed the audited micro-batch
    CHECKSUM = 4  # the first 21 bits of the local's checksum; the others are in the next two columns
    CHECKSUM_MIDDLE = 5
    CHECKSUM_LAST = 6


FIRST_PHASE = len(Column)
WIDTH = FIRST_PHASE + len(PHASES)
"""Number of columns. The last are the ticks that the engine has spent in each of ``PHASES`` since its last
notes: in the step that is reduced now and, for what follows a reduction, in the step before."""

_BUSY = [FIRST_PHASE + PHASES.index(each) for each in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COPIES)]


def notes(
    generation: int,
    seconds: Sequence[float],
    *,
    faster: bool = False,
    audit_next: bool = False,
    checksum: int | None = None,
) -> list[int]:
    """Return an engine's row.

    Args:
        generation: the generation that it announces.
        faster: whether it is connected over the faster network.
        seconds: what it has spent in each of ``PHASES``.
        audit_next: whether it asks for an audit of the next training step.
        checksum: the checksum (63 bits) of the audited micro-batch's local; None: it has not computed it.
    """
    has, whole = checksum is not None, checksum or 0
    flags = [faster, audit_next, has, *(whole >> shift & _PART for shift in (2 * _PART_BITS, _PART_BITS, 0))]
    return [generation, *map(int, flags), *(min(MOST_NOTE, round(each * 1e6 / _TICK_MICROSECONDS)) for each in seconds)]


def unanimous(table: Sequence[Sequence[int]], column: Column = Column.GENERATION) -> int:
    """Return the number that every engine has in a column; 0: they have different ones.

    If generations differ, no engine switches. The lower generation may have been taken back, and all engines will soon
    announce the higher one.
    """
    values = {row[column] for row in table}
    return values.pop() if len(values) == 1 else 0


def busy(table: Sequence[Sequence[int]]) -> list[int]:
    """Return for each engine the microseconds that it has spent on its micro-batches."""
    return [sum(row[column] for column in _BUSY) * _TICK_MICROSECONDS for row in table]


def checksums(table: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the checksums of the audited micro-batch's local, by the ranks that have computed it."""
    first = Column.CHECKSUM
    return {
        rank: row[first] << 2 * _PART_BITS | row[first + 1] << _PART_BITS | row[first + 2]
        for rank, row in enumerate(table)
        if row[Column.HAS_CHECKSUM]
    }


def phases(table: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return for each engine the microseconds that it has spent in each of ``PHASES``."""
    return [[ticks * _TICK_MICROSECONDS for ticks in row[FIRST_PHASE:]] for row in table]
