"""From the scheduler's pictures to the wire's shapes. Room: api. Pure."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from typing import Any

from edt_api import schemas
from edt_api.arguments import MOST_WORKERS
from edt_api.frameworks import Runnable
from edt_scheduler.views import JobView, NodeView, Timeline, UserView

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
        state=schemas.ExecState(view.state.wire),
        framework=view.framework,
        app_name=view.app_name,
        args=view.args_verbatim,
        num_worker=view.num_worker,
        worker_device_num=view.worker_device_num,
        max_workers=view.num_worker * view.worker_device_num,
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
        progress=dict(view.progress),
        message=view.message,
        digest=view.digest,
        inexact=view.inexact,
        checkpoint_step=view.checkpoint_step,
        seed=view.seed,
        threads=view.threads,
        waiting=schemas.Waiting.model_validate(view.waiting) if view.waiting else None,
        work_dir=str(view.work_dir),
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


def node(view: NodeView) -> schemas.Node:
    slots = [schemas.Slot(**asdict(slot), busy=slot.exec_id is not None) for slot in view.slots]
    shown: dict[str, Any] = {name: getattr(view, name) for name in schemas.Node.model_fields if name != "slots"}
    return schemas.Node(**shown, slots=slots)


def timeline(view: Timeline) -> schemas.Timeline:
    return schemas.Timeline(
        now=view.now,
        nodes=[node(each) for each in view.nodes],
        allocations=[schemas.Allocation.model_validate(each) for each in view.allocations],
        resizes=[schemas.Resize.model_validate(each) for each in view.resizes],
    )


def user(view: UserView) -> schemas.User:
    return schemas.User(name=view.name, role=schemas.RoleName(view.role.value), created_at=view.created_at)


def _iso(seconds: float) -> str:
    """``2026-11-21T12:00:00Z``, the only form that ``dlicmd`` reads."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
