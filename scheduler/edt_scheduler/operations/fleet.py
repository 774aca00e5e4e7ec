"""Use cases of nodes: they register, their slots are watched, and an administrator cordons, drains and removes them."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection

from edt_migrations import is_newest
from edt_scheduler.attempts import supervisors
from edt_scheduler.errors import NodeInUse, NodeInvalid
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import Intent
from edt_scheduler.platform import Platform
from edt_scheduler.store import images, outbox, to_views
from edt_scheduler.store import nodes as store
from edt_scheduler.store import usage as usage_store
from edt_scheduler.store.database import retried
from edt_scheduler.views import NodeView, Registration, UseOverTime

LEAST_INTERVAL_SECONDS = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Part of a queue's name and of folder names."""


@retried(if_done=True)
def register_node(
    platform: Platform,
    *,
    name: str,
    host: str,
    cores: int,
    boot_id: str,
    incarnation: str,
    slots: Sequence[SlotSpec],
    launcher: str = "process",
    alone: bool = False,
) -> Registration:
    """A node's agent has started. It gets a new token; an older agent of the same name is shut out by that.

    ``alone``: its engines and those of other nodes cannot reach each other.

    A boot id that differs from the last one proves that nothing of before runs there: all of it is given back.
    """
    _check(name, cores, slots)
    token = secrets.token_urlsafe(32)
    with platform.database.transaction(urgent=True) as tx:
        now = platform.clock()
        facts = {
            "host": host,
            "cores": cores,
            "boot_id": boot_id,
            "incarnation": incarnation,
            "launcher": launcher,
            "alone": alone,
        }
        node_id, last_boot = store.register(tx, name, token, now, **facts)
        store.set_slots(tx, node_id, slots)
        images.forget(tx, node_id)
        if last_boot is not None and last_boot != boot_id:
            supervisors.forget(tx, store.get(tx, name), f"node {name} was restarted", now)
        outbox.put_scheduler(tx, now)
        view = _view(tx, name, now)
    platform.notifier.notify()
    return Registration(view, token)


def _check(name: str, cores: int, slots: Sequence[SlotSpec]) -> None:
    if not NAME.fullmatch(name):
        raise NodeInvalid("name", f"{name!r}: letters, digits and _ . -, at most 63, beginning with one of the first")
    if cores < 1:
        raise NodeInvalid("cores", f"{cores}: at least 1")
    names = [spec.slot for spec in slots]
    if len(set(names)) != len(names):
        raise NodeInvalid("slots", f"{names}: each slot once")


@retried(if_done=True)
def beat(platform: Platform) -> None:
    """An API serves: until it says so no more, a node that is not heard from is silent by its own doing."""
    with platform.database.transaction() as tx:
        store.beat_api(tx)


def serves(platform: Platform) -> bool:
    """Whether the schema is the newest; a row of it has been read.

    Raises DatabaseTooNew, Unavailable, and what else a database raises whose schema is none of ours.
    """
    with platform.database.snapshot() as tx:
        store.listed(tx, limit=1)
        newest = is_newest(tx)
    if platform.database.trouble is not None:
        raise platform.database.trouble
    return newest


def verify_node_token(platform: Platform, secret: str) -> str | None:
    """The name of the node whose token this is."""
    with platform.database.snapshot() as tx:
        return store.of_token(tx, secret)


def node(platform: Platform, name: str) -> NodeView:
    with platform.database.snapshot() as tx:
        return _view(tx, name, platform.clock())


def nodes(platform: Platform, *, limit: int | None = None, after: int = 0) -> list[NodeView]:
    """At most so many of the nodes with their slots, oldest first, from number ``after`` (not itself) on; None: all."""
    with platform.database.snapshot() as tx:
        return to_views.nodes_of(tx, store.listed(tx, limit, after), platform.clock())


def usage(platform: Platform, node: str, *, since: float, until: float, points: int) -> dict[str, list[UseOverTime]]:
    """How busy each slot was, in at most so many intervals, oldest first; a slot of which nothing is known is left
    out."""
    found: dict[str, list[UseOverTime]] = defaultdict(list)
    with platform.database.snapshot() as tx:
        row = store.get(tx, node)
        width = max(LEAST_INTERVAL_SECONDS, (until - since) / points)
        for each in usage_store.series(tx, row.id, since, until, width):
            memory = int(each.memory_bytes) if each.memory_bytes is not None else None
            point = UseOverTime(each.slot, each.time, each.utilisation, memory, each.power_watts, each.temperature_c)
            found[each.slot].append(point)
    return dict(found)


def cordon(platform: Platform, name: str) -> NodeView:
    """Nothing new on this node; what runs there stays."""
    return _intend(platform, name, Intent.CORDONED)


def uncordon(platform: Platform, name: str) -> NodeView:
    """This node takes work again, after a cordon or a drain."""
    return _intend(platform, name, Intent.OPEN)


def drain(platform: Platform, name: str) -> NodeView:
    """Empty this node: engines leave it at their next boundary, nothing new starts."""
    return _intend(platform, name, Intent.DRAINING)


@retried(if_done=True)
def remove_node(platform: Platform, name: str) -> None:
    """Take a lost node from all lists. What happened on it stays known, and a node of this name may register again.
    What attempts that are over still hold there ends now: they are fenced, and nobody will say when it was gone.
    Raises NoSuchNode, and NodeInUse for one that is heard from, or has a part of an attempt that goes on."""
    with platform.database.transaction() as tx:
        row = store.get(tx, name)
        now = platform.clock()
        if row.lost_at is None:
            raise NodeInUse(
                name,
                f"it was heard from {max(0.0, now - row.seen_at):.0f} s ago: end its agent or switch it off, "
                "and remove it when it is shown as lost",
            )
        if holders := [exec_id(number) for number in store.live_holders(tx, row.id)]:
            raise NodeInUse(name, _who_holds(holders))
        supervisors.forget(tx, row, f"node {name} was removed", now)
        images.forget(tx, row.id)
        store.remove(tx, row.id, now)


def _who_holds(holders: Sequence[str]) -> str:
    """Why a node cannot be removed yet, naming at most three of the jobs that are in the way."""
    if len(holders) == 1:
        return f"{holders[0]} holds slots there and goes on elsewhere; stop it, or remove the node when it is over"
    first, last = (holders[:-1], holders[-1]) if len(holders) <= 3 else (holders[:2], f"{len(holders) - 2} more")
    who = f"{', '.join(first)} and {last}"
    return f"{who} hold slots there and go on elsewhere; remove the node when they are over"


@retried(if_done=True)
def _intend(platform: Platform, name: str, intent: Intent) -> NodeView:
    with platform.database.transaction() as tx:
        row = store.get(tx, name)
        store.intend(tx, row.id, intent)
        now = platform.clock()
        outbox.put_scheduler(tx, now)
        view = _view(tx, name, now)
    platform.notifier.notify()
    return view


def _view(tx: Connection, name: str, now: float) -> NodeView:
    row = store.get(tx, name)
    return to_views.nodes_of(tx, [row], now)[0]
