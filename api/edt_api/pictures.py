"""From the scheduler's pictures to the wire's shapes. Room: api. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_json

from edt_api import schemas
from edt_api.arguments import MOST_WORKERS
from edt_api.frameworks import Runnable, shown_name
from edt_scheduler.views import (
    Course,
    FailureView,
    JobView,
    NodeView,
    SlotView,
    Timeline,
    TimelineAllocation,
    TimelineJob,
    TimelineResize,
    UseOverTime,
    UserView,
)

CLUSTER = "openedt"
"""What stands where WMLA names a namespace, an instance group, a Spark master."""


def execution(job: JobView, api_url: str) -> schemas.Exec:
    """WMLA's exec JSON: what every generation of its clients looks at, flat."""
    return schemas.Exec(
        id=job.exec_id,
        args=job.args_verbatim,
        submissionId=job.exec_id,
        creator=job.owner,
        state=schemas.ExecState(job.state.wire),
        appId=job.exec_id,
        schedulerUrl=api_url,
        modelFileOwnerName=job.owner,
        workDir=str(job.work_dir),
        appName=job.app_name,
        createTime=_iso(job.created_at),
        elastic=True,
        nameSpace=CLUSTER,
        numWorker=job.num_worker,
        framework=job.framework,
        userName=job.owner,
        sigName=CLUSTER,
        sigId=CLUSTER,
        masterURL=api_url,
        executionUserName=job.owner,
    )


def job(view: JobView) -> schemas.Job:
    return schemas.Job(
        id=view.exec_id,
        owner=view.owner,
        owner_removed=view.owner_removed,
        state=schemas.ExecState(view.state.wire),
        standing=view.standing.value,
        framework=view.framework,
        app_name=shown_name(view.framework, view.app_name, view.script, view.folder),
        args=view.args_verbatim,
        num_worker=view.num_worker,
        worker_device_num=view.worker_device_num,
        max_workers=view.num_worker * view.worker_device_num,
        max_restarts=view.max_restarts,
        restarts=view.restarts,
        created_at=view.created_at,
        started_at=view.started_at,
        finished_at=view.finished_at,
        stop_requested_at=view.stop_requested_at,
        attempts=view.fence,
        engines=view.engines,
        steps_total=view.steps_total,
        epochs=view.epochs,
        slots=view.slots,
        workers=view.workers,
        progress=progress(view.progress),
        share_done=view.share_done,
        eta_seconds=view.eta_seconds,
        message=view.message,
        digest=view.digest,
        exactness=schemas.Exactness.model_validate(view.exactness),
        checkpoint_step=view.checkpoint_step,
        seed=view.seed,
        threads=view.threads,
        waiting=schemas.Waiting.model_validate(view.waiting) if view.waiting else None,
        work_dir=str(view.work_dir),
        image=view.image,
        results_removed_at=view.results_removed_at,
        results_days=view.results_days,
        results_removed=results_removed(view),
    )


def results_removed(view: JobView) -> str | None:
    """That a job's files are gone because of their age, since when (a day in UTC) and why; None: they are not."""
    if view.results_removed_at is None:
        return None
    day, days = datetime.datetime.fromtimestamp(view.results_removed_at, datetime.UTC).date(), view.results_days or 0.0
    kept = f"{days:g} day{'' if days == 1 else 's'}"
    return (
        f"the results, checkpoints and logs of {view.exec_id} were removed on {day}, "
        f"{kept} after its end, as the administrator set"
    )


def progress(told: Mapping[str, Any]) -> schemas.Progress:
    """What is known by these names and is of these kinds; a script's report may say anything."""
    shown: dict[str, Any] = {}
    for name in ("step", "steps_total", "epoch", "epochs", "workers"):
        if name in told:
            shown[name] = told[name] if isinstance(told[name], int) else None
    for name in ("loss", "samples_per_second"):
        if name in told:
            shown[name] = _number(told[name])
    if isinstance(told.get("metrics"), Mapping):
        shown["metrics"] = {str(name): _number(value) for name, value in told["metrics"].items()}
    return cast(schemas.Progress, shown)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def metrics(course: Course) -> schemas.Metrics:
    """Points as columns; a metric that some points lack is None there."""
    names = {name: None for point in course.points for name in point.metrics}
    return schemas.Metrics(
        step=[point.step for point in course.points],
        time=[point.time for point in course.points],
        epoch=[point.epoch for point in course.points],
        workers=[point.workers for point in course.points],
        loss=[point.loss for point in course.points],
        samples_per_second=[point.samples_per_second for point in course.points],
        metrics={name: [point.metrics.get(name) for point in course.points] for name in names},
        total=course.total,
    )


def framework(each: Runnable) -> schemas.Framework:
    """An entry of WMLA's catalogue. How many workers a job may have, the job says and no framework."""
    return schemas.Framework(
        name=each.name,
        description=each.description,
        desc=[each.description],
        deployMode="cluster",
        hasTask0="",
        execMode="distributed",
        appName=each.app_name,
        numWorkers=1,
        maxWorkers=MOST_WORKERS,
        workerMemory="4G",
        frameworkCmdGenerator="",
        backend=each.backend,
        prebuiltModelMain="",
        prebuiltModelDir="",
        frameworkVersion="",
        exports={},
        numPs=0,
        distributeStrategy="",
    )


def node(view: NodeView, viewer: UserView) -> schemas.Node:
    return schemas.Node(
        name=view.name,
        host=view.host,
        cores=view.cores,
        health=view.health,
        health_since=view.lost_at,
        launcher=view.launcher,
        registered_at=view.registered_at,
        seen_at=view.seen_at,
        lease_age_seconds=view.lease_age_seconds,
        slots=[_slot(each, viewer) for each in view.slots],
    )


def _slot(view: SlotView, viewer: UserView) -> schemas.Slot:
    use = view.use
    return schemas.Slot(
        slot=view.slot,
        device=view.device,
        label=view.label,
        exec_id=view.exec_id,
        busy=view.exec_id is not None,
        leaving=view.leaving,
        owner=view.owner if view.owner_id is not None and may_see(viewer, view.owner_id) else None,
        utilisation=use.utilisation if use else None,
        memory_bytes=use.memory_bytes if use else None,
        memory_total_bytes=use.memory_total_bytes if use else None,
        power_watts=use.power_watts if use else None,
        temperature_c=use.temperature_c if use else None,
    )


def slot_usage(points: Sequence[UseOverTime]) -> schemas.SlotUsage:
    return schemas.SlotUsage(
        time=[point.time for point in points],
        utilisation=[point.utilisation for point in points],
        memory_bytes=[point.memory_bytes for point in points],
        power_watts=[point.power_watts for point in points],
        temperature_c=[point.temperature_c for point in points],
    )


def may_see(viewer: UserView, owner_id: int) -> bool:
    """Whether a user is told more of a job than that it holds slots."""
    return viewer.is_admin or viewer.id == owner_id


def timeline(view: Timeline, viewer: UserView) -> bytes:
    """``schemas.Timeline`` as JSON. Of its tens of thousands of bars no objects are made, for these take seconds."""
    whole = {
        "now": view.now,
        "since": view.since,
        "until": view.until,
        "earliest": view.earliest,
        "nodes": [node(each, viewer) for each in view.nodes],
        "jobs": {name: timeline_job(each, viewer) for name, each in view.jobs.items()},
        "allocations": [_bar(each) for each in view.allocations],
        "resizes": [_mark(each, viewer) for each in view.resizes],
        "failures": [timeline_failure(each, viewer) for each in view.failures],
    }
    return to_json(whole)


def timeline_job(view: TimelineJob, viewer: UserView) -> schemas.TimelineJob:
    seen = may_see(viewer, view.owner_id)
    state = schemas.ExecState(view.state.wire)
    return schemas.TimelineJob(
        state=state,
        owner=view.owner if seen else None,
        app_name=shown_name(view.framework, view.app_name, view.script, view.folder) if seen else None,
        removed=view.removed,
    )


def timeline_allocation(view: TimelineAllocation) -> schemas.TimelineAllocation:
    return schemas.TimelineAllocation.model_validate(_bar(view))


def _bar(view: TimelineAllocation) -> dict[str, Any]:
    shown = view._asdict()
    del shown["fence"]
    return shown


def timeline_resize(view: TimelineResize, viewer: UserView) -> schemas.TimelineResize:
    return schemas.TimelineResize.model_validate(_mark(view, viewer))


def _mark(view: TimelineResize, viewer: UserView) -> dict[str, Any]:
    shown = view._asdict()
    shown["time"] = shown.pop("decided_at")
    if not may_see(viewer, shown.pop("owner_id")):
        shown["detail"] = None
    return shown


def timeline_failure(view: FailureView, viewer: UserView) -> schemas.TimelineFailure:
    return schemas.TimelineFailure(
        exec_id=view.exec_id,
        node=view.node,
        slot=view.slot,
        time=view.time,
        kind=view.kind,
        message=view.message if may_see(viewer, view.owner_id) else None,
    )


def user(view: UserView) -> schemas.User:
    return schemas.User(name=view.name, role=schemas.RoleName(view.role.value), created_at=view.created_at)


def _iso(seconds: float) -> str:
    """``2026-11-21T12:00:00Z``, the only form that ``dlicmd`` reads."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
