"""Pools, and the nodes that their cluster managers were asked for.

A request is open until its node is over in the cluster manager. It is granted when the node's agent registers, and
given up when the node is not wanted any more.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, and_, case, func, insert, select, update

from edt_scheduler.errors import NoSuchPool
from edt_scheduler.model.states import Intent
from edt_scheduler.store import nodes as node_store
from edt_scheduler.store.tables import jobs, node_requests, nodes, pools, users

HARD = 14
"""Number of the columns of ``for_the_plan`` that a decision depends on. ``seen_at``, the last, changes all the time."""

ENDED_AT = node_requests.c.ended_at
"""When a request was over."""
_OPEN = node_requests.c.ended_at.is_(None)


def register(tx: Connection, name: str, now: float, **offered: Any) -> int:
    """Insert the pool, or update what is known of it. What an administrator has set stays.

    Args:
        tx: the write transaction.
        name: the pool's name.
        now: the current time, in seconds since the epoch.
        offered: columns of the pool, as it was offered.

    Returns:
        The pool's id.
    """
    heard = {"registered_at": now, "seen_at": now}
    row = find(tx, name)
    if row is None:
        named = tx.execute(select(func.max(pools.c.named)).where(pools.c.name == name)).scalar() or 0
        query = insert(pools).values(name=name, named=named, **heard, **offered)
        return int(tx.execute(query.returning(pools.c.id)).scalar_one())
    kept = {"max_nodes": row.max_set, "min_nodes": row.min_set, "patience_seconds": row.patience_set}
    changed = {column: value for column, value in offered.items() if not kept.get(column, False)}
    change(tx, row.id, **heard, **changed)
    return int(row.id)


def find(tx: Connection, name: str) -> Row[Any] | None:
    """The row of a pool that was not removed; None: there is none."""
    return tx.execute(select(pools).where(pools.c.name == name, pools.c.removed_at.is_(None))).one_or_none()


def get(tx: Connection, name: str) -> Row[Any]:
    """The row of a pool that was not removed. Raises NoSuchPool."""
    row = find(tx, name)
    if row is None:
        raise NoSuchPool(name)
    return row


def of_number(tx: Connection, pool_id: int) -> Row[Any]:
    """The row of a pool that must exist, also if it was removed."""
    return tx.execute(select(pools).where(pools.c.id == pool_id)).one()


def change(tx: Connection, pool_id: int, **values: Any) -> None:
    """Set columns of a pool."""
    tx.execute(update(pools).where(pools.c.id == pool_id).values(**values))


def listed(tx: Connection) -> list[Row[Any]]:
    """All pools that were not removed, by name."""
    return list(tx.execute(select(pools).where(pools.c.removed_at.is_(None)).order_by(pools.c.name)))


def names(tx: Connection) -> dict[int, str]:
    """Number to name of all pools, removed ones too."""
    return {row.id: row.name for row in tx.execute(select(pools.c.id, pools.c.name))}


def for_the_plan(tx: Connection) -> list[Row[Any]]:
    """All pools that were not removed, with the columns that a decision needs, in the order of registration.

    ``min_nodes`` is at most ``max_nodes`` here.
    """
    columns = pools.c["id", "name", "kind", "slots", "max_nodes", "per_job", "containers", "device", "model"]
    others = pools.c["patience_seconds", "idle_seconds", "trouble", "registered_at", "seen_at"]
    least = case((pools.c.min_nodes < pools.c.max_nodes, pools.c.min_nodes), else_=pools.c.max_nodes)
    query = select(*columns, least.label("min_nodes"), *others).where(pools.c.removed_at.is_(None))
    return list(tx.execute(query.order_by(pools.c.id)))


def open_requests(tx: Connection) -> list[Row[Any]]:
    """All requests that are not over, oldest first, with the columns that a decision needs."""
    columns = node_requests.c[
        "pool_id", "node", "job_id", "asked_at", "granted_at", "give_up_at", "reason", "first", "group_size"
    ]
    return list(tx.execute(select(*columns).where(_OPEN).order_by(node_requests.c.id)))


def refused_since(tx: Connection, since: float) -> list[Row[Any]]:
    """``pool_id``, ``job_id``, ``give_up_at`` and ``reason`` of requests that did not come within their pool's patience
    and were given up after ``since``, the newest last.
    """
    query = (
        select(*node_requests.c["pool_id", "job_id", "give_up_at", "reason"])
        .where(node_requests.c.give_up_at > since, node_requests.c.refused)
        .order_by(node_requests.c.give_up_at, node_requests.c.id)
    )
    return list(tx.execute(query))


def ask(
    tx: Connection, pool_id: int, job_id: int | None, nodes: int, first: bool, group_size: int, now: float
) -> list[str]:
    """Ask a pool's cluster manager for nodes.

    Args:
        tx: the write transaction.
        pool_id: number of the pool.
        job_id: number of the only job that may use the nodes; None: any job.
        nodes: how many nodes.
        first: whether the job needs them to start.
        group_size: number of nodes that are of use only together; 0: each is of use alone.
        now: the current time, in seconds since the epoch.

    Returns:
        The names of the nodes. No node has ever had such a name.
    """
    name, named = tx.execute(select(*pools.c["name", "named"]).where(pools.c.id == pool_id)).one()
    asked: list[str] = []
    while len(asked) < nodes:
        named += 1
        if not _has_node(tx, f"{name}-{named}"):
            asked.append(f"{name}-{named}")
    if asked:
        change(tx, pool_id, named=named)
        common = {"pool_id": pool_id, "job_id": job_id, "first": first, "group_size": group_size, "asked_at": now}
        tx.execute(insert(node_requests), [{"node": node, **common} for node in asked])
    return asked


def _has_node(tx: Connection, name: str) -> bool:
    return tx.execute(select(nodes.c.id).where(nodes.c.name == name)).first() is not None


def give_up(tx: Connection, node: str, why: str, refused: bool, now: float) -> None:
    """Note that a node is not wanted any more. If it is registered, it is drained. Only the first call counts.

    Args:
        tx: the write transaction.
        node: the node's name.
        why: why it is not wanted, in words.
        refused: whether it did not come within its pool's patience.
        now: the current time, in seconds since the epoch.
    """
    given_up = {"give_up_at": now, "give_up_why": why, "refused": refused}
    wanted = and_(node_requests.c.node == node, _OPEN, node_requests.c.give_up_at.is_(None))
    if tx.execute(update(node_requests).where(wanted).values(**given_up)).rowcount == 0:
        return
    row = node_store.find(tx, node)
    if row is not None:
        node_store.intend(tx, row.id, Intent.DRAINING, why)


def request(tx: Connection, node: str) -> Row[Any] | None:
    """The request for the node of this name; None: no cluster manager was asked for such a node."""
    return tx.execute(select(node_requests).where(node_requests.c.node == node)).one_or_none()


def change_request(tx: Connection, number: int, **values: Any) -> None:
    """Set columns of a request."""
    tx.execute(update(node_requests).where(node_requests.c.id == number).values(**values))


def open_of(tx: Connection, pool_id: int | None = None) -> list[Row[Any]]:
    """Requests that are not over, oldest first, each with its job's ``backend``, ``image``, ``priority``, ``queue``
    and ``owner``, which are null if it has no job, or if its job is gone.

    ``pool_id``: those of this pool; None: of all pools.
    """
    query = (
        select(node_requests, *jobs.c["backend", "image", "priority", "queue"], users.c.name.label("owner"))
        .outerjoin(jobs, jobs.c.id == node_requests.c.job_id)
        .outerjoin(users, users.c.id == jobs.c.user_id)
        .where(_OPEN)
        .order_by(node_requests.c.id)
    )
    return list(tx.execute(query if pool_id is None else query.where(node_requests.c.pool_id == pool_id)))
