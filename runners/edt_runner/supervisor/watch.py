"""When an engine is taken for hung. Room: runners; pure.

A stopped process is seen at once (state T). One that merely is silent may be computing: only a micro-batch that takes
far longer than any before it is held against its engine, and a reduction that does so against nobody in particular.
"""

from __future__ import annotations

import enum

from edt_runner.engine.position import Doing, Position

_LONGEST_TIMES = 10.0


class Verdict(enum.Enum):
    """What is to be done about an engine."""

    FINE = "fine"
    HUNG = "hung"  # it is the one that others wait for
    STUCK = "stuck"  # it waits for others, or for messages that do not arrive


def judge(position: Position, now: float, hang_seconds: float) -> Verdict:
    """``now``: monotonic seconds, as in ``position``. Nothing is judged before the first micro-batch is through."""
    if not position.longest:
        return Verdict.FINE
    if now - position.since <= max(hang_seconds, _LONGEST_TIMES * position.longest):
        return Verdict.FINE
    if position.doing in (Doing.COMPUTING, Doing.LOADING):
        return Verdict.HUNG
    return Verdict.STUCK if position.doing is Doing.REDUCING else Verdict.FINE
