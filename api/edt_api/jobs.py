"""Jobs with all that we know of them, and their history: ``/api/v1/jobs``. Room: api.

Submitting, stopping and removing are WMLA's calls (execs.py); there is one door for each.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from edt_api import logs, pictures, schemas
from edt_api.context import TheHouse, Viewer
from edt_scheduler import operations

router = APIRouter(prefix="/api/v1/jobs")

_LOG_BYTES = 1 << 20


@router.get("")
def listing(house: TheHouse, viewer: Viewer) -> list[schemas.Job]:
    """The caller's jobs in submit order; an admin's everybody's."""
    return [pictures.job(each) for each in operations.jobs(house, viewer=viewer)]


@router.get("/{exec_id}")
def get(house: TheHouse, viewer: Viewer, exec_id: str) -> schemas.Job:
    return pictures.job(operations.job(house, exec_id, viewer=viewer))


@router.get("/{exec_id}/resizes")
def resizes(house: TheHouse, viewer: Viewer, exec_id: str) -> list[schemas.Resize]:
    """Each change of the job's size: its cause, what woke whom, its pause."""
    return [schemas.Resize.model_validate(each) for each in operations.resizes(house, exec_id, viewer=viewer)]


@router.get("/{exec_id}/events")
def events(house: TheHouse, viewer: Viewer, exec_id: str) -> list[schemas.Event]:
    """The job's history, complete and in order."""
    return [schemas.Event.model_validate(each) for each in operations.events(house, exec_id, viewer=viewer)]


@router.get("/{exec_id}/log")
def log(
    house: TheHouse,
    viewer: Viewer,
    exec_id: str,
    stream: logs.Stream = logs.Stream.ELOG,
    offset: Annotated[int, Query(ge=0, le=1 << 62)] = 0,
) -> Response:
    """One file of the log from a byte on, for followers: ask again with the offset of ``Edt-Log-Offset``.

    At most 1 MiB an answer; an empty one means that nothing more is there yet. The offset is 0 again where the file
    was turned over at its size limit.
    """
    data, after = logs.since(operations.job(house, exec_id, viewer=viewer), stream, offset, _LOG_BYTES)
    headers = {"Edt-Log-Offset": str(after)}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)
