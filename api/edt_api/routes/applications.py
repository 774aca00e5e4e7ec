"""Jobs as WMLA's scheduler shows them: ``/platform/rest/deeplearning/v1/scheduler``.

An application is a job, and has its exec id. The driver is ``task0``. The engines are executors 1, 2, … in the order in
which they started; an engine that started again under another slot is another executor. A gang has no ``task0``, and
its executors 1, 2, … are its processes by rank. Jobs of other users are unknown here, as in execs.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import TypeAdapter

from edt_api import process_logs, to_wmla
from edt_api.dependencies import ThePlatform, Viewer, for_users
from edt_api.listing import (
    MOST,
    LastLines,
    Length,
    Start,
    api_url,
    batches,
    order_of,
    states_named,
    streamed,
)
from edt_api.schemas import wmla
from edt_api.to_wire import CLUSTER
from edt_api.version import version
from edt_scheduler.model.jobs import JobKey, JobOrder
from edt_scheduler.model.states import ACTIVE
from edt_scheduler.operations import execs, history, queues
from edt_scheduler.platform import Platform
from edt_scheduler.views import JobView, ProcessesView, UserView

router = APIRouter(prefix="/platform/rest/deeplearning/v1/scheduler")

_KEYS = {
    **dict.fromkeys(("id", "applicationid", "driverid"), JobKey.NUMBER),
    **dict.fromkeys(("name", "applicationname"), JobKey.APP_NAME),
    "state": JobKey.STATE,
    **dict.fromkeys(("submit_user", "username"), JobKey.OWNER),
    **dict.fromkeys(("submit_time", "submittedtime"), JobKey.CREATED_AT),
    "start_time": JobKey.STARTED_AT,
    **dict.fromkeys(("end_time", "endtime"), JobKey.FINISHED_AT),
}
_APPLICATIONS = TypeAdapter(list[wmla.Application])
_RECORDS = TypeAdapter(list[wmla.JobRecord])
_NUMBER = r"^[1-9][0-9]{0,8}$"

Sort = Annotated[str, Query(description=f"One of {', '.join(_KEYS)}; a `-` before it sorts in descending order.")]
Order = Annotated[str, Query(description="`asc` or `desc`, for a `sort` without a `-`.")]
States = Annotated[list[str] | None, Query(description="States, separated by commas or as repeated parameters.")]
Text = Annotated[str, Query(max_length=256)]
Number = Annotated[str, Path(pattern=_NUMBER, description="The executor's number, from 1 on.")]


@router.get("/applications", response_model=list[wmla.Application])
@router.get("/applications/", response_model=list[wmla.Application])
async def applications(
    request: Request,
    platform: ThePlatform,
    viewer: Viewer,
    applicationid: Text = "",
    applicationname: Text = "",
    driverid: Text = "",
    search: Text = "",
    sort: Sort = "id",
    order: Order = "",
    start: Start = 0,
    length: Length = None,
    state: States = None,
    sig_id: Annotated[str, Query(alias="sigId", max_length=256)] = "",
) -> Response:
    """List the caller's jobs as applications. Admins and viewers get those of all users.

    The id of a driver is the id of its application. ``search`` looks in the id, the name, the main script, the folder
    that was sent, and the owner. The server sends the list while it reads it.
    """
    named = {each for each in (applicationid, driverid) if each}
    nowhere = sig_id not in {"", CLUSTER} or len(named) > 1
    found = execs.jobs(
        platform,
        viewer=viewer,
        states=states_named(state),
        only="" if nowhere else next(iter(named), None),
        app_name=applicationname or None,
        text=search or None,
        order=_order(sort, order),
        start=start,
        limit=length,
    )
    url, now = api_url(request), platform.clock()
    shown = (
        [to_wmla.application(job, processes, url, now) for job, processes in some]
        for some in _with_processes(platform, found)
    )
    return await streamed(_APPLICATIONS, shown)


@router.get("/applications/{exec_id}")
def application(request: Request, platform: ThePlatform, viewer: Viewer, exec_id: str) -> wmla.Application:
    """Return one application."""
    job, processes = _one(platform, viewer, exec_id)
    return to_wmla.application(job, processes, api_url(request), platform.clock())


@router.put("/applications/{exec_id}/stop", status_code=204, response_class=Response)
def stop(platform: ThePlatform, viewer: Viewer, exec_id: str) -> None:
    """Ask a job to stop. A job that is over does not change."""
    execs.stop(platform, exec_id, viewer=viewer)


@router.get("/applications/{exec_id}/driver/logs/{log}", response_class=PlainTextResponse)
def driver_log(
    platform: ThePlatform, viewer: Viewer, exec_id: str, log: wmla.LogName, lastlines: LastLines = None
) -> Response:
    """Return a log of the driver: what the script printed, or for ``launcherlog`` the job's history, as text.

    The driver of a gang is its rank 0.
    """
    return process_logs.of_driver(platform, viewer, exec_id, log, lastlines)


@router.get("/applications/{exec_id}/executor/{number}/logs/{log}", response_class=PlainTextResponse)
def executor_log(
    platform: ThePlatform,
    viewer: Viewer,
    exec_id: str,
    number: Number,
    log: wmla.LogName,
    lastlines: LastLines = None,
) -> Response:
    """Return a log of one engine as text. The status is 404 if the job has had no engine of this number."""
    return process_logs.of_engine(platform, viewer, exec_id, number, log, lastlines)


@router.get("/engine/applications", response_model=list[wmla.JobRecord])
@router.get("/engine/applications/", response_model=list[wmla.JobRecord])
async def records(
    platform: ThePlatform,
    viewer: Viewer,
    start: Start = 0,
    length: Length = None,
    sort: Sort = "id",
    order: Order = "",
    state: States = None,
) -> Response:
    """List the caller's jobs as the scheduler's own records. Admins and viewers get those of all users."""
    found = execs.jobs(
        platform,
        viewer=viewer,
        states=states_named(state),
        order=_order(sort, order),
        start=start,
        limit=length,
    )
    return await streamed(_RECORDS, _records(platform, found))


@router.get("/engine/applications/{exec_id}")
def record(platform: ThePlatform, viewer: Viewer, exec_id: str) -> list[wmla.JobRecord]:
    """Return the record of one job, in a list of one."""
    return [to_wmla.record(*_one(platform, viewer, exec_id), queues.paths(platform))]


@router.get("/kubernetesobjects")
@router.get("/kubernetesobjects/")
def kubernetes_objects(
    platform: ThePlatform, viewer: Viewer, kind: Annotated[str, Query(alias="type")] = "", name: Text = ""
) -> dict[str, Any]:
    """Return jobs (``type=paralleljob``) or their processes (``type=pod``) in the form of Kubernetes objects.

    With a ``name`` the answer for ``paralleljob`` is that job. Otherwise it is ``{"items": […]}`` with the jobs that
    are not over. It has no items for every other type.
    """
    if kind == "paralleljob" and name:
        return to_wmla.parallel_job(execs.job(platform, name, viewer=viewer))
    if kind not in {"paralleljob", "pod"}:
        return {"items": []}
    active = execs.jobs(platform, viewer=viewer, states=ACTIVE, only=name or None, limit=MOST)
    if kind == "paralleljob":
        return {"items": [to_wmla.parallel_job(job) for job in active]}
    found = chain.from_iterable(_with_processes(platform, active))
    return {"items": [pod for job, processes in found for pod in to_wmla.pods(job, processes)]}


@router.get("/instances", dependencies=[for_users])
@router.get("/instances/", dependencies=[for_users])
async def instances(request: Request) -> list[wmla.Instance]:
    """List the instance groups: the platform is one."""
    return [instance(api_url(request))]


def instance(url: str) -> wmla.Instance:
    """Return the one instance group of the server with this URL."""
    return wmla.Instance(
        uuid=CLUSTER,
        name=CLUSTER,
        version=version(),
        masterUrl=url,
        executionUser=CLUSTER,
        state="STARTED",
        historyServerUrl="",
    )


def _order(sort: str, order: str) -> JobOrder:
    descending = sort.startswith("-")
    return order_of("sort", sort, sort.removeprefix("-"), _KEYS, "desc" if descending else order)


def _one(platform: Platform, viewer: UserView, exec_id: str) -> tuple[JobView, ProcessesView]:
    job = execs.job(platform, exec_id, viewer=viewer)
    return job, history.processes(platform, [job])[job.exec_id]


def _records(platform: Platform, found: Iterator[JobView]) -> Iterator[list[wmla.JobRecord]]:
    """Yield the jobs as records, some at a time."""
    known = queues.paths(platform)
    for some in _with_processes(platform, found):
        yield [to_wmla.record(job, processes, known) for job, processes in some]


def _with_processes(platform: Platform, found: Iterator[JobView]) -> Iterator[list[tuple[JobView, ProcessesView]]]:
    """Yield the jobs with their processes, some at a time."""
    for some in batches(found):
        processes = history.processes(platform, some)
        yield [(job, processes[job.exec_id]) for job in some]
