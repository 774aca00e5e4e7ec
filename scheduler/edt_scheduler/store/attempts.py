"""Attempts, and the supervisors that carry one on each of its nodes. Room: scheduler, store.

An attempt has a ``kind`` once it is known how it ended, and ``ended_at`` once nothing of it is left. A
supervisor's ``acked`` is the report cursor of (job, fence, node).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, insert, or_, select, update

from edt_runner.contract import ExitKind
from edt_scheduler.store.tables import attempts, job_environs, jobs, nodes, supervisors, users


def add(tx: Connection, job_id: int, home_node_id: int, token: str, now: float) -> int:
    """Begin the job's next attempt; its fence."""
    grown = update(jobs).where(jobs.c.id == job_id).values(fence=jobs.c.fence + 1).returning(jobs.c.fence)
    fence = int(tx.execute(grown).scalar_one())
    tx.execute(
        insert(attempts).values(job_id=job_id, fence=fence, home_node_id=home_node_id, token=token, created_at=now)
    )
    return fence


def live(tx: Connection, job_id: int) -> Row[Any] | None:
    """The attempt of which something may be left."""
    query = select(attempts).where(attempts.c.job_id == job_id, attempts.c.ended_at.is_(None))
    return tx.execute(query).one_or_none()


def every_live(tx: Connection) -> list[Row[Any]]:
    """Of each live attempt what a decision looks at."""
    columns = (attempts.c.job_id, attempts.c.fence, attempts.c.home_node_id, attempts.c.kind, attempts.c.trained_at)
    return list(tx.execute(select(*columns).where(attempts.c.ended_at.is_(None)).order_by(attempts.c.job_id)))


def find(tx: Connection, job_id: int, fence: int) -> Row[Any] | None:
    key = and_(attempts.c.job_id == job_id, attempts.c.fence == fence)
    return tx.execute(select(attempts).where(key)).one_or_none()


def change(tx: Connection, job_id: int, fence: int, **values: Any) -> None:
    key = and_(attempts.c.job_id == job_id, attempts.c.fence == fence)
    tx.execute(update(attempts).where(key).values(**values))


def open_supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> None:
    """See to it that the attempt has a supervisor on this node.

    One that left, that was lost and spoken for, or that ended without ever having been listed to an agent, opens
    again: its row stands for another process, which no agent has heard of yet, and whose reports go on from the
    cursor. After any other end the planner keeps away from its node.
    """
    over = or_(
        supervisors.c.handed_at.is_(None),
        supervisors.c.kind == ExitKind.LEFT,
        and_(supervisors.c.kind == ExitKind.LOST, supervisors.c.said_at.is_not(None)),
    )
    key = and_(_key(job_id, fence, node_id), over)
    reopened = update(supervisors).where(key).values(ended_at=None, kind=None, handed_at=None, said_at=None)
    if tx.execute(reopened).rowcount == 0 and supervisor(tx, job_id, fence, node_id) is None:
        tx.execute(insert(supervisors).values(job_id=job_id, fence=fence, node_id=node_id))


def supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> Row[Any] | None:
    return tx.execute(select(supervisors).where(_key(job_id, fence, node_id))).one_or_none()


def supervisors_of(tx: Connection, job_id: int, fence: int) -> list[Row[Any]]:
    """An attempt's supervisors, each with its node's ``lost_at``."""
    query = (
        select(supervisors, nodes.c.lost_at)
        .join(nodes)
        .where(supervisors.c.job_id == job_id, supervisors.c.fence == fence)
        .order_by(supervisors.c.node_id)
    )
    return list(tx.execute(query))


def every_live_supervisor(tx: Connection) -> list[Row[Any]]:
    """Of the supervisors of all live attempts, ended ones too, what a decision looks at."""
    attempt = and_(attempts.c.job_id == supervisors.c.job_id, attempts.c.fence == supervisors.c.fence)
    key = (supervisors.c.job_id, supervisors.c.node_id)
    query = select(*key, supervisors.c.handed_at, supervisors.c.kind, supervisors.c.said_at).join(attempts, attempt)
    return list(tx.execute(query.where(attempts.c.ended_at.is_(None)).order_by(*key)))


def open_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """A node's supervisors that have not ended, oldest attempt first."""
    query = (
        select(supervisors)
        .where(supervisors.c.node_id == node_id, supervisors.c.ended_at.is_(None))
        .order_by(supervisors.c.job_id, supervisors.c.fence)
    )
    return list(tx.execute(query))


def carried_on(tx: Connection, node_id: int) -> list[Row[Any]]:
    """What a letter is made of: a node's open supervisors with attempt, job and owner."""
    query = (
        select(
            jobs,
            users.c.name.label("owner"),
            job_environs.c.key_id,
            job_environs.c.sealed,
            job_environs.c.plain,
            attempts.c.fence.label("attempt_fence"),
            attempts.c.home_node_id,
            attempts.c.host_node_id,
            attempts.c.token,
            attempts.c.coordinator,
            attempts.c.kind.label("attempt_kind"),
            attempts.c.trained_at,
            supervisors.c.acked,
            supervisors.c.handed_at.label("supervisor_handed_at"),
        )
        .select_from(supervisors)
        .join(attempts, and_(attempts.c.job_id == supervisors.c.job_id, attempts.c.fence == supervisors.c.fence))
        .join(jobs, jobs.c.id == supervisors.c.job_id)
        .outerjoin(job_environs, job_environs.c.job_id == jobs.c.id)
        .join(users, users.c.id == jobs.c.user_id)
        .where(supervisors.c.node_id == node_id, supervisors.c.ended_at.is_(None))
        .order_by(jobs.c.id, attempts.c.fence)
    )
    return list(tx.execute(query))


def hand(tx: Connection, job_id: int, fence: int, node_id: int, now: float) -> None:
    """It is listed to its agent: from here on a process may exist."""
    key = and_(_key(job_id, fence, node_id), supervisors.c.handed_at.is_(None))
    tx.execute(update(supervisors).where(key).values(handed_at=now))


def ack(tx: Connection, job_id: int, fence: int, node_id: int, seq: int) -> None:
    tx.execute(update(supervisors).where(_key(job_id, fence, node_id)).values(acked=seq))


def end_supervisor(tx: Connection, job_id: int, fence: int, node_id: int, kind: ExitKind, now: float) -> None:
    key = and_(_key(job_id, fence, node_id), supervisors.c.ended_at.is_(None))
    tx.execute(update(supervisors).where(key).values(ended_at=now, kind=kind))


def said(tx: Connection, job_id: int, fence: int, node_id: int, now: float) -> None:
    """Its last word was taken: what was told of it so far is all."""
    tx.execute(update(supervisors).where(_key(job_id, fence, node_id)).values(said_at=now))


def can_open_again(row: Row[Any]) -> bool:
    """Whether a supervisor that has ended may be followed by another of its attempt: what ``open_supervisor`` does."""
    return row.handed_at is None or row.kind == ExitKind.LEFT or (row.kind == ExitKind.LOST and row.said_at is not None)


def _key(job_id: int, fence: int, node_id: int) -> Any:
    return and_(supervisors.c.job_id == job_id, supervisors.c.fence == fence, supervisors.c.node_id == node_id)
