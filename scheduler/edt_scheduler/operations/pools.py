"""Use cases of pools: provisioners register them and tell what their cluster managers say, and people look at them.

A provisioner's two lists are whole each time. So a message that is lost or comes twice does no harm, and a provisioner
that was away goes on from what it finds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState
from edt_scheduler.attempts import supervisors
from edt_scheduler.errors import PoolInUse, PoolInvalid
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.queues import belongs_to
from edt_scheduler.operations.pool_views import AskedNodeView, PoolView
from edt_scheduler.platform import Platform
from edt_scheduler.store import attempts, images, nodes, outbox, queues
from edt_scheduler.store import pools as store
from edt_scheduler.store.database import retried
from edt_scheduler.views import view_of

log = logging.getLogger("edt.pools")

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""A pool's name. With '-' and a number behind it, it becomes the name of a node."""
KINDS = ("kubernetes", "slurm", "process")
MOST_SLOTS = 1024
MOST_NODES = 100_000
MOST_SECONDS = 864_000.0
MOST_WORDS = 500
"""The most characters that are kept of what a cluster manager says."""
SILENT_SECONDS = 60.0
"""A provisioner that was not heard from for so long counts as ended."""


@retried(if_done=True)
def register(platform: Platform, name: str, offer: PoolOffer) -> PoolView:
    """Register a pool, or replace what is known of it. What an administrator has set of it stays.

    Args:
        platform: The open platform.
        name: The pool's name.
        offer: What its provisioner offers.

    Raises:
        PoolInvalid: The name or a number is not valid.
    """
    if not NAME.fullmatch(name):
        raise PoolInvalid(
            "name", f"got {name[:64]!r}, takes lower-case letters, digits and '-', at most 40, a letter first"
        )
    _check_offer(offer)
    with platform.database.transaction() as tx:
        now = platform.clock()
        values = {**vars(offer), "model": _short(offer.model).lower(), "note": _short(offer.note)}
        before = store.find(tx, name)
        store.register(tx, name, now, **values)
        outbox.put_scheduler(tx, now)
        view = _view(tx, store.get(tx, name), now)
    if before is None:
        log.info("pool %s (%s) has registered: nodes of %d slots, at most %d", name, view.kind, *_size(view))
    platform.notifier.notify()
    return view


def _size(view: PoolView) -> tuple[int, int]:
    return view.slots, view.max_nodes


def _check_offer(offer: PoolOffer) -> None:
    if offer.kind not in KINDS:
        raise PoolInvalid("kind", f"got {offer.kind[:64]!r}, takes {', '.join(KINDS)}")
    if not 1 <= offer.slots <= MOST_SLOTS:
        raise PoolInvalid("slots", f"got {offer.slots}, takes a whole number from 1 to {MOST_SLOTS}")
    if offer.device not in set(Device):
        raise PoolInvalid("device", f"got {offer.device[:64]!r}, takes {' or '.join(Device)}")
    _check_number("max_nodes", offer.max_nodes)
    _check_number("min_nodes", offer.min_nodes)
    _check_least(offer.min_nodes, offer.max_nodes, per_job=offer.per_job)
    _check_seconds("patience_seconds", offer.patience_seconds)
    _check_seconds("idle_seconds", offer.idle_seconds)


def _check_number(field: str, number: int) -> None:
    if not 0 <= number <= MOST_NODES:
        raise PoolInvalid(field, f"got {number}, takes a whole number of nodes from 0 to {MOST_NODES}")


def _check_least(least: int, most: int, *, per_job: bool) -> None:
    if per_job and least:
        raise PoolInvalid("min_nodes", f"got {least}, takes 0: each node of this pool is asked for by one job")
    if least > most:
        raise PoolInvalid("min_nodes", f"got {least}, takes at most the pool's max_nodes, {most}")


def _check_seconds(field: str, seconds: float) -> None:
    if not 0 < seconds <= MOST_SECONDS:
        raise PoolInvalid(field, f"got {seconds:g}, takes a number of seconds above 0 and up to {MOST_SECONDS:g}")


@retried(if_done=True)
def sync(platform: Platform, name: str, states: Sequence[NodeState] | None, trouble: str | None) -> list[NodeRequest]:
    """Take what the cluster manager says of a pool's nodes, and answer all nodes that are wanted or not gone.

    A node that has ended loses its engines at once, and leaves the lists. So does a node that the cluster manager knew
    and does not know any more.

    Args:
        platform: The open platform.
        name: The pool's name.
        states: All nodes of the pool that the cluster manager knows; None: it does not answer.
        trouble: Why it does not answer; None: it does.

    Returns:
        The requests that are not over, oldest first.

    Raises:
        NoSuchPool: There is no pool of this name.
        PoolInvalid: A state is none.
    """
    found = _by_node(states or ())
    trouble = _short(trouble) if trouble is not None else None
    with platform.database.transaction(urgent=True) as tx:
        now = platform.clock()
        pool = store.get(tx, name)
        changed = trouble != pool.trouble or now - pool.seen_at > SILENT_SECONDS
        store.change(tx, pool.id, seen_at=now, trouble=trouble)
        if states is not None:
            _remember_names(tx, pool, found)
            for request in store.open_of(tx, pool.id):
                changed |= _take(tx, request, found.get(request.node), now)
        if changed:
            outbox.put_scheduler(tx, now)
        paths = frozenset(row.path for row in queues.every(tx))
        answer = [_request(tx, pool, row, paths) for row in store.open_of(tx, pool.id)]
    if changed:
        platform.notifier.notify()
    return answer


def _by_node(states: Sequence[NodeState]) -> dict[str, NodeState]:
    for each in states:
        if each.state not in set(PoolState):
            raise PoolInvalid("nodes", f"{each.node[:64]}: got state {each.state[:64]!r}, takes {', '.join(PoolState)}")
    return {each.node: replace(each, reason=_short(each.reason)) for each in states}


def _short(text: str) -> str:
    """Words of a cluster manager as they are kept: PostgreSQL takes no NUL, and lists show no pages."""
    text = " ".join(text.replace("\0", " ").split())
    return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 1]}…"


def _remember_names(tx: Connection, pool: Row[Any], found: dict[str, NodeState]) -> None:
    """Give no name again that the cluster manager knows, though this database does not, after a restore."""
    numbers = [int(node[len(pool.name) + 1 :]) for node in found if re.fullmatch(rf"{pool.name}-\d{{1,11}}", node)]
    if numbers and max(numbers) > pool.named:
        store.change(tx, pool.id, named=max(numbers))


def _take(tx: Connection, request: Row[Any], state: NodeState | None, now: float) -> bool:
    """Take what is said of one requested node. Returns whether the next decision depends on it."""
    given_up = request.give_up_at is not None
    if state is None or state.state == PoolState.REFUSED:
        if request.created_at is not None:
            _end(tx, request, "it is gone", now)
        elif given_up:
            _end(tx, request, request.give_up_why, now)
        elif state is not None and (request.state, request.reason) != (PoolState.REFUSED, state.reason):
            store.change_request(tx, request.id, state=PoolState.REFUSED, reason=state.reason)
        else:
            return False
        return True
    if state.state == PoolState.ENDED:
        _end(tx, request, state.reason, now, oom=state.oom)
        return True
    news = (request.state, request.reason) != (state.state, state.reason)
    if news or request.created_at is None:
        created_at = request.created_at if request.created_at is not None else now
        store.change_request(tx, request.id, state=state.state, reason=state.reason, created_at=created_at)
    if state.state == PoolState.PENDING and request.state == PoolState.RUNNING and request.granted_at is not None:
        # The cluster manager has ended its processes and starts it again. It is waited for anew.
        why = f"node {request.node} waits to be started again" + (f": {state.reason}" if state.reason else "")
        _lose(tx, request.node, why, now)
        store.change_request(tx, request.id, granted_at=None, asked_at=now)
    return news


def _end(tx: Connection, request: Row[Any], reason: str, now: float, *, oom: bool = False) -> None:
    """The node is over: it loses what runs there, and leaves the lists."""
    values: dict[str, Any] = {"ended_at": now, "ended_reason": reason, "oom": oom}
    if request.give_up_at is None and nodes.find(tx, request.node) is None:
        # It never came, and another one would perhaps not either: its job does not ask again at once.
        values |= {"give_up_at": now, "give_up_why": reason or "it ended before it was there", "refused": True}
    store.change_request(tx, request.id, state=PoolState.ENDED, **values)  # why it was waited for stays
    how = "ran out of memory" if oom else "has ended"
    why = f"node {request.node} {how}" + (f": {reason}" if reason else "")
    node = _lose(tx, request.node, why, now, oom=oom)
    if node is not None:
        images.forget(tx, node.id)
        nodes.remove(tx, node.id, now)
    log.info("%s", why)


def _lose(tx: Connection, name: str, why: str, now: float, *, oom: bool = False) -> Row[Any] | None:
    node = nodes.find(tx, name)
    if node is not None:
        supervisors.end_node(tx, node, why, now, oom=oom)
    return node


def _request(tx: Connection, pool: Row[Any], row: Row[Any], paths: frozenset[str]) -> NodeRequest:
    return NodeRequest(
        node=row.node,
        slots=pool.slots,
        end=row.give_up_at is not None and not in_use(tx, row.node),
        created=row.created_at is not None,
        job=exec_id(row.job_id) if row.job_id is not None else None,
        user=row.owner,
        queue=belongs_to(row.queue or "", paths),
        framework=row.backend or "pytorch",
        image=row.image,
        priority=row.priority or 1,
        first=row.first,
        group_size=row.group_size,
        idle_seconds=pool.idle_seconds,
    )


def in_use(tx: Connection, name: str) -> bool:
    """Whether something of a job is on a node that is heard from."""
    node = nodes.find(tx, name)
    return node is not None and node.lost_at is None and bool(attempts.open_on(tx, node.id))


def pools(platform: Platform) -> list[PoolView]:
    """All pools, by name, with the nodes that they were asked for."""
    with platform.database.snapshot() as tx:
        now = platform.clock()
        return [_view(tx, row, now) for row in store.listed(tx)]


@retried(if_done=True)
def put(
    platform: Platform,
    name: str,
    *,
    max_nodes: int | None = None,
    min_nodes: int | None = None,
    patience_seconds: float | None = None,
) -> PoolView:
    """Change a pool. What is None stays as it is. What is set here is not changed by its provisioner any more.

    Args:
        platform: The open platform.
        name: The pool's name.
        max_nodes: The most nodes. If it is below ``min_nodes``, it counts.
        min_nodes: The fewest nodes, idle ones too. 0 if its nodes are asked for by job.
        patience_seconds: Seconds after which a node that does not come is given up.

    Raises:
        NoSuchPool: There is no pool of this name.
        PoolInvalid: A number is out of its bounds.
    """
    given = {"max_nodes": max_nodes, "min_nodes": min_nodes, "patience_seconds": patience_seconds}
    values: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    for field in values.keys() & {"max_nodes", "min_nodes"}:
        _check_number(field, values[field])
    if patience_seconds is not None:
        _check_seconds("patience_seconds", patience_seconds)
    with platform.database.transaction() as tx:
        row, now = store.get(tx, name), platform.clock()
        if min_nodes is not None:
            _check_least(min_nodes, row.max_nodes if max_nodes is None else max_nodes, per_job=row.per_job)
        was_set = {f"{field.rpartition('_')[0]}_set": True for field in values}
        store.change(tx, row.id, **values, **was_set)
        outbox.put_scheduler(tx, now)
        view = _view(tx, store.get(tx, name), now)
    platform.notifier.notify()
    return view


@retried(if_done=True)
def remove(platform: Platform, name: str) -> None:
    """Remove a pool whose provisioner has ended. What it was asked for and did not come is forgotten.

    Raises:
        NoSuchPool: There is no pool of this name.
        PoolInUse: Its provisioner or one of its nodes is still heard from.
    """
    with platform.database.transaction() as tx:
        row, now = store.get(tx, name), platform.clock()
        silent = now - row.seen_at
        if silent < SILENT_SECONDS:
            raise PoolInUse(
                name,
                f"its provisioner was heard from {max(0.0, silent):.0f} s ago: end it, and remove the pool "
                f"{SILENT_SECONDS:.0f} s later",
            )
        requests = store.open_of(tx, row.id)
        there = [each.node for each in requests if _is_there(tx, each.node)]
        if there:
            raise PoolInUse(name, f"its node {there[0]} is there: end it in the cluster manager first")
        for request in requests:
            _end(tx, request, f"pool {name} was removed", now)
        store.change(tx, row.id, removed_at=now)
        outbox.put_scheduler(tx, now)
    platform.notifier.notify()


def _is_there(tx: Connection, name: str) -> bool:
    node = nodes.find(tx, name)
    return node is not None and node.lost_at is None


def _view(tx: Connection, row: Row[Any], now: float) -> PoolView:
    requested = store.open_of(tx, row.id)
    return view_of(
        PoolView,
        row._mapping,
        silent_seconds=max(0.0, now - row.seen_at),
        there=sum(each.granted_at is not None for each in requested),
        asked=sum(each.granted_at is None and each.give_up_at is None for each in requested),
        nodes=tuple(
            view_of(
                AskedNodeView,
                each._mapping,
                exec_id=exec_id(each.job_id) if each.job_id is not None else None,
                waits_seconds=max(0.0, now - each.asked_at) if each.granted_at is None else 0.0,
            )
            for each in requested
        ),
    )
