"""Turns rows into the frozen views of ``edt_scheduler.views``. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from edt_contract.encoding import from_json_object
from edt_contract.gang import GangCommand
from edt_contract.reports import ExitKind
from edt_scheduler.model.exactness import judge
from edt_scheduler.model.jobs import DefaultLog, exec_id, folder_sent
from edt_scheduler.model.progress import PACE, MetricPoint, eta_seconds, mean_rate
from edt_scheduler.model.speeds import MEASURING
from edt_scheduler.model.states import Intent, JobState, ResizeCause, Role, Scope, health
from edt_scheduler.settings import Settings
from edt_scheduler.store import attempts, nodes, pools, usage
from edt_scheduler.store import jobs as store
from edt_scheduler.store.queries import rows_of
from edt_scheduler.store.tables import allocations
from edt_scheduler.views import (
    AllocationView,
    EventView,
    FailureView,
    JobView,
    NodeView,
    ResizeView,
    SlotView,
    TimelineAllocation,
    TimelineResize,
    UserView,
    Waiting,
    view_of,
)

_OWN = frozenset({PACE, MEASURING})
"""What is stored beside a job's progress for the platform alone."""


def user(row: Row[Any], scope: Scope = Scope.ADMIN) -> UserView:
    """The user of this row, who shows a credential of this scope."""
    return view_of(UserView, row._mapping, role=Role(row.role), scope=scope)


def jobs(tx: Connection, settings: Settings, rows: Sequence[Row[Any]]) -> list[JobView]:
    """Views of job rows (of ``store.jobs``), in their order."""
    open_ones = select(allocations.c.job_id, func.count().label("number")).where(allocations.c.released_at.is_(None))
    query = open_ones.group_by(allocations.c.job_id)
    found = rows_of(tx, query, allocations.c.job_id, (row.id for row in rows))
    held: dict[int, int] = {each.job_id: each.number for each in found}
    going = attempts.with_live(tx, [row.id for row in rows if row.paused_at is not None])
    waiting = _waiting(tx, [row for row in rows if row.waiting])
    return [_job(settings, row, held.get(row.id, 0), waiting.get(row.id), pausing=row.id in going) for row in rows]


def _waiting(tx: Connection, rows: Sequence[Row[Any]]) -> dict[int, Waiting]:
    """Why these jobs wait. Rank and free slots change with every start, so they are not stored but computed here."""
    if not rows:
        return {}
    ranks, free = store.ranks(tx, [row.id for row in rows]), nodes.free_slots(tx)
    return {
        row.id: Waiting(row.waiting["blocking"], row.waiting["reason"], ranks.get(row.id, 0), row.waiting["need"], free)
        for row in rows
    }


def users_command(row: Row[Any]) -> str:
    """The command that a job runs in place of a main script, its words joined by spaces; "": it runs a script."""
    if row.gang is None or row.model_main:
        return ""
    return " ".join((*row.gang["command"], *row.arguments))


def _job(settings: Settings, row: Row[Any], slots: int, waiting: Waiting | None, *, pausing: bool) -> JobView:
    name = exec_id(row.id)
    directory = settings.job_directory(name)
    return view_of(
        JobView,
        row._mapping,
        exec_id=name,
        number=row.id,
        state=JobState(row.state),
        script=row.model_main,
        options=tuple((name, value) for name, value in row.options),
        folder=folder_sent(row.work_dir),
        slots=slots,
        pausing=pausing,
        progress={key: value for key, value in row.progress.items() if key not in _OWN},
        exactness=judge(store.compared(row), row.inexact, started=row.started_at is not None),
        eta_seconds=eta_seconds(row.progress.get(PACE), row.steps_total) if row.state == JobState.RUNNING else None,
        mean_samples_per_second=mean_rate(row.trained_samples, row.trained_seconds),
        resumed_from=exec_id(row.resumed_from) if row.resumed_from is not None else None,
        waiting=waiting,
        directory=directory,
        work_dir=directory / row.work_dir,
        gang=from_json_object(GangCommand, row.gang) if row.gang is not None else None,
        command=users_command(row),
        default_log=DefaultLog(row.default_log),
        max_slots=store.most_slots(row),
        sizes=tuple(row.sizes or ()),
        gpu_models=tuple(row.gpu_models or ()),
        after=tuple(exec_id(number) for number in row.after),
    )


def nodes_of(tx: Connection, rows: Iterable[Row[Any]], now: float) -> list[NodeView]:
    """Views of node rows with their slots, the jobs that hold the slots, and how busy the slots are."""
    rows = list(rows)
    slots: dict[int, list[SlotView]] = {row.id: [] for row in rows}
    found = nodes.slot_rows(tx, slots)
    held_by = {row.id: row for row in store.in_short(tx, {slot.job_id for slot in found} - {None})}
    used = usage.newest(tx, slots, now)
    named = pools.names(tx) if any(row.pool_id is not None for row in rows) else {}
    for slot in found:
        holder = held_by.get(slot.job_id)
        view = view_of(
            SlotView,
            slot._mapping,
            exec_id=exec_id(slot.job_id) if slot.job_id is not None else None,
            leaving=slot.release_asked_at is not None,
            owner_id=holder.owner_id if holder is not None else None,
            owner=holder.owner if holder is not None else None,
            is_gang=holder is not None and holder.is_gang,
            use=used.get((slot.node_id, slot.slot)),
        )
        slots[slot.node_id].append(view)
    return [
        view_of(
            NodeView,
            row._mapping,
            number=row.id,
            health=health(Intent(row.intent), lost=row.lost_at is not None),
            lease_age_seconds=max(0.0, now - row.seen_at),
            slots=tuple(slots[row.id]),
            pool=named.get(row.pool_id),
            only_for=exec_id(row.only_for) if row.only_for is not None else None,
        )
        for row in rows
    ]


def allocation(row: Row[Any]) -> AllocationView:
    """The view of a row that has its node's name."""
    kind = ExitKind(row.kind) if row.kind else None
    return view_of(AllocationView, row._mapping, allocation=row.id, exec_id=exec_id(row.job_id), kind=kind)


def allocations_in_short(rows: Iterable[Sequence[Any]]) -> tuple[TimelineAllocation, ...]:
    """The views of rows of ``allocations.between`` and ``allocations.of_numbers``."""
    return tuple(TimelineAllocation(row[0], exec_id(row[1]), *row[2:10]) for row in rows)


def resizes_in_short(rows: Iterable[Sequence[Any]]) -> tuple[TimelineResize, ...]:
    """The views of rows of ``resizes.between`` and ``resizes.of_numbers``."""
    return tuple(TimelineResize(row[0], exec_id(row[1]), *row[2:]) for row in rows)


def resize(row: Row[Any]) -> ResizeView:
    named = {"number": row.id, "exec_id": exec_id(row.job_id), "cause": ResizeCause(row.cause)}
    return view_of(ResizeView, row._mapping, **named)


def failure(row: Row[Any]) -> FailureView:
    named = {"exec_id": exec_id(row.job_id), "kind": ExitKind(row.kind), "message": row.message or None}
    return view_of(FailureView, row._mapping, **named)


def metric_point(row: Row[Any]) -> MetricPoint:
    return view_of(MetricPoint, row._mapping)


def validation_point(row: Row[Any]) -> MetricPoint:
    return view_of(MetricPoint, row._mapping, samples_per_second=None)


def event(row: Row[Any]) -> EventView:
    return view_of(EventView, row._mapping)
