"""Attempts, and the supervisors that carry one on each of its nodes.

An attempt has a ``kind`` once it is known how it ended, and ``ended_at`` once nothing of it is left. A
supervisor's ``acked`` is the report cursor of (job, fence, node).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, insert, select, update

from edt_contract.reports import ExitKind
from edt_scheduler.store.queries import of_attempt
from edt_scheduler.store.tables import attempts, job_environs, jobs, nodes, supervisors, users


def add(tx: Connection, job_id: int, head_node_id: int, token: str, now: float) -> int:
    """Begin the job's next attempt; its fence."""
    grown = update(jobs).where(jobs.c.id == job_id).values(fence=jobs.c.fence + 1).returning(jobs.c.fence)
    fence = int(tx.execute(grown).scalar_one())
    tx.execute(
        insert(attempts).values(job_id=job_id, fence=fence, head_node_id=head_node_id, token=token, created_at=now)
    )
    return fence


def live(tx: Connection, job_id: int) -> Row[Any] | None:
    """The attempt of which something may be left."""
    query = select(attempts).where(attempts.c.job_id == job_id, attempts.c.ended_at.is_(None))
    return tx.execute(query).one_or_none()


def every_live(tx: Connection) -> list[Row[Any]]:
    """Of each live attempt what a decision looks at."""
    query = select(*attempts.c["job_id", "fence", "head_node_id", "kind", "trained_at"])
    return list(tx.execute(query.where(attempts.c.ended_at.is_(None)).order_by(attempts.c.job_id)))


def get(tx: Connection, job_id: int, fence: int) -> Row[Any]:
    """An attempt that is known to exist."""
    return tx.execute(select(attempts).where(of_attempt(attempts, job_id, fence))).one()


def change(tx: Connection, job_id: int, fence: int, **values: Any) -> None:
    tx.execute(update(attempts).where(of_attempt(attempts, job_id, fence)).values(**values))


def open_supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> None:
    """See to it that the attempt has a supervisor on this node.

    One that left, that was lost and spoken for, or that ended without ever having been listed to an agent, opens
    again: its row stands for another process, which no agent has heard of yet, and whose reports go on from the
    cursor. After any other end the planner keeps away from its node.
    """
    row = supervisor(tx, job_id, fence, node_id)
    if row is None:
        tx.execute(insert(supervisors).values(job_id=job_id, fence=fence, node_id=node_id))
    elif can_open_again(row):
        anew = {"ended_at": None, "kind": None, "handed_at": None, "reports_complete_at": None}
        change_supervisor(tx, job_id, fence, node_id, **anew)


def supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> Row[Any] | None:
    return tx.execute(select(supervisors).where(of_attempt(supervisors, job_id, fence, node_id))).one_or_none()


def supervisors_of(tx: Connection, job_id: int, fence: int) -> list[Row[Any]]:
    """An attempt's supervisors, each with its node's ``lost_at``."""
    query = (
        select(supervisors, nodes.c.lost_at)
        .join(nodes)
        .where(of_attempt(supervisors, job_id, fence))
        .order_by(supervisors.c.node_id)
    )
    return list(tx.execute(query))


def every_live_supervisor(tx: Connection) -> list[Row[Any]]:
    """Of the supervisors of all live attempts, ended ones too, what a decision looks at."""
    query = select(*supervisors.c["job_id", "node_id", "handed_at", "kind", "reports_complete_at"]).join(attempts)
    order = supervisors.c["job_id", "node_id"]
    return list(tx.execute(query.where(attempts.c.ended_at.is_(None)).order_by(*order)))


def open_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """A node's supervisors that have not ended, oldest attempt first."""
    query = (
        select(supervisors)
        .where(supervisors.c.node_id == node_id, supervisors.c.ended_at.is_(None))
        .order_by(supervisors.c.job_id, supervisors.c.fence)
    )
    return list(tx.execute(query))


def carried_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """What a spec is made of: a node's open supervisors with attempt, job and owner."""
    query = (
        select(
            jobs,
            users.c.name.label("owner"),
            *job_environs.c["key_id", "sealed", "plain"],
            attempts.c.fence.label("attempt_fence"),
            *attempts.c["head_node_id", "coordinator_node_id", "token", "coordinator", "trained_at"],
            attempts.c.kind.label("attempt_kind"),
            supervisors.c.acked,
            supervisors.c.handed_at.label("supervisor_handed_at"),
        )
        .select_from(supervisors)
        .join(attempts)
        .join(jobs)
        .outerjoin(job_environs)
        .join(users)
        .where(supervisors.c.node_id == node_id, supervisors.c.ended_at.is_(None))
        .order_by(jobs.c.id, attempts.c.fence)
    )
    return list(tx.execute(query))


def hand(tx: Connection, job_id: int, fence: int, node_id: int, now: float) -> None:
    """It is listed to its agent: from here on a process may exist."""
    key = and_(of_attempt(supervisors, job_id, fence, node_id), supervisors.c.handed_at.is_(None))
    tx.execute(update(supervisors).where(key).values(handed_at=now))


def change_supervisor(tx: Connection, job_id: int, fence: int, node_id: int, **values: Any) -> None:
    tx.execute(update(supervisors).where(of_attempt(supervisors, job_id, fence, node_id)).values(**values))


def end_supervisor(tx: Connection, job_id: int, fence: int, node_id: int, kind: ExitKind, now: float) -> None:
    key = and_(of_attempt(supervisors, job_id, fence, node_id), supervisors.c.ended_at.is_(None))
    tx.execute(update(supervisors).where(key).values(ended_at=now, kind=kind))


def can_open_again(row: Row[Any]) -> bool:
    """Whether a supervisor that has ended may be followed by another of its attempt: what ``open_supervisor`` does."""
    return (
        row.handed_at is None
        or row.kind == ExitKind.LEFT
        or (row.kind == ExitKind.LOST and row.reports_complete_at is not None)
    )
