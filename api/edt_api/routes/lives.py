"""A job's life beyond one run: ``/api/v1/jobs/{id}/pause``, ``resume`` and ``extend``.

The answers say what happens now, in a sentence that the CLI and the pages show.
"""

from __future__ import annotations

import json
import uuid
from functools import partial

from fastapi import APIRouter

from edt_api import concurrency, to_wire
from edt_api.dependencies import TheKey, ThePlatform, TheSubmits, Viewer
from edt_api.errors import TooLarge
from edt_api.routes.execs import hand_in, removed
from edt_api.schemas import jobs
from edt_api.submissions.keras2 import asks_nobody, keras2_spelling, with_keras2
from edt_scheduler.errors import JobOver
from edt_scheduler.home import copying
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.states import JobStatus
from edt_scheduler.operations import execs, lives
from edt_scheduler.operations.submitting import StagedSubmission
from edt_scheduler.platform import Platform
from edt_scheduler.views import JobView, UserView

router = APIRouter(prefix="/api/v1/jobs")

_HOLDS_SLOTS = frozenset({JobStatus.STARTING, JobStatus.RUNNING})


@router.post("/{exec_id}/pause")
def pause(platform: ThePlatform, viewer: Viewer, exec_id: str) -> jobs.Changed:
    """Pause a job: its engines leave at the next step with a checkpoint, and it gets no slot until it is resumed.

    The processes of a gang, or of a script that trains in a loop of its own, are asked to end, and start again from the
    beginning of their script.
    """
    job = lives.pause(platform, exec_id, viewer=viewer)
    later = f"`edt resume {exec_id}` lets it go on"
    if job.status is JobStatus.PAUSED:
        message = f"{exec_id} is paused: it gets no slot; {later}"
    elif job.gang is None and job.engines is not None:
        message = f"{exec_id} is pausing: its engines leave at the next step with a checkpoint; {later}"
    else:
        grace = f"{platform.settings.grace_seconds:g} s"
        message = (
            f"{exec_id} is pausing: its processes are asked to end, and killed after {grace}; `edt resume {exec_id}` "
            "starts it again from the beginning of its script, which may have kept checkpoints of its own"
        )
    return _changed(job, message)


@router.post("/{exec_id}/resume")
def resume(platform: ThePlatform, viewer: Viewer, exec_id: str) -> jobs.Changed:
    """Let a paused job go on: it waits for slots as before, unless it has not begun to leave those that it holds."""
    job = lives.go_on(platform, exec_id, viewer=viewer)
    how = "goes on from its newest checkpoint" if job.checkpoint_step is not None else "starts"
    if job.status in _HOLDS_SLOTS:
        message = f"{exec_id} goes on; if it is leaving its slots already, it {how} as soon as it has some again"
    else:
        message = f"{exec_id} waits for slots and {how} as soon as it has some"
    return _changed(job, message)


@router.post("/{exec_id}/extend")
async def extend(
    platform: ThePlatform,
    viewer: Viewer,
    submits: TheSubmits,
    exec_id: str,
    wanted: jobs.Epochs,
    key: TheKey = None,
) -> jobs.Changed:
    """Give a job's training another number of epochs in all.

    A running training leaves at its next step with a checkpoint and goes on with that number. For a job that is over,
    a new job with the same code and arguments is submitted, which begins from its checkpoint; the answer has that job.
    A request with an ``Idempotency-Key`` may be sent again.
    """
    try:
        job = await concurrency.bulk.run(partial(lives.extend, platform, exec_id, epochs=wanted.epochs, viewer=viewer))
    except JobOver:
        job = await _new_job(platform, submits, viewer, exec_id, wanted, key)
        return _changed(job, f"{job.exec_id} goes on where {exec_id} ended, with {wanted.epochs} epochs in all")
    if job.paused_at is not None:
        how = f"it is paused, and trains them once `edt resume {exec_id}` lets it go on"
    elif job.status in _HOLDS_SLOTS:
        how = "its engines leave at the next step with a checkpoint, and go on with that a second or two later"
    else:
        how = "it holds no slot now, and trains them when it does"
    return _changed(job, f"{exec_id} has {wanted.epochs} epochs in all: {how}")


async def _new_job(
    platform: Platform,
    submits: concurrency.Gathered[StagedSubmission, JobView],
    viewer: UserView,
    exec_id: str,
    wanted: jobs.Epochs,
    key: str | None,
) -> JobView:
    """Submit a job that goes on where one that is over ended."""
    request = None
    if key is not None:
        request = await concurrency.bulk.run(_idempotent, platform, key, exec_id, wanted)
        find = partial(execs.submitted_before, platform, owner=viewer, request=request)
        if (before := await concurrency.bulk.run(find)) is not None:
            return before
    staged = platform.settings.staged / uuid.uuid4().hex
    try:
        made = await concurrency.bulk.run(
            partial(
                lives.as_new_job,
                platform,
                exec_id,
                epochs=wanted.epochs,
                environ=wanted.environ,
                viewer=viewer,
                staged=staged,
            )
        )
        spec = made.spec
        if asks_nobody(spec):
            script = staged / (spec.model_dir or ".") / spec.model_main
            why = await concurrency.unpacking.run(keras2_spelling, script)
            spec = with_keras2(spec, why) if why is not None else spec
    except BaseException as error:
        await removed(staged)
        if isinstance(error, copying.TooLarge):
            raise TooLarge(
                f"the code of {exec_id} cannot be copied with what the job wrote beside it: {error}. Submit the code "
                f"again with --resume-from {exec_id}"
            ) from None
        raise
    return await hand_in(submits, StagedSubmission(viewer, spec, staged, request, made.begin))


def _idempotent(platform: Platform, key: str, exec_id: str, wanted: jobs.Epochs) -> IdempotentRequest:
    keyed = platform.secret_key.keys().keyed  # the variables may be secrets
    environ = json.dumps(wanted.environ, sort_keys=True)
    return IdempotentRequest.of(key, "POST extend", exec_id, str(wanted.epochs), environ, keyed=keyed)


def _changed(job: JobView, message: str) -> jobs.Changed:
    return jobs.Changed(job=to_wire.job(job), message=message)
