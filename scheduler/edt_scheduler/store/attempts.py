"""Attempts, and the supervisors that carry an attempt, one on each of its nodes.

An attempt has a ``kind`` once it is known how it ended, and ``ended_at`` once no process of it is left. A supervisor's
``acked`` is the report cursor of (job, fence, node).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, select, update

from edt_contract.reports import ExitKind
from edt_scheduler.store.queries import of_attempt, rows_of
from edt_scheduler.store.tables import attempts, job_environs, jobs, nodes, supervisors, users


def add(tx: Connection, job_id: int, head_node_id: int, token: str, now: float) -> int:
    """Begin the job's next attempt, and return its fence."""
    grown = update(jobs).where(jobs.c.id == job_id).values(fence=jobs.c.fence + 1)
    fence, epochs = tx.execute(grown.returning(jobs.c.fence, jobs.c.wanted_epochs)).one()
    values = {"head_node_id": head_node_id, "token": token, "created_at": now, "wanted_epochs": epochs}
    tx.execute(insert(attempts).values(job_id=job_id, fence=fence, **values))
    return int(fence)


def live(tx: Connection, job_id: int) -> Row[Any] | None:
    """The job's attempt of which a process may be left, with ``gang``; None: there is none."""
    query = _with_gang().where(attempts.c.job_id == job_id, attempts.c.ended_at.is_(None))
    return tx.execute(query).one_or_none()


def every_live(tx: Connection) -> list[Row[Any]]:
    """All live attempts, with the columns that a decision needs."""
    query = select(*attempts.c["job_id", "fence", "head_node_id", "kind", "trained_at", "started_at"])
    return list(tx.execute(query.where(attempts.c.ended_at.is_(None)).order_by(attempts.c.job_id)))


def with_live(tx: Connection, job_ids: Iterable[int]) -> set[int]:
    """Those of these jobs that have a live attempt."""
    query = select(attempts.c.job_id).where(attempts.c.ended_at.is_(None))
    return {row.job_id for row in rows_of(tx, query, attempts.c.job_id, job_ids)}


def get(tx: Connection, job_id: int, fence: int) -> Row[Any]:
    """The row of an attempt that must exist, with ``gang``: whether its job is a gang."""
    return tx.execute(_with_gang().where(of_attempt(attempts, job_id, fence))).one()


def _with_gang() -> Any:
    return select(attempts, jobs.c.gang.is_not(None).label("gang")).join(jobs)


def heads(tx: Connection, job_ids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Name and address of the head node of each job's newest attempt. A job without an attempt is left out."""
    newest = and_(jobs.c.id == attempts.c.job_id, jobs.c.fence == attempts.c.fence)
    query = (
        select(attempts.c.job_id, nodes.c.name, nodes.c.host)
        .join(jobs, newest)
        .join(nodes, nodes.c.id == attempts.c.head_node_id)
    )
    return {row.job_id: (row.name, row.host) for row in rows_of(tx, query, attempts.c.job_id, job_ids)}


def change(tx: Connection, job_id: int, fence: int, **values: Any) -> None:
    """Set columns of an attempt."""
    tx.execute(update(attempts).where(of_attempt(attempts, job_id, fence)).values(**values))


def open_supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> None:
    """Make sure that the attempt has a supervisor on this node.

    A supervisor's row is opened again in three cases: the supervisor left in order, it was lost and its last report was
    taken, or it ended before it was listed to an agent. The row then stands for a new process, which no agent knows
    yet. The new process numbers its reports from the cursor on. After any other end the planner gives the attempt no
    slots on this node. No supervisor of a gang is ever opened again, because a gang does not go on without a part.
    """
    row = supervisor(tx, job_id, fence, node_id)
    if row is None:
        tx.execute(insert(supervisors).values(job_id=job_id, fence=fence, node_id=node_id))
    elif can_open_again(row) and not get(tx, job_id, fence).gang:
        anew = {"ended_at": None, "kind": None, "handed_at": None, "reports_complete_at": None}
        change_supervisor(tx, job_id, fence, node_id, **anew)


def supervisor(tx: Connection, job_id: int, fence: int, node_id: int) -> Row[Any] | None:
    """The attempt's supervisor on this node; None: it has none."""
    return tx.execute(select(supervisors).where(of_attempt(supervisors, job_id, fence, node_id))).one_or_none()


def supervisors_of(tx: Connection, job_id: int, fence: int) -> list[Row[Any]]:
    """An attempt's supervisors, each with its node's ``name`` and ``lost_at``."""
    query = (
        select(supervisors, *nodes.c["name", "lost_at"])
        .join(nodes)
        .where(of_attempt(supervisors, job_id, fence))
        .order_by(supervisors.c.node_id)
    )
    return list(tx.execute(query))


def every_live_supervisor(tx: Connection) -> list[Row[Any]]:
    """The supervisors of all live attempts, also those that have ended, with the columns that a decision needs."""
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
    """A node's open supervisors with their attempt, job and owner: all that a spec is made of."""
    query = (
        select(
            jobs,
            users.c.name.label("owner"),
            *job_environs.c["key_id", "sealed", "plain"],
            attempts.c.fence.label("attempt_fence"),
            *attempts.c["head_node_id", "coordinator_node_id", "token", "coordinator", "trained_at"],
            attempts.c.kind.label("attempt_kind"),
            attempts.c.wanted_epochs.label("attempt_epochs"),
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


def gang_parts(tx: Connection, node_id: int) -> list[Row[Any]]:
    """The parts of all gangs that have an open supervisor on this node, also the parts on other nodes and those that
    have ended: ``job_id``, ``fence``, ``node_id``, the node's ``name`` and ``host``, and the reserved ``ports``.
    """
    here = supervisors.alias()
    query = (
        select(*supervisors.c["job_id", "fence", "node_id", "ports"], *nodes.c["name", "host"])
        .select_from(here)
        .join(jobs, jobs.c.id == here.c.job_id)
        .join(supervisors, and_(supervisors.c.job_id == here.c.job_id, supervisors.c.fence == here.c.fence))
        .join(nodes, nodes.c.id == supervisors.c.node_id)
        .where(here.c.node_id == node_id, here.c.ended_at.is_(None), jobs.c.gang.is_not(None))
    )
    return list(tx.execute(query))


def hand(tx: Connection, job_id: int, fence: int, node_id: int, now: float) -> None:
    """Note that the supervisor is listed to its agent. From now on a process may exist."""
    key = and_(of_attempt(supervisors, job_id, fence, node_id), supervisors.c.handed_at.is_(None))
    tx.execute(update(supervisors).where(key).values(handed_at=now))


def change_supervisor(tx: Connection, job_id: int, fence: int, node_id: int, **values: Any) -> None:
    """Set columns of a supervisor."""
    tx.execute(update(supervisors).where(of_attempt(supervisors, job_id, fence, node_id)).values(**values))


def end_supervisor(tx: Connection, job_id: int, fence: int, node_id: int, kind: ExitKind, now: float) -> None:
    """Note how and when a supervisor ended. A second note changes nothing."""
    key = and_(of_attempt(supervisors, job_id, fence, node_id), supervisors.c.ended_at.is_(None))
    tx.execute(update(supervisors).where(key).values(ended_at=now, kind=kind))


def can_open_again(row: Row[Any]) -> bool:
    """Whether ``open_supervisor`` may open the row of this ended supervisor again, if its job is elastic."""
    return (
        row.handed_at is None
        or row.kind == ExitKind.LEFT
        or (row.kind == ExitKind.LOST and row.reports_complete_at is not None)
    )
