"""How busy slots were: one row a slot and sample. Room: scheduler, store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Integer, Row, and_, cast, delete, func, insert, select, update

from edt_scheduler.store.chunks import chunks
from edt_scheduler.store.tables import nodes, slot_usage, slots
from edt_scheduler.views import SlotUse

FRESH_SECONDS = 60.0
"""What was told longer ago says nothing of now."""


def put(tx: Connection, node: Row[Any], samples: Iterable[SlotUse], now: float) -> None:
    """Keep a sample of a node, of the slots that it has. Of two at the same instant the first counts."""
    if node.usage_at == now:
        return
    known = set(tx.execute(select(slots.c.slot).where(slots.c.node_id == node.id)).scalars())
    rows = [
        {
            "node_id": node.id,
            "slot": slot,
            "time": now,
            "utilisation": use.utilisation,
            "memory_bytes": use.memory_bytes,
            "memory_total_bytes": use.memory_total_bytes,
            "power_watts": use.power_watts,
            "temperature_c": use.temperature_c,
        }
        for slot, use in {use.slot: use for use in samples}.items()
        if slot in known
    ]
    if rows:
        tx.execute(insert(slot_usage), rows)
        tx.execute(update(nodes).where(nodes.c.id == node.id).values(usage_at=now))


def newest(tx: Connection, node_ids: Iterable[int], now: float) -> dict[tuple[int, str], SlotUse]:
    """By node and slot: the newest sample, where it is fresh."""
    query = (
        select(slot_usage)
        .join(nodes, and_(nodes.c.id == slot_usage.c.node_id, nodes.c.usage_at == slot_usage.c.time))
        .where(nodes.c.usage_at > now - FRESH_SECONDS)
    )
    return {
        (row.node_id, row.slot): SlotUse(
            row.slot,
            row.utilisation,
            row.memory_bytes,
            row.memory_total_bytes,
            row.power_watts,
            row.temperature_c,
        )
        for chunk in chunks(node_ids)
        for row in tx.execute(query.where(nodes.c.id.in_(chunk)))
    }


def series(tx: Connection, node_id: int, since: float, until: float, width: float) -> list[Row[Any]]:
    """Intervals of ``width`` seconds that hold a sample, by slot and time: their means, and the most memory."""
    place: Any = (slot_usage.c.time - since) / width
    if tx.dialect.name == "postgresql":
        place = func.floor(place)  # its cast rounds, SQLite's cuts
    interval = cast(place, Integer).label("interval")
    query = (
        select(
            slot_usage.c.slot,
            interval,
            func.avg(slot_usage.c.time).label("time"),
            func.avg(slot_usage.c.utilisation).label("utilisation"),
            func.max(slot_usage.c.memory_bytes).label("memory_bytes"),
            func.avg(slot_usage.c.power_watts).label("power_watts"),
            func.avg(slot_usage.c.temperature_c).label("temperature_c"),
        )
        .where(slot_usage.c.node_id == node_id, slot_usage.c.time >= since, slot_usage.c.time <= until)
        .group_by(slot_usage.c.slot, interval)
        .order_by(slot_usage.c.slot, interval)
    )
    return list(tx.execute(query))


def oldest(tx: Connection) -> float | None:
    found: float | None = tx.execute(select(func.min(slot_usage.c.time))).scalar_one()
    return found


def prune(tx: Connection, before: float) -> int:
    """Forget the samples from before then. Answers how many."""
    return tx.execute(delete(slot_usage).where(slot_usage.c.time < before)).rowcount
