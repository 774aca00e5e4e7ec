"""Recorded decisions: the state that was planned, and the plan. Both are bytes that ``decide.recorded`` understands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Text, cast, delete, func, insert, select

from edt_scheduler.store.tables import decisions

AT = decisions.c.at
_IN_SHORT = decisions.c["id", "at", "bytes", "actions"]


def add(tx: Connection, at: float, state: bytes, plan: bytes, actions: Sequence[Sequence[Any]]) -> None:
    """Record a decision. ``actions``: exec id, verb, slots before, slots after and cause of each."""
    tx.execute(
        insert(decisions).values(
            at=at, state=state, plan=plan, bytes=len(state) + len(plan), actions=[list(each) for each in actions]
        )
    )


def page(tx: Connection, limit: int, before: int | None = None, job: str | None = None) -> list[Row[Any]]:
    """At most ``limit`` decisions without their bytes, newest first, with numbers below ``before``; of the job with the
    exec id ``job`` only those that did something to it.
    """
    query = select(*_IN_SHORT).order_by(decisions.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(decisions.c.id < before)
    if job is not None:  # an exec id stands alone between quotes in the JSON of the actions
        query = query.where(cast(decisions.c.actions, Text).contains(f'"{job}"', autoescape=True))
    return list(tx.execute(query))


def find(tx: Connection, number: int) -> Row[Any] | None:
    """A decision with its bytes; None: there is none."""
    return tx.execute(select(decisions).where(decisions.c.id == number)).one_or_none()


def forget_beyond(tx: Connection, most_bytes: int, most_rows: int) -> int:
    """Delete the oldest decisions, at most ``most_rows``, until all records together take ``most_bytes``."""
    total = int(tx.execute(select(func.coalesce(func.sum(decisions.c.bytes), 0))).scalar_one())
    gone: list[int] = []
    for row in tx.execute(select(*decisions.c["id", "bytes"]).order_by(decisions.c.id).limit(most_rows)):
        if total <= most_bytes:
            break
        total -= row.bytes
        gone.append(row.id)
    if gone:
        tx.execute(delete(decisions).where(decisions.c.id <= gone[-1]))
    return len(gone)
