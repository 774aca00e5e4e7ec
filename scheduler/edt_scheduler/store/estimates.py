"""First estimates of when waiting jobs start, which are compared with their starts later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from edt_scheduler.store.queries import rows_of
from edt_scheduler.store.tables import jobs, start_estimates

_NEWEST = 500
"""Past estimates count so far: those of the newest jobs."""


def known(tx: Connection) -> set[int]:
    """The jobs that are not over and have an estimate."""
    query = select(start_estimates.c.job_id).join(jobs).where(jobs.c.finished_at.is_(None))
    return set(tx.execute(query).scalars())


def add(tx: Connection, estimates: Iterable[tuple[int, float | None, str]], now: float) -> int:
    """Store estimates of jobs that have none yet and have not started; return how many.

    Args:
        tx: a transaction.
        estimates: job, expected start (None: not within the forecast), and the rule by which it waits.
        now: when they were made.
    """
    made = {job: (job, at, rule) for job, at, rule in estimates}
    if not made:
        return 0
    absent = ~select(start_estimates.c.job_id).where(start_estimates.c.job_id == jobs.c.id).exists()
    waits = select(jobs.c.id).where(jobs.c.started_at.is_(None), jobs.c.finished_at.is_(None), absent)
    open_to = sorted(row.id for row in rows_of(tx, waits, jobs.c.id, made))
    rows = [{"job_id": job, "made_at": now, "expected_at": made[job][1], "rule": made[job][2]} for job in open_to]
    if rows:
        tx.execute(insert(start_estimates), rows)
    return len(rows)


def of_job(tx: Connection, number: int) -> Row[Any] | None:
    """A job's estimate: made_at, expected_at, rule. None: it has none."""
    query = select(start_estimates).where(start_estimates.c.job_id == number)
    return tx.execute(query).one_or_none()


def errors(tx: Connection, rule: str | None = None) -> list[float]:
    """By how many seconds the newest past estimates were wrong; positive: the job started later than expected.

    Args:
        tx: one consistent read.
        rule: only estimates of jobs that waited by this rule; None: all.
    """
    where: list[ColumnElement[bool]] = [jobs.c.started_at.is_not(None), start_estimates.c.expected_at.is_not(None)]
    if rule is not None:
        where.append(start_estimates.c.rule == rule)
    wrong = jobs.c.started_at - func.coalesce(start_estimates.c.expected_at, 0.0)
    query = select(wrong).select_from(start_estimates.join(jobs)).where(*where)
    return list(tx.execute(query.order_by(start_estimates.c.job_id.desc()).limit(_NEWEST)).scalars())
