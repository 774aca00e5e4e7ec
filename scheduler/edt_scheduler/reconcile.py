"""From snapshot to doorbells: look, plan, apply in one guarded transaction, ring. Room: scheduler.

``look`` may be called at any time, by whoever believes to be the scheduler, as often as like. It reads a snapshot
and plans. Only if there is something to do it takes the writer's lock, reads and plans again, and applies that:
what it writes fits the state it writes to, so a stale leader does no harm. A plan already applied is its own
fix-point: the next look does nothing.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.contract import ExitKind
from edt_scheduler import lifecycle
from edt_scheduler.house import House
from edt_scheduler.jobs import JobState, exec_id
from edt_scheduler.nodes import Intent, health
from edt_scheduler.plan import Action, Explanation, Job, Node, Phase, Plan, State, Verb, home_of, plan
from edt_scheduler.store import allocations, attempts, jobs, nodes, resizes
from edt_scheduler.views import ResizeCause, Waiting

log = logging.getLogger("edt.scheduler")


@dataclass(frozen=True)
class _Picture:
    """The planner's state, and the rows it was made of."""

    state: State
    jobs: Mapping[str, Row[Any]]
    nodes: Mapping[str, Row[Any]]
    held: Mapping[str, list[Row[Any]]]
    """Job to its live attempt's open allocations that were not asked back, oldest first."""
    slots: Mapping[int, list[Row[Any]]]
    """Node to its present slots."""

    @property
    def draining(self) -> frozenset[int]:
        return frozenset(row.id for row in self.nodes.values() if row.intent == Intent.DRAINING)


def look(house: House, lost: Mapping[int, int] | None = None) -> bool:
    """Bring what is decided up to what is the case; True: something was written.

    ``lost``: nodes whose lease has run out, each with the counter at which it was last heard from.
    """
    with house.database.snapshot() as tx:
        picture = _read(tx, house.clock())
    if not lost and not _due(picture, plan(picture.state)):
        return False
    with house.database.transaction() as tx:
        now = house.clock()
        for node_id, counter in (lost or {}).items():
            _lose(tx, node_id, counter, now)
        picture = _read(tx, now)
        for row in picture.jobs.values():
            if JobState(row.state) is JobState.SUBMITTED:
                jobs.move(tx, row.id, JobState.PENDING, "waits for slots", now)
        decided = plan(picture.state)
        for action in decided.actions:
            _apply(tx, picture, action, decided.alloc[action.job], now)
        for name, explanation in decided.explain.items():
            _explain(tx, picture.jobs[name], explanation, now)
    house.doorbells.ring()
    for action in decided.actions:
        log.info("%s: %s, %d → %d slots, %s", action.job, action.verb, action.before, action.after, action.reason)
    return True


def _due(picture: _Picture, decided: Plan) -> bool:
    """Whether applying this plan would write anything."""
    if decided.actions:
        return True
    return any(
        JobState(row.state) is JobState.SUBMITTED or row.waiting != _waiting(decided.explain[name])
        for name, row in picture.jobs.items()
    )


def _read(tx: Connection, now: float) -> _Picture:
    node_rows = {row.id: row for row in nodes.every(tx)}
    live = {row.job_id: row for row in attempts.every_live(tx)}
    open_rows: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in allocations.every_open(tx):
        if row.job_id in live and row.fence == live[row.job_id].fence:
            open_rows[row.job_id].append(row)
    going: dict[int, set[int]] = defaultdict(set)
    for row in attempts.every_live_supervisor(tx):
        kept = any(a.node_id == row.node_id and a.release_asked_at is None for a in open_rows[row.job_id])
        if row.handed_at is not None and not kept and row.kind != ExitKind.LEFT:
            going[row.job_id].add(row.node_id)
    slots: dict[int, list[Row[Any]]] = defaultdict(list)
    for row in nodes.slot_rows(tx):
        if row.present:
            slots[row.node_id].append(row)
    counts = resizes.counts(tx)
    rows = jobs.active(tx)
    state = State(
        now=now,
        nodes=tuple(_node(row, slots[row.id]) for row in node_rows.values()),
        jobs=tuple(
            _job(row, live.get(row.id), open_rows[row.id], going[row.id], node_rows, counts.get(row.id)) for row in rows
        ),
    )
    held = {exec_id(row.id): [a for a in open_rows[row.id] if a.release_asked_at is None] for row in rows}
    return _Picture(
        state=state,
        jobs={exec_id(row.id): row for row in rows},
        nodes={row.name: row for row in node_rows.values()},
        held=held,
        slots=slots,
    )


def _node(row: Row[Any], slots: list[Row[Any]]) -> Node:
    return Node(
        id=row.name,
        slots=len(slots),
        free=sum(slot.allocation is None for slot in slots),
        health=health(Intent(row.intent), lost=row.lost_at is not None),
    )


def _job(
    row: Row[Any],
    attempt: Row[Any] | None,
    open_rows: list[Row[Any]],
    going: set[int],
    node_rows: Mapping[int, Row[Any]],
    resized: tuple[int, float] | None,
) -> Job:
    held = Counter(node_rows[a.node_id].name for a in open_rows if a.release_asked_at is None)
    leaving = Counter(node_rows[a.node_id].name for a in open_rows if a.release_asked_at is not None)
    if attempt is None:
        phase = Phase.WAITING
    elif attempt.kind or attempt.trained_at or row.stop_requested_at or not held:
        phase = Phase.ENDING
    else:
        phase = Phase.RUNNING
    return Job(
        id=exec_id(row.id),
        user=row.owner,
        submit=row.id,
        max=row.num_worker * row.worker_device_num,
        phase=phase,
        engines=row.engines,
        alloc=dict(held),
        leaving=dict(leaving),
        home=node_rows[attempt.home_node_id].name if attempt is not None else None,
        avoid=frozenset(node_rows[node].name for node in going),
        not_before=row.not_before,
        total_work=row.steps_total,
        done_work=int(row.progress.get("step") or 0),
        resizes=resized[0] if resized else 0,
        last_resize=resized[1] if resized else None,
    )


def _lose(tx: Connection, node_id: int, counter: int, now: float) -> None:
    """A node's lease has run out: what works on it is fenced. Its slots stay booked until it comes back.

    What it was given and never fetched is taken back: an attempt does not end for a guest that it has not had.
    """
    if not nodes.lose(tx, node_id, counter, now):
        return
    message = f"node {nodes.name(tx, node_id)} was not heard from"
    log.warning("%s", message)
    for row in attempts.open_on(tx, node_id):
        attempt = attempts.find(tx, row.job_id, row.fence)
        if row.handed_at is None and attempt is not None and attempt.home_node_id != node_id:
            held = allocations.open_of(tx, row.job_id, row.fence, node_id)
            lifecycle.take_back(tx, row.job_id, row.fence, held, ResizeCause.NODE_LOST, message, now)
            continue
        lifecycle.end_attempt(tx, row.job_id, row.fence, ExitKind.LOST, message, None, now)
        lifecycle.settle(tx, row.job_id, now)


def _apply(tx: Connection, picture: _Picture, action: Action, target: Mapping[str, int], now: float) -> None:
    """Carry out one action: take back first, then give."""
    job, held = picture.jobs[action.job], picture.held[action.job]
    here = Counter(row.node_id for row in held)
    there = {picture.nodes[name].id: number for name, number in target.items()}
    asked = [row for node in here for row in _leavers(held, node, here[node] - there.get(node, 0), picture.slots[node])]
    if asked:
        drained = any(row.node_id in picture.draining for row in asked)
        cause = ResizeCause.DRAIN if drained else ResizeCause.ROOM
        lifecycle.take_back(tx, job.id, job.fence, asked, cause, action.reason, now)
        lifecycle.settle(tx, job.id, now)
    given = {node: number - here[node] for node, number in there.items() if number > here[node]}
    if given:
        _give(tx, picture, action, given, len(held) - len(asked), now)


def _leavers(held: list[Row[Any]], node_id: int, number: int, slots: list[Row[Any]]) -> list[Row[Any]]:
    """Which engines leave a node: those on slots it no longer has, then the youngest."""
    present = {slot.slot for slot in slots}
    rows = [row for row in held if row.node_id == node_id]
    return sorted(rows, key=lambda row: (row.slot in present, -row.id))[: max(0, number)]


def _give(tx: Connection, picture: _Picture, action: Action, given: Mapping[int, int], before: int, now: float) -> None:
    """Book slots for a job, in a new attempt if it has none."""
    job = picture.jobs[action.job]
    names = {row.id: name for name, row in picture.nodes.items()}
    booked = [
        (node_id, slot.slot)
        for node_id, number in given.items()
        for slot in [s for s in nodes.slot_rows(tx, [node_id]) if s.present and s.allocation is None][:number]
    ]
    if action.verb is Verb.START:
        home = picture.nodes[home_of({names[node_id]: number for node_id, number in given.items()})].id
        fence = attempts.add(tx, job.id, home, secrets.token_hex(16), now)
        cause, detail = (
            (ResizeCause.SUBMIT, "first attempt") if fence == 1 else (ResizeCause.RESTART, f"attempt {fence}")
        )
    else:
        fence = job.fence
        cause, detail = _cause_of_growth(tx, picture, action, booked)
    sizes = (before, before + len(booked))
    resize_id = resizes.add(tx, job.id, fence, cause, detail, sizes, given, now)
    for node_id in given:
        attempts.open_supervisor(tx, job.id, fence, node_id)
    for node_id, slot in booked:
        allocations.add(tx, job.id, fence, node_id, slot, resize_id, now)
    message = f"{sizes[0]} → {sizes[1]} slots: {detail}"
    jobs.record(tx, job.id, "resize", message, {"cause": cause, "from": sizes[0], "to": sizes[1]}, now)
    lifecycle.wake_nodes(tx, given, now, resize_id)


def _cause_of_growth(
    tx: Connection, picture: _Picture, action: Action, booked: list[tuple[int, str]]
) -> tuple[ResizeCause, str]:
    """Why a running job can grow now: whoever gave the slots back last, or else because E is known."""
    job = picture.jobs[action.job]
    known = job.engines_at or 0.0
    resized = next(item.last_resize for item in picture.state.jobs if item.id == action.job) or 0.0
    holder = allocations.last_holder(tx, booked)
    if holder is not None and holder.released_at >= max(known, resized):
        name = exec_id(holder.job_id)
        if JobState(holder.state).terminal:
            return ResizeCause.JOB_ENDED, f"{name} is {holder.state}"
        if holder.kind == ExitKind.FINISHED:
            return ResizeCause.JOB_ENDED, f"{name} has finished training"
        return ResizeCause.SLOTS_FREE, f"{name} gave slots back"
    if resized <= known:
        return ResizeCause.ENGINES_KNOWN, f"its script works with up to {job.engines} engines"
    return ResizeCause.SLOTS_FREE, action.reason


def _waiting(explanation: Explanation) -> dict[str, Any] | None:
    """The explanation as it is stored with the job; None for one that does not wait."""
    if explanation.blocking is None:
        return None
    return asdict(
        Waiting(explanation.blocking, explanation.reason, explanation.rank, explanation.need, explanation.free)
    )


def _explain(tx: Connection, job: Row[Any], explanation: Explanation, now: float) -> None:
    """Store why a job waits; a new kind of obstacle is an event of its history."""
    waiting = _waiting(explanation)
    if waiting == job.waiting:
        return
    jobs.change(tx, job.id, waiting=waiting)
    if waiting and waiting["blocking"] != (job.waiting or {}).get("blocking"):
        jobs.record(tx, job.id, "waiting", waiting["reason"], waiting, now)
