"""Jobs as WMLA's clients know them: ``/platform/rest/deeplearning/v1/execs``.

``submissions`` reads requests; ``to_wire`` and ``job_files`` write answers. Refusals are plain text here. The id of
another user's job is answered as an unknown id: 400.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated

from anyio import CancelScope
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import TypeAdapter

from edt_api import concurrency, to_wire
from edt_api.dependencies import TheAdmission, TheKey, ThePlatform, TheSettings, TheSubmits, Viewer, for_users
from edt_api.errors import NotOffered, UploadRefused
from edt_api.job_files import logs, results
from edt_api.listing import LastLines, Length, Start, api_url, batches, order_of, states_named, streamed
from edt_api.schemas import jobs
from edt_api.submissions.args import Submission
from edt_api.submissions.frameworks import PREBUILT_FOLDER
from edt_api.submissions.keras2 import asks_nobody, keras2_spelling, with_keras2
from edt_api.submissions.main_script import prepare
from edt_api.submissions.placing import placed
from edt_api.submissions.plain_loops import could_be_plain, is_plain, with_remark
from edt_api.submissions.submission import check_data_folder, code, job_spec, read, refuse_a_path
from edt_api.submissions.uploads import Upload, receive
from edt_contract.crash_points import CrashPoint, crash_point
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import Begin, JobKey
from edt_scheduler.operations import execs, lives
from edt_scheduler.operations import frameworks as catalogue
from edt_scheduler.operations.submitting import StagedSubmission, begin_path
from edt_scheduler.platform import Platform
from edt_scheduler.views import JobView, UserView

router = APIRouter(prefix="/platform/rest/deeplearning/v1/execs")

_SORT_KEYS = {
    "id": JobKey.NUMBER,
    "createTime": JobKey.CREATED_AT,
    "state": JobKey.STATE,
    "appName": JobKey.APP_NAME,
    "creator": JobKey.OWNER,
}
_EXECS = TypeAdapter(list[jobs.Exec])
PREBUILT = Path(str(resources.files("edt_api") / PREBUILT_FOLDER))
"""The scripts of prebuilt models."""
_BODY = {  # the route reads the raw request, so the framework cannot describe the body
    "parameters": [{"name": "args", "in": "query", "schema": {"type": "string"}}],
    "requestBody": {
        "required": False,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "tar, gzip, zip or a script"},
                        "data": {"type": "string", "description": "JSON, as WMLA's clients send it beside the file"},
                    },
                }
            },
            "application/x-www-form-urlencoded": {
                "schema": {"type": "object", "properties": {"data": {"type": "string"}}},
            },
        },
    },
}
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@router.post("", openapi_extra=_BODY)
@router.post("/")
async def submit(
    request: Request,
    platform: ThePlatform,
    settings: TheSettings,
    viewer: Viewer,
    admission: TheAdmission,
    submits: TheSubmits,
    key: TheKey = None,
) -> jobs.Exec:
    """Submit a job. After the answer 200 the job, its arguments and its code are stored durably.

    A request with an ``Idempotency-Key`` may be sent again. For a day the same args and upload get the same job as
    their answer. The server receives only a few submissions of one user at a time, and the others wait. A submission
    that waits too long is refused with 429 and ``Retry-After``.
    """
    if key is not None:
        IdempotentRequest.of(key)  # refuses an invalid key before the upload is read
    content_type = request.headers.get("content-type")
    args = request.query_params.get("args")
    async with admission.turn(viewer.id):
        receiving = receive(request.stream(), content_type, platform.settings.staged, most=settings.upload_bytes)
        async with receiving as upload:
            job = await _take(platform, submits, viewer, args, upload, key)
    crash_point(CrashPoint.API_SUBMITTED)
    return to_wire.execution(job, api_url(request))


async def _take(
    platform: Platform, submits: TheSubmits, viewer: UserView, args: str | None, upload: Upload, key: str | None
) -> JobView:
    """Read, unpack and store a submission. The order makes a wrong submission cost the least work."""
    found = await concurrency.uploads.run(_read, platform, viewer, args, upload, key)
    if isinstance(found, JobView):
        return found
    submission, file, idempotent = found
    staged = platform.settings.staged / uuid.uuid4().hex
    try:
        with submits.expected():
            folder, main = await concurrency.unpacking.run(prepare, file, staged, code(submission, upload.filename))
            spec = job_spec(submission, folder, main)
            if main and asks_nobody(spec):
                why = await concurrency.unpacking.run(
                    partial(keras2_spelling, gang=spec.gang is not None), staged / folder / main
                )
                spec = with_keras2(spec, why) if why is not None else spec
            if could_be_plain(spec, own_python=submission.own_python):
                spec = with_remark(spec) if await concurrency.unpacking.run(is_plain, staged) else spec
        begin = None
        if submission.resume_from is not None:
            begin = await concurrency.bulk.run(partial(_stage_checkpoint, platform, submission, viewer, staged))
        crash_point(CrashPoint.API_EXTRACTED)
    except BaseException:
        await removed(staged)
        raise
    return await hand_in(submits, StagedSubmission(viewer, spec, staged, idempotent, begin))


def _stage_checkpoint(platform: Platform, submission: Submission, viewer: UserView, staged: Path) -> Begin:
    assert submission.resume_from is not None  # the caller has looked
    return lives.stage_checkpoint(
        platform, submission.resume_from, backend=submission.backend, viewer=viewer, staged=staged
    )


async def hand_in(submits: concurrency.Gathered[StagedSubmission, JobView], submission: StagedSubmission) -> JobView:
    """Return the job that becomes of a staged submission. Its staged folders are gone afterwards."""
    try:
        job = await submits.run(submission)
    except Exception:  # not CancelledError: the server ends, and a thread may still move these folders into the job's
        await removed(submission.staged)
        raise
    if submission.request is not None:  # perhaps the same request has made this job before
        await removed(submission.staged)
    return job


async def removed(staged: Path) -> None:
    """Remove the folders that were staged for a submission, as far as they are there."""
    with CancelScope(shield=True):
        for folder in (staged, begin_path(staged)):
            await concurrency.uploads.run(partial(shutil.rmtree, folder, ignore_errors=True))


def _read(
    platform: Platform, viewer: UserView, args: str | None, upload: Upload, key: str | None
) -> tuple[Submission, Path | bytes | None, IdempotentRequest | None] | JobView:
    """Return the submission and its code, as a path or as it is, or the job that the same request made before."""
    data = upload.fields.get("data")
    submission = read(args, data, upload.left_out, partial(catalogue.find, platform))
    check_data_folder(submission, platform.settings.data)
    with _code(submission, upload) as file:
        idempotent = _idempotent(platform, key, args, data, file) if key is not None else None
        if idempotent is not None and (before := execs.submitted_before(platform, owner=viewer, request=idempotent)):
            return before
        submission = placed(platform, viewer, submission)
        if upload.file is None and submission.has_command:
            return submission, None, idempotent
        return submission, file.getvalue() if isinstance(file, BytesIO) else Path(file.name), idempotent


@contextmanager
def _code(submission: Submission, upload: Upload) -> Iterator[IO[bytes]]:
    """Open the job's code: the uploaded file, or the script of a prebuilt model. A command needs none.

    Raises:
        UploadRefused: there is no code, a path in its place, or both an upload and a prebuilt model.
    """
    if submission.prebuilt is not None:
        if upload.file is not None:
            raise UploadRefused("--pbmodel-name takes the place of an upload: send no part named file with it")
        with (PREBUILT / submission.prebuilt).open("rb") as file:
            yield file
        return
    if upload.file is None and submission.has_command:
        yield BytesIO()
        return
    if upload.file is None:
        raise UploadRefused("no part named file: send the code as tar, gzip, zip or a bare script")
    refuse_a_path(upload.file)
    yield upload.file


def _idempotent(platform: Platform, key: str, args: str | None, data: str | None, file: IO[bytes]) -> IdempotentRequest:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    file.seek(0)
    keyed = platform.secret_key.keys().keyed  # args may hold secrets
    return IdempotentRequest.of(key, "POST execs", args, data, digest, keyed=keyed)


@router.get("", response_model=list[jobs.Exec])
@router.get("/", response_model=list[jobs.Exec])
async def listing(
    request: Request,
    platform: ThePlatform,
    viewer: Viewer,
    state: Annotated[list[str] | None, Query()] = None,
    limit: Length = None,
    sort_by: str = "id:asc",
    start: Start = 0,
    length: Length = None,
) -> Response:
    """List the caller's jobs. Admins and viewers get those of all users.

    ``state`` takes several states, separated by commas or as repeated parameters. Without a ``limit`` or ``length``
    the answer holds all jobs. The server sends them while it reads them, so their number has no limit. A ``start``
    beyond the end is answered with 416.
    """
    key, _, order = sort_by.partition(":")
    states, sorted_by = states_named(state), order_of("sort_by", sort_by, key, _SORT_KEYS, order)
    most = min((each for each in (limit, length) if each is not None), default=None)
    found = execs.jobs(platform, viewer=viewer, states=states, order=sorted_by, start=start, limit=most)
    shown = ([to_wire.execution(job, api_url(request)) for job in some] for some in batches(found))
    return await streamed(_EXECS, shown)


@router.delete("", status_code=204, response_class=Response)
@router.delete("/", status_code=204, response_class=Response)
async def delete_all(platform: ThePlatform, viewer: Viewer) -> None:
    """Remove all jobs that the caller owns. An admin, too, removes only their own jobs. Running jobs are stopped.

    Thousands of jobs take some seconds. An interrupted request has removed some of the jobs, and may be sent again.
    """
    await concurrency.bulk.run(partial(execs.delete_all, platform, viewer=viewer))


@router.get("/frameworks", dependencies=[for_users])
def frameworks(platform: ThePlatform) -> list[jobs.Framework]:
    """List the frameworks that ``--exec-start`` accepts."""
    return [to_wire.framework(each) for each in catalogue.frameworks(platform)]


@router.get("/{exec_id}")
def get(request: Request, platform: ThePlatform, viewer: Viewer, exec_id: str) -> jobs.Exec:
    """Return one job."""
    return to_wire.execution(execs.job(platform, exec_id, viewer=viewer), api_url(request))


@router.delete("/{exec_id}", status_code=204, response_class=Response)
def delete(platform: ThePlatform, viewer: Viewer, exec_id: str) -> None:
    """Remove a job with its logs and results. A running job is stopped first."""
    execs.delete(platform, exec_id, viewer=viewer)


@router.post("/{exec_id}/stop", status_code=204, response_class=Response)
def stop(platform: ThePlatform, viewer: Viewer, exec_id: str) -> None:
    """Ask a job to stop. A job that is over does not change."""
    execs.stop(platform, exec_id, viewer=viewer)
    crash_point(CrashPoint.API_STOP)


@router.post("/{exec_id}/deploy", status_code=501, response_class=PlainTextResponse)
def deploy(platform: ThePlatform, viewer: Viewer, exec_id: str) -> Response:
    """Refuse to deploy a job's model: the platform trains models and does not serve them."""
    execs.job(platform, exec_id, viewer=viewer)
    raise NotOffered("a model is not deployed here: fetch it with GET /execs/{id}/result and serve it elsewhere")


@router.get("/{exec_id}/log", response_class=PlainTextResponse)
def log(
    request: Request,
    platform: ThePlatform,
    viewer: Viewer,
    exec_id: str,
    log_type: Annotated[str, Query(alias="logType")] = "",
    lastlines: LastLines = None,
) -> Response:
    """Return the log as text. If ``Accept`` names JSON before text, return it as one JSON string.

    Without ``logType`` the log is the metric lines, or what the script printed, as the framework of the job says.
    ``outlog`` is what the script printed. The log of a gang is that of its rank 0.
    """
    pieces = logs.text(execs.job(platform, exec_id, viewer=viewer), log_type, lastlines)
    if _prefers_json(request.headers.get("accept", "")):
        return StreamingResponse(concurrency.files.pieces(logs.as_json(pieces)), media_type="application/json")
    return StreamingResponse(concurrency.files.pieces(pieces), media_type="text/plain; charset=utf-8")


@router.get("/{exec_id}/result", response_class=Response, responses={200: _FILE})
def result(platform: ThePlatform, viewer: Viewer, exec_id: str) -> Response:
    """Return the files that the job saved under RESULT_DIR/model, as a zip. For a running job: the files so far."""
    job = execs.job(platform, exec_id, viewer=viewer)
    found = results.result(job)
    headers = {"Content-Disposition": results.disposition(job, found.size), "Content-Length": str(found.size)}
    return StreamingResponse(
        concurrency.files.pieces(found.chunks()), media_type="application/octet-stream", headers=headers
    )


def _prefers_json(accept: str) -> bool:
    """Whether ``application/json`` comes before any ``text/…``. An empty header and ``*/*`` mean text."""
    for kind in accept.split(","):
        name = kind.partition(";")[0].strip().lower()
        if name == "application/json":
            return True
        if name.startswith("text/"):
            return False
    return False
