"""Use cases of nodes: they register, their slots are watched, and an administrator cordons, drains and removes them."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row

from edt_migrations import is_newest
from edt_scheduler.attempts import supervisors
from edt_scheduler.errors import NodeInUse, NodeInvalid, NodeNotWanted
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.nodes import Device, SlotSpec
from edt_scheduler.model.states import Intent
from edt_scheduler.operations.pools import in_use
from edt_scheduler.platform import Platform
from edt_scheduler.store import images, outbox, pools, to_views
from edt_scheduler.store import nodes as store
from edt_scheduler.store import usage as usage_store
from edt_scheduler.store.database import retried
from edt_scheduler.views import NodeView, Registration, UseOverTime

LEAST_INTERVAL_SECONDS = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""A node's name. It becomes part of a queue's name and of folder names."""


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
    """Register a node whose agent has started. The node gets a new token, which shuts out an older agent of the same
    name.

    If the boot id differs from the last one, no process from before the restart can exist. Everything that attempts
    held on the node is then given back.

    Args:
        platform: The open platform.
        name: The node's name.
        host: The node's address.
        cores: Number of CPU cores, at least 1.
        boot_id: The id that the node's kernel made when it booted.
        incarnation: The id of this run of the agent.
        slots: The node's slots, each once.
        launcher: In what the node's jobs run: ``process``, ``docker`` or ``docker-fixed``.
        alone: Whether its engines and those of other nodes cannot reach each other.

    A node that a pool's cluster manager was asked for is of that pool, and its request is granted.

    Raises:
        NodeInvalid: The name, the cores or the slots are not valid.
        NodeNotWanted: It is a node of a pool, and it was given up or has ended.
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
        request = pools.request(tx, name)
        _check_wanted(tx, request)
        facts["pool_id"] = request.pool_id if request is not None else None
        facts["only_for"] = request.job_id if request is not None else None
        node_id, last_boot = store.register(tx, name, token, now, **facts)
        store.set_slots(tx, node_id, slots)
        images.forget(tx, node_id)
        if last_boot is not None and last_boot != boot_id:
            supervisors.forget(tx, store.get(tx, name), f"node {name} was restarted", now)
        if request is not None and request.granted_at is None:
            _grant(tx, request, node_id, now)
        elif request is None and store.get(tx, name).leaving_why is not None:
            store.intend(tx, node_id, Intent.OPEN)  # it has left by itself, and was started again
        outbox.put_scheduler(tx, now)
        view = _view(tx, name, now)
    platform.notifier.notify()
    return Registration(view, token)


def _check_wanted(tx: Connection, request: Row[Any] | None) -> None:
    """A node that was given up may register again while something of a job is on it: its agent was restarted."""
    if request is None:
        return
    if request.ended_at is not None:
        raise NodeNotWanted(request.node, f"it has ended{f', {request.ended_reason}' if request.ended_reason else ''}")
    if request.give_up_at is not None and not in_use(tx, request.node):
        raise NodeNotWanted(request.node, request.give_up_why)


def _grant(tx: Connection, request: Row[Any], node_id: int, now: float) -> None:
    """Note that the node is there. One that has left and was started again takes work again."""
    pools.change_request(tx, request.id, granted_at=now)
    if store.get(tx, request.node).leaving_why is not None:
        store.intend(tx, node_id, Intent.OPEN)


def _check(name: str, cores: int, slots: Sequence[SlotSpec]) -> None:
    if not NAME.fullmatch(name):
        raise NodeInvalid("name", f"{name!r}: letters, digits and _ . -, at most 63, beginning with one of the first")
    if cores < 1:
        raise NodeInvalid("cores", f"{cores}: at least 1")
    names = [spec.slot for spec in slots]
    if len(set(names)) != len(names):
        raise NodeInvalid("slots", f"{names}: each slot once")
    if len({Device.of_slot(spec.device) for spec in slots}) > 1:
        raise NodeInvalid("slots", f"{[spec.device for spec in slots]}: GPUs or CPU stand-ins, not both")


@retried(if_done=True)
def beat(platform: Platform) -> None:
    """Note that an API serves.

    While no API does this, the scheduler takes no node for lost: nodes can be heard from only through an API.
    """
    with platform.database.transaction() as tx:
        store.beat_api(tx)


def serves(platform: Platform) -> bool:
    """Whether the schema is the newest. A row is read to find out whether the database answers.

    Raises:
        DatabaseTooNew: A newer version has migrated the database.
        Unavailable: The database cannot be read, or its last write failed a moment ago.
        sqlalchemy.exc.DBAPIError: The database has a schema of another program.
    """
    with platform.database.snapshot() as tx:
        store.listed(tx, limit=1)
        newest = is_newest(tx)
    if platform.database.trouble is not None:
        raise platform.database.trouble
    return newest


def verify_node_token(platform: Platform, secret: str) -> str | None:
    """The name of the node that has this token; None: no node has it."""
    with platform.database.snapshot() as tx:
        return store.of_token(tx, secret)


def node(platform: Platform, name: str) -> NodeView:
    """The node of this name, with its slots. Raises NoSuchNode."""
    with platform.database.snapshot() as tx:
        return _view(tx, name, platform.clock())


def nodes(platform: Platform, *, limit: int | None = None, after: int = 0) -> list[NodeView]:
    """At most ``limit`` nodes with their slots, oldest first, with a number above ``after``; None: all of them."""
    with platform.database.snapshot() as tx:
        return to_views.nodes_of(tx, store.listed(tx, limit, after), platform.clock())


def usage(platform: Platform, node: str, *, since: float, until: float, points: int) -> dict[str, list[UseOverTime]]:
    """How busy each slot was, in about ``points`` intervals at most, oldest first.

    A slot without samples in this time is left out.

    Args:
        platform: The open platform.
        node: The node's name.
        since: Begin, in seconds since the epoch.
        until: End, in seconds since the epoch.
        points: Number of intervals. Each interval has at least LEAST_INTERVAL_SECONDS, so there may be fewer.

    Raises:
        NoSuchNode: No node has this name.
    """
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
    """Start nothing new on this node. What runs there stays.

    Raises:
        NoSuchNode: No node has this name.
    """
    return _intend(platform, name, Intent.CORDONED)


def uncordon(platform: Platform, name: str) -> NodeView:
    """Let this node take work again, after a cordon or a drain.

    Raises:
        NoSuchNode: No node has this name.
    """
    return _intend(platform, name, Intent.OPEN)


def drain(platform: Platform, name: str) -> NodeView:
    """Empty this node: its engines leave at their next boundary, and nothing new starts.

    Raises:
        NoSuchNode: No node has this name.
    """
    return _intend(platform, name, Intent.DRAINING)


@retried(if_done=True)
def remove_node(platform: Platform, name: str) -> None:
    """Take a lost node from all lists. Its history stays, and a node of this name may register again.

    Slots that ended attempts still hold on the node are given back now: the attempts are fenced, and no report about
    these slots will come.

    Raises:
        NoSuchNode: No node has this name.
        NodeInUse: The node is not lost, or a part of a live attempt is on it.
    """
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
