"""Nodes and their slots, and the heartbeat of the APIs that nodes need."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, func, insert, select, union, update
from sqlalchemy.sql.functions import count

from edt_scheduler.errors import NoSuchNode
from edt_scheduler.model.nodes import Device, SlotSpec
from edt_scheduler.model.states import Intent
from edt_scheduler.store.queries import put, rows_of
from edt_scheduler.store.tables import allocations, api_heartbeat, attempts, nodes, slots, supervisors
from edt_scheduler.store.users import fingerprint


def register(tx: Connection, name: str, secret: str, now: float, **facts: Any) -> tuple[int, str | None]:
    """Insert the node, or update what is known of it.

    The version increases: an agent that has the old list must fetch the list again.

    Returns:
        The node's id, and the boot id that it had before; None: the node is new.
    """
    heard = {"registered_at": now, "seen_at": now, "lost_at": None}
    values = {"token_sha256": fingerprint(secret), **heard, **facts}
    known = tx.execute(select(*nodes.c["id", "boot_id", "removed_at"]).where(nodes.c.name == name)).one_or_none()
    if known is None:
        return int(tx.execute(insert(nodes).values(name=name, **values).returning(nodes.c.id)).scalar_one()), None
    moved: dict[str, Any] = {"counter": nodes.c.counter + 1, "version": nodes.c.version + 1}
    if known.removed_at is not None:
        moved |= {"removed_at": None, "intent": Intent.OPEN}  # a removed node that registers again is like a new one
    tx.execute(update(nodes).where(nodes.c.id == known.id).values(**values, **moved))
    return known.id, known.boot_id


def set_slots(tx: Connection, node_id: int, named: Sequence[SlotSpec]) -> None:
    """Set the slots that the node has now. A slot that is no longer named keeps its row, because history
    refers to it.
    """
    tx.execute(update(slots).where(slots.c.node_id == node_id).values(present=False))
    for position, spec in enumerate(named):
        facts = {name: value for name, value in vars(spec).items() if name != "slot"}
        values = {**facts, "position": position, "present": True, "problem": None}
        put(tx, slots, {"node_id": node_id, "slot": spec.slot}, values)


def find(tx: Connection, name: str) -> Row[Any] | None:
    """The row of a node that was not removed; None: there is none."""
    return tx.execute(select(nodes).where(nodes.c.name == name, nodes.c.removed_at.is_(None))).one_or_none()


def get(tx: Connection, name: str) -> Row[Any]:
    """The row of a node that was not removed. Raises NoSuchNode."""
    row = find(tx, name)
    if row is None:
        raise NoSuchNode(name)
    return row


def name(tx: Connection, node_id: int) -> str:
    return str(tx.execute(select(nodes.c.name).where(nodes.c.id == node_id)).scalar_one())


def names(tx: Connection, node_ids: Iterable[int]) -> dict[int, str]:
    """The names of these nodes."""
    return {row.id: row.name for row in rows_of(tx, select(nodes.c.id, nodes.c.name), nodes.c.id, node_ids)}


def listed(tx: Connection, limit: int | None = None, after: int = 0) -> list[Row[Any]]:
    """At most ``limit`` nodes that were not removed, with a number above ``after``, in the order of their first
    registration.
    """
    query = select(nodes).where(nodes.c.removed_at.is_(None), nodes.c.id > after)
    return list(tx.execute(query.order_by(nodes.c.id).limit(limit)))


def every(tx: Connection) -> list[Row[Any]]:
    """All nodes, removed ones too. Removed nodes are lost, and history refers to them."""
    return list(tx.execute(select(nodes).order_by(nodes.c.id)))


def for_the_plan(tx: Connection) -> list[Row[Any]]:
    """Every node that was not removed, or that a live attempt has used, with the columns that a decision needs. No
    heartbeat changes these columns.
    """
    columns = nodes.c["id", "name", "intent", "lost_at", "launcher", "alone", "pool_id", "only_for"]
    live = attempts.c.ended_at.is_(None)
    concerned = union(
        select(nodes.c.id).where(nodes.c.removed_at.is_(None)),
        select(attempts.c.head_node_id).where(live),
        select(supervisors.c.node_id).join(attempts).where(live),
        select(allocations.c.node_id).where(allocations.c.released_at.is_(None)),
    )
    return list(tx.execute(select(*columns).where(nodes.c.id.in_(concerned)).order_by(nodes.c.id)))


def counters(tx: Connection) -> list[Row[Any]]:
    """``id`` and ``counter`` of every node that is not lost. A node that was removed is lost."""
    here = and_(nodes.c.removed_at.is_(None), nodes.c.lost_at.is_(None))
    return list(tx.execute(select(*nodes.c["id", "counter"]).where(here)))


def free_slots(tx: Connection) -> int:
    """Number of slots that are free now, on nodes that take work."""
    held = and_(
        allocations.c.node_id == slots.c.node_id,
        allocations.c.slot == slots.c.slot,
        allocations.c.released_at.is_(None),
    )
    query = (
        select(func.count())
        .select_from(slots)
        .join(nodes)
        .outerjoin(allocations, held)
        .where(slots.c.present, slots.c.problem.is_(None), allocations.c.id.is_(None))
        .where(nodes.c.lost_at.is_(None), nodes.c.intent == Intent.OPEN)
    )
    return int(tx.execute(query).scalar_one())


def of_numbers(tx: Connection, numbers: Collection[int]) -> list[Row[Any]]:
    """The nodes with these numbers, in order."""
    return rows_of(tx, select(nodes).order_by(nodes.c.id), nodes.c.id, numbers)


def of_token(tx: Connection, secret: str) -> str | None:
    """The name of the node that has this token; None: no node has it."""
    query = select(nodes.c.name).where(nodes.c.token_sha256 == fingerprint(secret))
    return tx.execute(query).scalar_one_or_none()


def version(tx: Connection, name: str) -> int | None:
    """The version of a node's assignments; None: no node has this name."""
    return tx.execute(select(nodes.c.version).where(nodes.c.name == name)).scalar_one_or_none()


def beat(tx: Connection, node_id: int, now: float) -> None:
    """Note that the node was heard from."""
    values = {"counter": nodes.c.counter + 1, "seen_at": now, "lost_at": None}
    tx.execute(update(nodes).where(nodes.c.id == node_id).values(**values))


def lose(tx: Connection, node_id: int, counter: int, now: float) -> bool:
    """Note that the node's lease ran out at this counter. False: it was heard from meanwhile, or is lost already."""
    silent = and_(nodes.c.id == node_id, nodes.c.counter == counter, nodes.c.lost_at.is_(None))
    return tx.execute(update(nodes).where(silent).values(lost_at=now)).rowcount == 1


def touch(tx: Connection, node_id: int) -> int:
    """Note that the node's list of assignments has changed. Returns the new version."""
    query = update(nodes).where(nodes.c.id == node_id).values(version=nodes.c.version + 1)
    return int(tx.execute(query.returning(nodes.c.version)).scalar_one())


def intend(tx: Connection, node_id: int, intent: Intent, leaving_why: str | None = None) -> None:
    """Note what is wanted of the node. ``leaving_why``: why it is emptied, if no administrator has asked for it."""
    tx.execute(update(nodes).where(nodes.c.id == node_id).values(intent=intent, leaving_why=leaving_why))


def remove(tx: Connection, node_id: int, now: float) -> None:
    """Take a lost node from all lists and make its token invalid: its agent would have to register again."""
    values = {"removed_at": now, "token_sha256": fingerprint(secrets.token_urlsafe(32))}
    tx.execute(update(nodes).where(nodes.c.id == node_id).values(**values))


def live_holders(tx: Connection, node_id: int) -> list[int]:
    """Jobs with a live attempt whose supervisor on this node has not ended."""
    part = supervisors.c
    query = (
        select(part.job_id)
        .distinct()
        .join(attempts)
        .where(part.node_id == node_id, part.ended_at.is_(None), attempts.c.ended_at.is_(None))
        .order_by(part.job_id)
    )
    return list(tx.execute(query).scalars())


def slot_rows(tx: Connection, node_ids: Iterable[int] | None = None) -> list[Row[Any]]:
    """Slots that are present or held, in the node's own order, each with its open allocation if it has one."""
    query = (
        select(slots, allocations.c.id.label("allocation"), allocations.c.job_id, allocations.c.release_asked_at)
        .outerjoin(
            allocations,
            and_(
                allocations.c.node_id == slots.c.node_id,
                allocations.c.slot == slots.c.slot,
                allocations.c.released_at.is_(None),
            ),
        )
        .where(slots.c.present | allocations.c.id.is_not(None))
        .order_by(slots.c.node_id, slots.c.position, slots.c.slot)
    )
    if node_ids is None:
        return list(tx.execute(query))
    return rows_of(tx, query, slots.c.node_id, node_ids)


def slots_for_the_plan(tx: Connection, node_ids: Iterable[int] | None = None) -> list[Row[Any]]:
    """The slots that are present, in the node's own order, with the columns that a decision needs.

    ``node_ids``: only those of these nodes; None: of all. Nodes that were removed have none.
    """
    query = select(*slots.c["node_id", "slot", "device", "model", "problem"]).join(nodes)
    query = query.where(slots.c.present, nodes.c.removed_at.is_(None))
    query = query.order_by(slots.c.node_id, slots.c.position, slots.c.slot)
    return list(tx.execute(query)) if node_ids is None else rows_of(tx, query, slots.c.node_id, node_ids)


def cores_and_slots(tx: Connection) -> list[tuple[int, int, Device]]:
    """Number of cores, number of slots and their kind, of every node that takes work."""
    query = (
        select(nodes.c.cores, count(slots.c.slot), func.min(slots.c.device))
        .join(slots)
        .where(slots.c.present, nodes.c.lost_at.is_(None), nodes.c.intent == Intent.OPEN)
        .group_by(nodes.c.id, nodes.c.cores)
    )
    return [(cores, number, Device.of_slot(device)) for cores, number, device in tx.execute(query)]


def beat_api(tx: Connection) -> None:
    """Note that an API serves. Each serving API increases the counter every few seconds."""
    if tx.execute(update(api_heartbeat).values(counter=api_heartbeat.c.counter + 1)).rowcount == 0:
        tx.execute(insert(api_heartbeat).values(id=1, counter=1))


def api_counter(tx: Connection) -> int | None:
    """The counter of the APIs' heartbeat; None: no API of this database has ever served."""
    return tx.execute(select(api_heartbeat.c.counter)).scalar_one_or_none()
