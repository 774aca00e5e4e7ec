"""Turns database rows into the planner's state. Reads only. Next: reconcile.py, which applies the plan."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.home.secret_key import Keys
from edt_scheduler.model.jobs import exec_id, paused_by
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Intent, health
from edt_scheduler.plan.state import Job, Node, Phase, State
from edt_scheduler.store import allocations, attempts, environs, jobs, nodes, resizes


@dataclass(frozen=True)
class Rows:
    """All database rows on which a decision depends. Equal rows give equal decisions, apart from the time."""

    nodes: Sequence[Row[Any]]
    slots: Sequence[Row[Any]]
    jobs: Sequence[Row[Any]]
    """Jobs that wait or run, in submit order."""
    attempts: Sequence[Row[Any]]
    """Live attempts."""
    supervisors: Sequence[Row[Any]]
    """Supervisors of live attempts."""
    allocations: Sequence[Row[Any]]
    """Open allocations, oldest first."""
    resizes: Mapping[int, float]
    """Job number to the time of its newest resize."""
    locked: Mapping[int, str]
    """Job number to why its environment cannot be opened."""


@dataclass(frozen=True)
class Snapshot:
    """The planner's state, and the rows from which it was made."""

    state: State
    jobs: Mapping[str, Row[Any]]
    nodes: Mapping[str, Row[Any]]
    held: Mapping[str, list[Row[Any]]]
    """Job to the open allocations of its live attempt that were not asked back, oldest first."""
    slots: Mapping[int, list[Row[Any]]]
    """Node to its present slots."""

    @classmethod
    def of(cls, rows: Rows, now: float) -> Snapshot:
        """Make the snapshot of these rows at the time ``now``. Pure."""
        node_rows = {row.id: row for row in rows.nodes}
        live = {row.job_id: row for row in rows.attempts}
        open_rows: dict[int, list[Row[Any]]] = defaultdict(list)
        for row in rows.allocations:
            if row.job_id in live and row.fence == live[row.job_id].fence:
                open_rows[row.job_id].append(row)
        going: dict[int, set[int]] = defaultdict(set)
        for row in rows.supervisors:
            kept = any(a.node_id == row.node_id and a.release_asked_at is None for a in open_rows[row.job_id])
            if not kept and not attempts.can_open_again(row):
                going[row.job_id].add(row.node_id)
        slots: dict[int, list[Row[Any]]] = defaultdict(list)
        for row in rows.slots:
            if row.present:
                slots[row.node_id].append(row)
        state = State(
            now=now,
            nodes=tuple(_node(row, slots[row.id]) for row in node_rows.values()),
            jobs=tuple(
                _job(row, live.get(row.id), open_rows[row.id], going[row.id], node_rows, rows) for row in rows.jobs
            ),
        )
        held = {exec_id(row.id): [a for a in open_rows[row.id] if a.release_asked_at is None] for row in rows.jobs}
        return cls(
            state=state,
            jobs={exec_id(row.id): row for row in rows.jobs},
            nodes={row.name: row for row in node_rows.values()},
            held=held,
            slots=slots,
        )

    @property
    def draining(self) -> frozenset[int]:
        """Numbers of the nodes that are being drained."""
        return frozenset(row.id for row in self.nodes.values() if row.intent == Intent.DRAINING)


def read(tx: Connection, keys: Keys) -> Rows:
    """Read the rows that the next decision depends on.

    Args:
        tx: one consistent read.
        keys: the secret keys. If none of them opens a job's environment, the job does not start.
    """
    return Rows(
        nodes=nodes.for_the_plan(tx),
        slots=nodes.slot_rows(tx),
        jobs=jobs.for_the_plan(tx),
        attempts=attempts.every_live(tx),
        supervisors=attempts.every_live_supervisor(tx),
        allocations=allocations.every_open(tx),
        resizes=resizes.newest(tx),
        locked={job: keys.missing(key_id) for job, key_id in environs.locked(tx, keys.ids).items()},
    )


def is_free(slot: Row[Any]) -> bool:
    """Whether an engine can start on this slot, which its node has now."""
    return slot.allocation is None and slot.problem is None


def _node(row: Row[Any], slots: list[Row[Any]]) -> Node:
    free = sum(is_free(slot) for slot in slots)
    return Node(
        id=row.name,
        slots=free + sum(slot.allocation is not None for slot in slots),
        free=free,
        health=health(Intent(row.intent), lost=row.lost_at is not None),
        containers=row.launcher.startswith("docker"),
        fixed=row.launcher == "docker-fixed",
        alone=row.alone,
        device=Device.of_slot(slots[0].device) if slots else Device.CPU,
    )


def _job(
    row: Row[Any],
    attempt: Row[Any] | None,
    open_rows: list[Row[Any]],
    going: set[int],
    node_rows: Mapping[int, Row[Any]],
    rows: Rows,
) -> Job:
    held = Counter(node_rows[a.node_id].name for a in open_rows if a.release_asked_at is None)
    leaving = Counter(node_rows[a.node_id].name for a in open_rows if a.release_asked_at is not None)
    if attempt is None:
        phase = Phase.WAITING
    elif attempt.kind or (attempt.trained_at and not row.is_gang) or row.stop_requested_at or not held:
        phase = Phase.ENDING
    else:
        phase = Phase.RUNNING
    return Job(
        id=exec_id(row.id),
        submit=row.id,
        max=row.num_worker * row.worker_device_num,
        phase=phase,
        engines=row.engines,
        alloc=dict(held),
        leaving=dict(leaving),
        head_node=node_rows[attempt.head_node_id].name if attempt is not None else None,
        avoid=frozenset(node_rows[node].name for node in going),
        not_before=math.inf
        if row.fence_due is not None or row.id in rows.locked or row.paused_at is not None
        else row.not_before,
        paused=paused_by(row.paused_by) if row.paused_at is not None else None,
        locked=rows.locked.get(row.id),
        cap=row.cap,
        cap_until=row.cap_until,
        image=row.image,
        device=Device(row.device) if row.device is not None else None,
        last_resize=rows.resizes.get(row.id),
        gang=row.is_gang,
        unit=row.worker_device_num if row.is_gang else 1,
    )
