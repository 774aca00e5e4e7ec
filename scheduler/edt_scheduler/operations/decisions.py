"""Use cases of recorded decisions: what was decided lately, on what, and whether it would be decided again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from edt_scheduler.decide import recorded
from edt_scheduler.errors import NoSuchDecision
from edt_scheduler.operations.queue_views import DecisionAction, DecisionPage, DecisionView, RecordedDecision
from edt_scheduler.platform import Platform
from edt_scheduler.store import decisions as store


def decisions(platform: Platform, *, limit: int, before: int | None = None, job: str | None = None) -> DecisionPage:
    """At most ``limit`` decisions that changed something, newest first, with numbers below ``before``; of ``job`` only
    those that did something to it.

    They name jobs and users of everybody: only admins and viewers may see them.
    """
    with platform.database.snapshot() as tx:
        rows = store.page(tx, limit + 1, before, job)
    return DecisionPage(tuple(_view(row) for row in rows[:limit]), rows[limit - 1].id if len(rows) > limit else None)


def decision(platform: Platform, number: int) -> RecordedDecision:
    """One decision with the state and the plan, and what differs if that state is planned now.

    Raises:
        NoSuchDecision: There is no record of this number, or it is forgotten.
    """
    with platform.database.snapshot() as tx:
        row = store.find(tx, number)
    if row is None:
        raise NoSuchDecision(number)
    again = recorded.replay(row.state, row.plan)
    state, plan = recorded.unpacked(row.state), recorded.unpacked(row.plan)
    return RecordedDecision(_view(row), state, plan, again.differences, again.seconds)


def _view(row: Row[Any]) -> DecisionView:
    return DecisionView(row.id, row.at, row.bytes, tuple(DecisionAction(*action) for action in row.actions))
