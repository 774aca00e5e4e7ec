"""Jobs with all that we know of them, and their history: ``/api/v1/jobs``. Room: api.

Submitting, stopping and removing are WMLA's calls (execs.py); there is one door for each.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from edt_api import logs, pictures, results, schemas
from edt_api.context import TheHouse, Viewer
from edt_api.errors import NoResult, RequestInvalid
from edt_api.frameworks import NAMES_GIVEN_BY_NOBODY
from edt_api.paging import Cursor, Limit, cursor_of, cut, number_of
from edt_scheduler import operations
from edt_scheduler.jobs import JobFilter, JobState

router = APIRouter(prefix="/api/v1/jobs")

_LOG_BYTES = 1 << 20
_STATES = {schemas.ExecState(state.wire): state for state in JobState}
_SOUGHT = (
    "Part of the id, the name that its user gave, the main script, the folder that was sent or the owner, "
    "capital or small."
)
_Text = Annotated[str | None, Query(max_length=256)]


@router.get("")
def listing(
    house: TheHouse,
    viewer: Viewer,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: Annotated[str | None, Query(max_length=256, description="States, commas between them.")] = None,
    owner: _Text = None,
    mine: Annotated[bool, Query(description="The caller's own, an admin's too.")] = False,
    framework: _Text = None,
    q: Annotated[str | None, Query(max_length=256, description=_SOUGHT)] = None,
) -> schemas.JobPage:
    """The caller's jobs, newest first; an admin's everybody's."""
    wanted = JobFilter(
        owner or None,
        viewer.id if mine else None,
        states=_states(state),
        framework=framework or None,
        text=q or None,
        unnamed=NAMES_GIVEN_BY_NOBODY,
    )
    page = operations.jobs_page(house, viewer=viewer, wanted=wanted, limit=limit, before=number_of("jobs", cursor))
    return schemas.JobPage(
        items=[pictures.job(each) for each in page.jobs], next=cursor_of("jobs", page.before), total=page.total
    )


def _states(text: str | None) -> frozenset[JobState] | None:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in list(_STATES)]
    if unknown:
        raise RequestInvalid(f"state: got {unknown[0]!r}; it takes {', '.join(_STATES)}")
    return frozenset(_STATES[schemas.ExecState(name)] for name in names) or None


@router.get("/{exec_id}")
def get(house: TheHouse, viewer: Viewer, exec_id: str) -> schemas.Job:
    return pictures.job(operations.job(house, exec_id, viewer=viewer))


@router.get("/{exec_id}/result")
def result(house: TheHouse, viewer: Viewer, exec_id: str) -> schemas.ResultState:
    """Whether there is something to download now, and how much. WMLA's call fetches it. 410 where it was removed."""
    job = operations.job(house, exec_id, viewer=viewer)
    try:
        return schemas.ResultState(bytes=results.result(job).size, missing=None)
    except NoResult as none:
        return schemas.ResultState(bytes=None, missing=str(none))


@router.get("/{exec_id}/resizes")
def resizes(
    house: TheHouse, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> schemas.ResizePage:
    """Each change of the job's size, in order: its cause, what woke whom, its pause."""
    after = number_of("resizes", cursor) or 0
    page, more = cut(operations.resizes(house, exec_id, viewer=viewer, after=after, limit=limit + 1), limit)
    return schemas.ResizePage(
        items=[schemas.Resize.model_validate(each) for each in page],
        next=cursor_of("resizes", page[-1].number if more else None),
    )


@router.get("/{exec_id}/allocations")
def allocations(
    house: TheHouse, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> schemas.AllocationPage:
    """Each slot that the job held, in order, and when each step of that happened."""
    after = number_of("allocations", cursor) or 0
    page, more = cut(operations.allocations(house, exec_id, viewer=viewer, after=after, limit=limit + 1), limit)
    return schemas.AllocationPage(
        items=[schemas.Allocation.model_validate(each) for each in page],
        next=cursor_of("allocations", page[-1].allocation if more else None),
    )


@router.get("/{exec_id}/events")
def events(
    house: TheHouse, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> schemas.EventPage:
    """The job's history, complete and in order."""
    after = number_of("events", cursor) or 0
    page, more = cut(operations.events(house, exec_id, viewer=viewer, after=after, limit=limit + 1), limit)
    return schemas.EventPage(
        items=[schemas.Event.model_validate(each) for each in page],
        next=cursor_of("events", page[-1].seq if more else None),
    )


@router.get("/{exec_id}/metrics")
def metrics(
    house: TheHouse, viewer: Viewer, exec_id: str, points: Annotated[int, Query(ge=4, le=4096)] = 600
) -> schemas.Metrics:
    """How the training went, in at most so many points that keep the shape of the loss."""
    return pictures.metrics(operations.course(house, exec_id, viewer=viewer, points=points))


@router.get("/{exec_id}/logs")
def log_files(
    house: TheHouse, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> schemas.LogFilePage:
    """The files of the job's log: the loggers' and the driver's first, then each engine's."""
    after = number_of("logs", cursor) or 0
    job = operations.job(house, exec_id, viewer=viewer)
    page, more = cut(logs.listing(job, limit=limit + 1, after=after), limit)
    return schemas.LogFilePage(
        items=list(page),
        next=cursor_of("logs", logs.place(page[-1].stream) if more else None),
    )


@router.get("/{exec_id}/log", response_class=PlainTextResponse)
def log(
    house: TheHouse,
    viewer: Viewer,
    exec_id: str,
    stream: Annotated[str, Query(max_length=64)] = logs.Stream.ELOG.value,
    offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
) -> Response:
    """One file of the log from a byte on, for followers: ask again with the offset of ``Edt-Log-Offset``.

    ``stream``: ``elog``, ``out``, ``err``, or an engine's as ``logs`` lists them. At most 1 MiB an answer; an empty one
    means that nothing more is there yet. The offset is 0 again where the file was turned over at its size limit.
    """
    data, after = logs.since(operations.job(house, exec_id, viewer=viewer), stream, offset, _LOG_BYTES)
    headers = {"Edt-Log-Offset": str(after)}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)
