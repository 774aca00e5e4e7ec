"""Turns the scheduler's views into the schemas of answers. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import to_json

from edt_api.schemas import cluster, jobs
from edt_api.submissions.frameworks import PREBUILT, PREBUILT_FOLDER, shown_name
from edt_api.submissions.options import has_effect
from edt_contract.gang import Rendezvous
from edt_scheduler.model.catalogue import MOST_WORKERS
from edt_scheduler.model.progress import Curve, MetricPoint
from edt_scheduler.views import (
    ApiTokenView,
    Changes,
    EngineView,
    FailureView,
    FrameworkView,
    JobView,
    NodeView,
    SlotUse,
    SlotView,
    Timeline,
    TimelineAllocation,
    TimelineJob,
    TimelineResize,
    UseOverTime,
    UserView,
)

CLUSTER = "openedt"
"""Value of the fields in which WMLA names a namespace, an instance group or a Spark master."""


_NOT_ASKED = jobs.Exactness(
    verdict="not-applicable",
    reason="It is not elastic: what its processes compute is its script's own matter.",
    comparisons=0,
    compared_step=None,
)
"""Of all gangs."""


def execution(job: JobView, api_url: str) -> jobs.Exec:
    """Return WMLA's JSON of a job, flat, with the fields that all versions of WMLA's clients read."""
    return jobs.Exec(
        id=job.exec_id,
        args=job.args_verbatim,
        submissionId=job.exec_id,
        creator=job.owner,
        state=jobs.ExecState(job.state.wire),
        appId=job.exec_id,
        schedulerUrl=api_url,
        modelFileOwnerName=job.owner,
        workDir=str(job.work_dir),
        appName=job.app_name,
        createTime=iso(job.created_at),
        elastic=job.gang is None,
        nameSpace=CLUSTER,
        numWorker=job.num_worker,
        framework=job.framework,
        userName=job.owner,
        sigName=CLUSTER,
        sigId=CLUSTER,
        masterURL=api_url,
        executionUserName=job.owner,
    )


def job(view: JobView) -> jobs.Job:
    return jobs.Job.model_validate(
        vars(view)
        | {
            "id": view.exec_id,
            "state": view.state.wire,
            "status": view.status.value,
            "app_name": shown_name(view.framework, view.app_name, view.script, view.folder, view.command),
            "args": view.args_verbatim,
            "options": options(view.options),
            "kind": kind(is_gang=view.gang is not None),
            "processes": view.ranks,
            "exactness": view.exactness if view.gang is None else _NOT_ASKED,
            "max_workers": view.max_slots,
            "min_workers": view.min_slots if view.gang is None else view.max_slots,
            "attempts": view.fence,
            "progress": progress(view.progress),
            "efficiency": view.efficiency,
            "share_done": view.share_done,
            "kept": view.kept,
            "ended_early": view.ended_early,
            "main_metric": _main_metric(view.main_metric),
            "work_dir": str(view.work_dir),
            "results_removed": results_removed(view),
        }
    )


def _main_metric(found: tuple[str, float | None] | None) -> jobs.MainMetric | None:
    return jobs.MainMetric(name=found[0], value=_number(found[1])) if found is not None else None


def kind(*, is_gang: bool) -> jobs.JobKind:
    return jobs.JobKind.GANG if is_gang else jobs.JobKind.ELASTIC


def rank(engine: EngineView) -> jobs.Rank:
    """Return one process of a gang."""
    assert engine.rank is not None  # the caller has looked
    held = engine.held
    return jobs.Rank(
        rank=engine.rank,
        fence=held.fence,
        node=held.node,
        slots=[held.slot, *engine.others],
        started_at=held.started_at,
        ended_at=held.released_at,
        kind=held.kind,
    )


def options(given: Iterable[tuple[str, str]]) -> list[jobs.JobOption]:
    """Return the options with all values of each, in the order in which each was given first."""
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    return [jobs.JobOption(name=name, values=each, effect=has_effect(name)) for name, each in values.items()]


def results_removed(view: JobView) -> str | None:
    """Return the sentence that names the day (UTC) on which a job's files were removed, and the reason: their age.

    Returns:
        The sentence; None if the files were not removed.
    """
    if view.results_removed_at is None:
        return None
    day, days = datetime.datetime.fromtimestamp(view.results_removed_at, datetime.UTC).date(), view.results_days or 0.0
    kept = f"{days:g} day{'' if days == 1 else 's'}"
    return (
        f"the results, checkpoints and logs of {view.exec_id} were removed on {day}, "
        f"{kept} after its end, as the administrator set"
    )


def progress(report: Mapping[str, Any]) -> jobs.Progress:
    """Return the known fields of a report, if their values have the right types. A script may report anything."""
    shown: dict[str, Any] = {}
    for name in ("step", "steps_total", "epoch", "epochs", "workers"):
        if name in report:
            shown[name] = report[name] if isinstance(report[name], int) else None
    for name in ("loss", "samples_per_second"):
        if name in report:
            shown[name] = _number(report[name])
    if isinstance(report.get("metrics"), Mapping):
        shown["metrics"] = {str(name): _number(value) for name, value in report["metrics"].items()}
    return cast(jobs.Progress, shown)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def metrics(curve: Curve) -> jobs.Metrics:
    """Return the points of a curve as columns. A metric that a point lacks is None there."""
    return jobs.Metrics(
        **_columns(curve.points, "step", "time", "epoch", "workers", "loss", "samples_per_second"),
        metrics=_by_name(curve.points),
        total=curve.total,
        validation=jobs.ValidationMetrics(
            **_columns(curve.validations, "step", "time", "epoch"),
            metrics=_by_name(curve.validations),
            total=curve.validations_total,
        ),
    )


def _by_name(points: Sequence[MetricPoint]) -> dict[str, list[float | None]]:
    names = {name: None for point in points for name in point.metrics}
    return {name: [point.metrics.get(name) for point in points] for name in names}


def _columns(points: Sequence[object], *names: str) -> dict[str, list[Any]]:
    return {name: [getattr(point, name) for point in points] for name in names}


def framework(view: FrameworkView) -> jobs.Framework:
    """Return an entry of the catalogue in WMLA's form, with some fields of ours."""
    entry = view.entry
    prebuilt = list(PREBUILT.get(entry.name, {}).values())
    return jobs.Framework(
        name=entry.name,
        description=entry.description,
        desc=[entry.description],
        deployMode="cluster",
        hasTask0="",
        execMode="single" if entry.max_workers == 1 else "distributed",
        appName=entry.app_name,
        numWorkers=1,
        maxWorkers=entry.max_workers or MOST_WORKERS,
        workerMemory=entry.worker_memory,
        frameworkCmdGenerator="",
        backend=entry.backend,
        prebuiltModelMain=prebuilt[0].script if prebuilt else "",
        prebuiltModelDir=PREBUILT_FOLDER if prebuilt else "",
        frameworkVersion="",
        exports=dict(entry.environ),
        numPs=0,
        distributeStrategy="MultiWorkerMirroredStrategy" if Rendezvous.TENSORFLOW in entry.rendezvous else "",
        elastic=entry.elastic,
        processes="" if entry.elastic else entry.processes,
        command=list(entry.command),
        addedBy=view.added_by,
    )


def node(view: NodeView, viewer: UserView) -> cluster.Node:
    slots = [_slot(each, viewer) for each in view.slots]
    return cluster.Node.model_validate(vars(view) | {"health_since": view.lost_at, "slots": slots})


def _slot(view: SlotView, viewer: UserView) -> cluster.Slot:
    seen = view.owner_id is not None and may_see(viewer, view.owner_id)
    use = view.use or SlotUse(view.slot)
    return cluster.Slot.model_validate(
        vars(view)
        | vars(use)
        | {
            "problem": view.problem,
            "memory_total_bytes": use.memory_total_bytes or view.memory_total_bytes,
            "foreign_processes": [vars(each) for each in use.foreign_processes],
            "busy": view.exec_id is not None,
            "owner": view.owner if seen else None,
            "kind": kind(is_gang=view.is_gang) if view.exec_id is not None else None,
        }
    )


def slot_usage(points: Sequence[UseOverTime]) -> cluster.SlotUsage:
    return cluster.SlotUsage(**_columns(points, *cluster.SlotUsage.model_fields))


def api_token(view: ApiTokenView) -> cluster.ApiToken:
    scopes = list(cluster.ScopeName)
    return cluster.ApiToken(
        id=view.number,
        user=view.owner,
        name=view.name,
        scopes=scopes[: scopes.index(cluster.ScopeName(view.scope.value)) + 1],
        created_at=view.created_at,
        expires_at=view.expires_at,
        last_used_at=view.last_used_at,
    )


def may_see(viewer: UserView, owner_id: int) -> bool:
    """Whether a user sees more of a job than the slots that it holds."""
    return viewer.sees_all or viewer.id == owner_id


def timeline(view: Timeline, viewer: UserView) -> bytes:
    """Return ``cluster.Timeline`` as JSON. It makes no pydantic objects for the bars: there are tens of thousands, and
    objects for all of them would take seconds.
    """
    shown = {
        "nodes": [node(each, viewer) for each in view.nodes],
        "jobs": {name: _timeline_job(each, viewer) for name, each in view.jobs.items()},
    }
    return to_json(vars(view) | shown | _bars_and_marks(view, viewer))


def timeline_changed(changes: Changes, viewer: UserView) -> str:
    """Return ``cluster.TimelineChanged`` as JSON."""
    return to_json(_bars_and_marks(changes, viewer)).decode()


def _bars_and_marks(view: Timeline | Changes, viewer: UserView) -> dict[str, Any]:
    return {
        "allocations": [_bar(each) for each in view.allocations],
        "resizes": [_mark(each, viewer) for each in view.resizes],
        "failures": [_failure(each, viewer) for each in view.failures],
    }


def _timeline_job(view: TimelineJob, viewer: UserView) -> cluster.TimelineJob:
    seen = may_see(viewer, view.owner_id)
    return cluster.TimelineJob(
        state=jobs.ExecState(view.state.wire),
        owner=view.owner if seen else None,
        app_name=shown_name(view.framework, view.app_name, view.script, view.folder, view.command) if seen else None,
        kind=kind(is_gang=view.is_gang),
        removed=view.removed,
    )


def _bar(view: TimelineAllocation) -> dict[str, Any]:
    shown = view._asdict()
    del shown["fence"]
    return shown


def _mark(view: TimelineResize, viewer: UserView) -> dict[str, Any]:
    shown = view._asdict()
    shown["time"] = shown.pop("decided_at")
    if not may_see(viewer, shown.pop("owner_id")):
        shown["detail"] = None
    return shown


def _failure(view: FailureView, viewer: UserView) -> cluster.TimelineFailure:
    message = view.message if may_see(viewer, view.owner_id) else None
    return cluster.TimelineFailure.model_validate(vars(view) | {"message": message})


def iso(seconds: float) -> str:
    """Return a time as ``2026-11-21T12:00:00Z``, the only form that ``dlicmd`` reads."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
