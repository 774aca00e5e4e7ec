"""A report and what it is about: the rows it names, and whether its word still counts. Room: scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.contract import ExitKind, Report
from edt_scheduler.store import allocations, jobs


@dataclass(frozen=True)
class Scene:
    """One report, in the transaction that takes it."""

    tx: Connection
    node: Row[Any]
    job: Row[Any]
    attempt: Row[Any]
    report: Report
    now: float

    @property
    def body(self) -> Mapping[str, Any]:
        return self.report.body

    @property
    def current(self) -> bool:
        """Its attempt is the job's live one and nothing has ended it."""
        return self.attempt.ended_at is None and self.attempt.kind is None

    @property
    def kind(self) -> ExitKind:
        """How something ended. What cannot be read counts as lost: the kind that only tries again."""
        try:
            return ExitKind(str(self.body.get("kind")))
        except ValueError:
            return ExitKind.LOST

    def number(self, key: str) -> int | None:
        value = self.body.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, key: str) -> str:
        return str(self.body.get(key) or "")

    def own(self) -> Row[Any] | None:
        """The allocation that the body names, if it is this supervisor's."""
        number = self.number("allocation")
        if number is None:
            return None
        return allocations.find(self.tx, number, self.job.id, self.report.fence, self.node.id)

    def of_attempt(self, number: Any) -> Row[Any] | None:
        """An allocation of the attempt, on whatever node: the coordinator speaks of all engines."""
        if not isinstance(number, int):
            return None
        return allocations.of_attempt(self.tx, number, self.job.id, self.report.fence)

    def named(self, key: str) -> list[Row[Any]]:
        """The allocations of the attempt in a list of the body."""
        value = self.body.get(key)
        found = [self.of_attempt(number) for number in value] if isinstance(value, list | tuple) else []
        return [row for row in found if row is not None]

    def record(self, message: str, data: Mapping[str, Any]) -> None:
        jobs.record(self.tx, self.job.id, self.report.kind, message, data, self.now)
