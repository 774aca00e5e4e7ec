"""Rows made into the frozen pictures of ``views``. Room: scheduler, store. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from edt_runner.contract import ExitKind
from edt_scheduler.exactness import judge
from edt_scheduler.jobs import JobState, exec_id, folder_sent
from edt_scheduler.nodes import Intent, health
from edt_scheduler.pace import PACE, eta_seconds
from edt_scheduler.settings import Settings
from edt_scheduler.store import jobs as store
from edt_scheduler.store import nodes, usage
from edt_scheduler.store.chunks import chunks
from edt_scheduler.store.tables import allocations
from edt_scheduler.views import (
    AllocationView,
    EventView,
    FailureView,
    JobView,
    MetricPoint,
    NodeView,
    ResizeCause,
    ResizeView,
    Role,
    SlotView,
    TimelineAllocation,
    TimelineResize,
    UserView,
    Waiting,
)


def user(row: Row[Any]) -> UserView:
    return UserView(row.id, row.name, Role(row.role), row.password_hash, row.created_at)


def jobs(tx: Connection, settings: Settings, rows: Sequence[Row[Any]]) -> list[JobView]:
    """Pictures of job rows (of ``store.jobs``), in their order."""
    open_ones = select(allocations.c.job_id, func.count()).where(allocations.c.released_at.is_(None))
    query = open_ones.group_by(allocations.c.job_id)
    held: Counter[int] = Counter()
    for chunk in chunks(row.id for row in rows):
        held.update(
            {job_id: int(number) for job_id, number in tx.execute(query.where(allocations.c.job_id.in_(chunk)))}
        )
    return [_job(settings, row, held[row.id]) for row in rows]


def _job(settings: Settings, row: Row[Any], slots: int) -> JobView:
    name = exec_id(row.id)
    directory = settings.job_directory(name)
    return JobView(
        exec_id=name,
        number=row.id,
        owner_id=row.owner_id,
        owner=row.owner,
        owner_removed=row.owner_removed,
        state=JobState(row.state),
        framework=row.framework,
        app_name=row.app_name,
        script=row.model_main,
        folder=folder_sent(row.work_dir),
        args_verbatim=row.args_verbatim,
        num_worker=row.num_worker,
        worker_device_num=row.worker_device_num,
        max_restarts=row.max_restarts,
        restarts=row.restarts,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        stop_requested_at=row.stop_requested_at,
        fence=row.fence,
        engines=row.engines,
        steps_total=row.steps_total,
        epochs=row.epochs,
        slots=slots,
        workers=row.workers,
        progress={key: value for key, value in row.progress.items() if key != PACE},
        message=row.message,
        digest=row.digest,
        exactness=judge(store.compared(row), row.inexact, started=row.started_at is not None),
        checkpoint_step=row.checkpoint_step,
        seed=row.seed,
        threads=row.threads,
        image=row.image,
        eta_seconds=eta_seconds(row.progress.get(PACE), row.steps_total) if row.state == JobState.RUNNING else None,
        waiting=Waiting(**row.waiting) if row.waiting else None,
        directory=directory,
        work_dir=directory / row.work_dir,
        results_removed_at=row.results_removed_at,
        results_days=row.results_days,
    )


def nodes_of(tx: Connection, rows: Iterable[Row[Any]], now: float) -> list[NodeView]:
    """Pictures of node rows with their slots, who holds these and how busy they are."""
    rows = list(rows)
    slots: dict[int, list[SlotView]] = {row.id: [] for row in rows}
    found = nodes.slot_rows(tx, slots)
    owners = {row.id: (row.owner_id, row.owner) for row in store.in_short(tx, {slot.job_id for slot in found} - {None})}
    used = usage.newest(tx, slots, now)
    for slot in found:
        holder = exec_id(slot.job_id) if slot.job_id is not None else None
        owner_id, owner = owners.get(slot.job_id, (None, None))
        view = SlotView(
            slot=slot.slot,
            device=slot.device,
            label=slot.label,
            exec_id=holder,
            leaving=slot.release_asked_at is not None,
            owner_id=owner_id,
            owner=owner,
            use=used.get((slot.node_id, slot.slot)),
        )
        slots[slot.node_id].append(view)
    return [
        NodeView(
            number=row.id,
            name=row.name,
            host=row.host,
            cores=row.cores,
            health=health(Intent(row.intent), lost=row.lost_at is not None),
            boot_id=row.boot_id,
            incarnation=row.incarnation,
            registered_at=row.registered_at,
            seen_at=row.seen_at,
            lease_age_seconds=max(0.0, now - row.seen_at),
            lost_at=row.lost_at,
            launcher=row.launcher,
            slots=tuple(slots[row.id]),
        )
        for row in rows
    ]


def allocation(row: Row[Any]) -> AllocationView:
    """Of a row with its node's name."""
    return AllocationView(
        allocation=row.id,
        exec_id=exec_id(row.job_id),
        fence=row.fence,
        node=row.node,
        slot=row.slot,
        decided_at=row.decided_at,
        started_at=row.started_at,
        joined_at=row.joined_at,
        counted_at=row.counted_at,
        release_asked_at=row.release_asked_at,
        released_at=row.released_at,
        kind=ExitKind(row.kind) if row.kind else None,
    )


def allocations_in_short(rows: Iterable[Sequence[Any]]) -> tuple[TimelineAllocation, ...]:
    """Of rows of ``allocations.between`` and ``of_numbers``."""
    return tuple(TimelineAllocation(row[0], exec_id(row[1]), *row[2:10]) for row in rows)


def resizes_in_short(rows: Iterable[Sequence[Any]]) -> tuple[TimelineResize, ...]:
    """Of rows of ``resizes.between`` and ``of_numbers``."""
    return tuple(TimelineResize(row[0], exec_id(row[1]), *row[2:]) for row in rows)


def resize(row: Row[Any]) -> ResizeView:
    values = row._asdict()
    number, job_id = values.pop("id"), values.pop("job_id")
    cause = ResizeCause(values.pop("cause"))
    return ResizeView(number=number, exec_id=exec_id(job_id), cause=cause, **values)


def failure(row: Row[Any]) -> FailureView:
    kind = ExitKind(row.kind)
    return FailureView(exec_id(row.job_id), row.owner_id, row.node, row.slot, row.time, kind, row.message or None)


def metric_point(row: Row[Any]) -> MetricPoint:
    return MetricPoint(row.step, row.time, row.epoch, row.workers, row.loss, row.samples_per_second, row.metrics)


def event(row: Row[Any]) -> EventView:
    return EventView(row.seq, row.time, row.kind, row.fence, row.message, row.data)
