"""Room: runners, agent. How many reports of each kind an attempt may make. Pure."""

from __future__ import annotations

from edt_runner.contract import ReportKind
from edt_runner.report_bodies import BODIES


class Allowance:
    """Of one attempt: what each kind has in hand, and since when."""

    def __init__(self) -> None:
        self._left: dict[ReportKind, tuple[float, float]] = {}

    def take(self, kind: ReportKind, now: float) -> bool:
        """Whether one more may go at ``now`` (monotonic seconds); then it counts."""
        body = BODIES[kind]
        left, since = self._left.get(kind, (float(body.burst), now))
        left = min(float(body.burst), left + (now - since) * body.a_minute / 60)
        may = left >= 1.0
        self._left[kind] = (left - 1.0 if may else left, now)
        return may

    def copy(self) -> Allowance:
        other = Allowance()
        other._left = dict(self._left)
        return other
