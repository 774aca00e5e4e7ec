"""Queues, what jobs are changed to while they wait or run, and recorded decisions: ``/api/v1/queues``, ``/decisions``.

``PATCH /api/v1/jobs/{id}`` is here, too. WMLA's clients read queues as resource plans (configuration.py).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from edt_api import concurrency, to_wire
from edt_api.dependencies import AdminViewer, ThePlatform, Viewer, for_admins
from edt_api.errors import RequestInvalid
from edt_api.http import Cursor, Limit, cursor_of, number_of
from edt_api.schemas import jobs, queues
from edt_api.submissions.frameworks import shown_name
from edt_api.submissions.scheduling import queue_path
from edt_scheduler.errors import SizeInvalid
from edt_scheduler.operations import decisions
from edt_scheduler.operations import queues as operations
from edt_scheduler.operations.queue_views import DecisionView, QueueView, WaitingInQueue
from edt_scheduler.plan.queues import Sharing, parent
from edt_scheduler.views import JobView

router = APIRouter(prefix="/api/v1")

_MOST_USERS = 100


@router.get("/queues")
async def tree(platform: ThePlatform, viewer: Viewer) -> queues.Queues:
    """Return all queues with what they hold, are entitled to, and wait for.

    Everybody sees the numbers of every queue. Of users and jobs, a user sees their own; admins and viewers see all.
    """
    found = await concurrency.bulk.run(partial(operations.queues, platform, viewer=viewer))
    return queues.Queues(
        at=found.at, slots=found.slots, used=found.used, queues=[_queue(each) for each in found.queues]
    )


@router.put("/queues/{path:path}")
def put(platform: ThePlatform, viewer: AdminViewer, path: str, wanted: queues.QueueSettings) -> queues.QueueChanged:
    """Make a queue or change one. What is left out stays as it is. An empty path is the root.

    The queue above must be there. Jobs that named this queue before it was there belong to it from now on.
    """
    named = _path(path)
    unlimited = "limit" in wanted.model_fields_set and wanted.limit is None
    found = operations.put_queue(
        platform,
        named,
        quota=wanted.quota,
        weight=wanted.weight,
        limit=wanted.limit,
        unlimited=unlimited,
        policy=Sharing(wanted.policy) if wanted.policy is not None else None,
    )
    most = f"at most {found.limit} slots" if found.limit is not None else "no limit"
    message = (
        f"{found.path or 'the root'} has a quota of {found.quota}, the weight {found.weight:g}, {most}, and shares by "
        f"{found.policy}"
    )
    return queues.QueueChanged(
        path=found.path,
        quota=found.quota,
        weight=found.weight,
        limit=found.limit,
        policy=queues.QueuePolicy(found.policy),
        message=message,
    )


@router.delete("/queues/{path:path}", status_code=204, response_class=Response, dependencies=[for_admins])
def remove(platform: ThePlatform, path: str) -> None:
    """Remove a queue: its jobs belong to the queue above. The root only gets its first settings back.

    The status is 409 if there are queues below it.
    """
    operations.remove_queue(platform, _path(path))


def _path(text: str) -> str:
    found = queue_path(text)
    if found is None:
        raise RequestInvalid(f"path: got {len(text)} characters; it takes the path of a queue, such as research/vision")
    return found


def _queue(view: QueueView) -> queues.Queue:
    listed, more = view.users[:_MOST_USERS], view.users[_MOST_USERS:]
    others = {
        name: getattr(view.others, name) + sum(getattr(user, name) for user in more)
        for name in ("entitled", "held", "running", "waiting", "usage")
    }
    return queues.Queue.model_validate(
        vars(view)
        | {
            "name": view.path.rpartition("/")[2] or "root",
            "parent": parent(view.path) if view.path else None,
            "depth": view.path.count("/"),
            "policy": view.policy.value,
            "users": [queues.QueueUser.model_validate(user) for user in listed],
            "others": queues.QueueOthers(users=view.others.users + len(more), **others),
            "waiting_jobs": [_waiting(each) for each in view.waiting_jobs],
        }
    )


def _waiting(view: WaitingInQueue) -> queues.QueueWaiting:
    return queues.QueueWaiting(
        job=view.exec_id,
        owner=view.owner,
        name=shown_name(view.framework, view.app_name, view.script, view.folder, view.command),
        priority=view.priority,
        need=view.need,
        max=view.most,
        rank=view.rank,
        blocking=view.blocking,
        reason=view.reason,
        since=view.since,
    )


@router.patch("/jobs/{exec_id}")
def change(platform: ThePlatform, viewer: Viewer, exec_id: str, wanted: queues.JobChange) -> jobs.Changed:
    """Change the fewest and the most slots of a job that waits or runs, or its priority. What is left out stays.

    Only the job's owner and admins may do so. The owner may set at most the priority with which the job was submitted;
    an admin may set any.
    """
    if not wanted.model_fields_set:
        raise RequestInvalid("the body: got nothing to change; it takes min_workers, max_workers and priority")
    try:
        job = operations.change_job(
            platform,
            exec_id,
            viewer=viewer,
            min_slots=wanted.min_workers,
            max_slots=wanted.max_workers,
            priority=wanted.priority,
        )
    except SizeInvalid as error:
        field = f"{error.field}_workers"  # as it is called here
        raise SizeInvalid(field, str(error).removeprefix(f"{error.field}: ")) from None
    return jobs.Changed(job=to_wire.job(job), message=_told(job, wanted))


def _told(job: JobView, wanted: queues.JobChange) -> str:
    """Return what holds now, in a sentence."""
    said = []
    if wanted.min_workers is not None or wanted.max_workers is not None:
        said.append(f"{job.min_slots} to {job.max_slots} slots")
    if wanted.priority is not None:
        said.append(f"the priority {job.priority}")
    return f"{job.exec_id} has {' and '.join(said)} from now on"


@router.get("/decisions", dependencies=[for_admins])
def listing(
    platform: ThePlatform,
    limit: Limit = 100,
    cursor: Cursor = None,
    job: Annotated[str | None, Query(max_length=64, description="Only decisions about this job.")] = None,
) -> queues.DecisionPage:
    """List the recorded decisions that changed something, newest first. They are kept for some time."""
    page = decisions.decisions(platform, limit=limit, before=number_of("decisions", cursor), job=job)
    return queues.DecisionPage(
        items=[_decision(each) for each in page.decisions], next=cursor_of("decisions", page.before)
    )


@router.get("/decisions/{number}", dependencies=[for_admins])
async def decision(platform: ThePlatform, number: Annotated[int, Path(ge=1, le=2**62)]) -> queues.RecordedDecision:
    """Return one decision with what went into it and what came out, and whether the same comes out again now."""
    found = await concurrency.bulk.run(decisions.decision, platform, number)
    return queues.RecordedDecision(
        **vars(_decision(found.view)),
        state=dict(found.state),
        plan=dict(found.plan),
        same=not found.differences,
        differences=list(found.differences),
        seconds=found.seconds,
    )


def _decision(view: DecisionView) -> queues.Decision:
    return queues.Decision(
        id=view.number,
        at=view.at,
        bytes=view.bytes,
        actions=[
            queues.DecisionAction(
                job=each.exec_id, verb=each.verb, before=each.before, after=each.after, cause=each.cause
            )
            for each in view.actions
        ],
    )
