"""A report, and the rows that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind, Report
from edt_scheduler.attempts import gangs
from edt_scheduler.attempts.lifecycle import End
from edt_scheduler.store import allocations, jobs


@dataclass(frozen=True)
class Context:
    """One report and the rows that it is about, inside the transaction that takes it."""

    tx: Connection
    node: Row[Any]
    job: Row[Any]
    attempt: Row[Any]
    report: Report
    now: float

    @property
    def body(self) -> Mapping[str, Any]:
        """The report's body, fitted to its kind. Required fields have their type, and other fields may be None."""
        return self.report.body

    @property
    def current(self) -> bool:
        """Whether the report's attempt is the job's live one and has not ended."""
        return self.attempt.ended_at is None and self.attempt.kind is None

    @property
    def kind(self) -> ExitKind:
        """How the engine or the attempt ended. A missing or unknown kind counts as LOST: the job then tries again."""
        return ExitKind(self.body.get("kind", ExitKind.LOST))

    def end(self) -> End:
        """How the engine or the part of the attempt ended."""
        end = End(self.kind, self.text("message"), self.body.get("code"), self.body.get("failed_step"))
        return gangs.blamed(end) if self.attempt.gang and self.body.get("oom") else end

    def text(self, key: str) -> str:
        """The body's text under ``key``; empty: there is none."""
        return self.body.get(key) or ""

    def own(self) -> Row[Any] | None:
        """The allocation that the body names, if it belongs to this supervisor."""
        return allocations.find(self.tx, self.body["allocation"], self.job.id, self.report.fence, self.node.id)

    def of_attempt(self, number: int) -> Row[Any] | None:
        """An allocation of the attempt, on any node, because a coordinator reports about all engines."""
        return allocations.find(self.tx, number, self.job.id, self.report.fence)

    def named(self, key: str) -> list[Row[Any]]:
        """The allocations of the attempt that the body lists under ``key``."""
        found = [self.of_attempt(number) for number in self.body.get(key) or ()]
        return [row for row in found if row is not None]

    def record(self, message: str, data: Mapping[str, Any]) -> None:
        """Add an event of the report's kind to the job's history."""
        jobs.record(self.tx, self.job.id, self.report.kind, message, data, self.now)
