"""Jobs with all that the platform knows of them, and their history: ``/api/v1/jobs``.

WMLA's calls submit, stop and remove jobs (execs.py). This module does not repeat them.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from edt_api import to_wire
from edt_api.dependencies import TheFollowing, ThePlatform, Viewer
from edt_api.errors import NoResult, RequestInvalid
from edt_api.http import Cursor, Limit, cursor_of, number_of, paged
from edt_api.job_files import logs, results
from edt_api.job_files.following import Wanted
from edt_api.schemas import jobs
from edt_api.schemas.step_times import StepTimes
from edt_api.submissions.frameworks import NAMES_GIVEN_BY_NOBODY
from edt_scheduler.model.jobs import JobFilter
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs, history
from edt_scheduler.views import EngineView

router = APIRouter(prefix="/api/v1/jobs")

_STATES = {jobs.ExecState(state.wire): state for state in JobState}
_SOUGHT = (
    "Text to search for in the id, the name that the user gave, the main script, the folder that was sent, "
    "and the owner. Upper and lower case are the same."
)
_Text = Annotated[str | None, Query(max_length=256)]


@router.get("")
def listing(
    platform: ThePlatform,
    viewer: Viewer,
    limit: Limit = 100,
    cursor: Cursor = None,
    state: Annotated[str | None, Query(max_length=256, description="States, separated by commas.")] = None,
    owner: _Text = None,
    mine: Annotated[bool, Query(description="Whether to list only the caller's own jobs.")] = False,
    framework: _Text = None,
    q: Annotated[str | None, Query(max_length=256, description=_SOUGHT)] = None,
) -> jobs.JobPage:
    """List the caller's jobs, newest first. Admins and viewers get those of all users."""
    wanted = JobFilter(
        owner or None,
        viewer.id if mine else None,
        states=_states(state),
        framework=framework or None,
        text=q or None,
        unnamed=NAMES_GIVEN_BY_NOBODY,
    )
    page = execs.jobs_page(platform, viewer=viewer, wanted=wanted, limit=limit, before=number_of("jobs", cursor))
    return jobs.JobPage(
        items=[to_wire.job(each) for each in page.jobs], next=cursor_of("jobs", page.before), total=page.total
    )


def _states(text: str | None) -> frozenset[JobState] | None:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in list(_STATES)]
    if unknown:
        raise RequestInvalid(f"state: got {unknown[0]!r}; it takes {', '.join(_STATES)}")
    return frozenset(_STATES[jobs.ExecState(name)] for name in names) or None


@router.get("/{exec_id}")
def get(platform: ThePlatform, viewer: Viewer, exec_id: str) -> jobs.Job:
    return to_wire.job(execs.job(platform, exec_id, viewer=viewer))


@router.get("/{exec_id}/result")
def result(platform: ThePlatform, viewer: Viewer, exec_id: str) -> jobs.ResultState:
    """Return whether the job has a result to download, and its size. WMLA's call downloads it.

    The status is 410 if the result was removed.
    """
    job = execs.job(platform, exec_id, viewer=viewer)
    try:
        return jobs.ResultState(bytes=results.result(job).size, missing=None)
    except NoResult as none:
        return jobs.ResultState(bytes=None, missing=str(none))


@router.get("/{exec_id}/resizes")
def resizes(
    platform: ThePlatform, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> jobs.ResizePage:
    """List the changes of the job's size, oldest first, each with its cause, what woke the agent, and its pause."""
    find = partial(history.resizes, platform, exec_id, viewer=viewer)
    return paged(jobs.ResizePage, "resizes", find, attrgetter("number"), limit, cursor)


@router.get("/{exec_id}/allocations")
def allocations(
    platform: ThePlatform, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> jobs.AllocationPage:
    """List the slots that the job held, oldest first, each with the times of its steps."""
    find = partial(history.allocations, platform, exec_id, viewer=viewer)
    return paged(jobs.AllocationPage, "allocations", find, attrgetter("allocation"), limit, cursor)


@router.get("/{exec_id}/ranks")
def ranks(
    platform: ThePlatform, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> jobs.RankPage:
    """List the processes of a gang's newest attempt that were started, by rank. An elastic job has none.

    ``GET …/allocations`` lists its slots, and those of earlier attempts.
    """
    job = execs.job(platform, exec_id, viewer=viewer)

    def find(*, limit: int, after: int = 0) -> list[EngineView]:
        processes = history.processes(platform, [job])[job.exec_id].engines if job.gang is not None else ()
        return [each for each in processes if each.number > after][:limit]

    return paged(jobs.RankPage, "ranks", find, attrgetter("number"), limit, cursor, to_wire.rank)


@router.get("/{exec_id}/events")
def events(
    platform: ThePlatform, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> jobs.EventPage:
    """List all events of the job's history, oldest first."""
    find = partial(history.events, platform, exec_id, viewer=viewer)
    return paged(jobs.EventPage, "events", find, attrgetter("seq"), limit, cursor)


@router.get("/{exec_id}/metrics")
def metrics(
    platform: ThePlatform, viewer: Viewer, exec_id: str, points: Annotated[int, Query(ge=4, le=4096)] = 600
) -> jobs.Metrics:
    """Return the metrics of the training in at most ``points`` points, which keep the shape of the loss, and those of
    its validations in as many.
    """
    return to_wire.metrics(history.curve(platform, exec_id, viewer=viewer, points=points))


@router.get("/{exec_id}/step-times")
def step_times(platform: ThePlatform, viewer: Viewer, exec_id: str) -> StepTimes:
    """Return where the time of the job's training steps goes: of each engine the seconds a step in each phase, for
    which engine the others wait, and a sentence about each engine that has been slower than the others for some time.

    Of more than 64 engines the slowest and the fastest are listed, and the mean of the others. Before the first report
    ``steps`` is 0, and no engine is listed.
    """
    found = history.step_times(platform, exec_id, viewer=viewer)
    return StepTimes.model_validate(found) if found is not None else StepTimes()


@router.get("/{exec_id}/logs")
def log_files(
    platform: ThePlatform, viewer: Viewer, exec_id: str, limit: Limit = 100, cursor: Cursor = None
) -> jobs.LogFilePage:
    """List the files of the job's log: first that of the training, those of the loggers and the driver, then those of
    each engine or rank.
    """
    find = partial(logs.listing, execs.job(platform, exec_id, viewer=viewer))
    return paged(jobs.LogFilePage, "logs", find, lambda file: logs.place(file.stream), limit, cursor)


@router.get("/{exec_id}/log", response_class=PlainTextResponse)
async def log(
    following: TheFollowing,
    viewer: Viewer,
    exec_id: str,
    stream: Annotated[str, Query(max_length=64)] = logs.Stream.ELOG.value,
    offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
) -> Response:
    """Return one file of the log from byte ``offset`` on.

    To follow the file, send the value of the header ``Edt-Log-Offset`` as the next ``offset``. ``stream`` is
    ``training`` (the course of the training, for people), ``elog``, ``out``, ``err`` (of a gang those of rank 0), or a
    stream of an engine or a rank as ``logs`` lists it. An answer holds at most 1 MiB. An empty answer means that the
    file has no more bytes yet. The offset starts again at 0 when the file is rotated at its size limit.

    With ``wait`` the server waits so many seconds for more bytes, at most five, before it answers with none. It does
    not wait for a job that is over.
    """
    found = await following.read(Wanted(viewer, exec_id, stream, offset), wait)
    headers = {"Edt-Log-Offset": str(found.after)}
    return Response(found.data, media_type="text/plain; charset=utf-8", headers=headers)
