"""Answers from the plan itself: why a job waits or has as many slots, a dry run, and what if.

They are computed in other processes, because they plan again and again.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from fastapi import APIRouter

from edt_api import concurrency
from edt_api.dependencies import ReadingViewer, ThePlatform, Viewer
from edt_api.schemas import answers as shapes
from edt_api.submissions.placing import placed
from edt_api.submissions.submission import check_data_folder, read
from edt_scheduler.answers import changes
from edt_scheduler.answers.suggestions import Suggestion
from edt_scheduler.answers.why import Explained
from edt_scheduler.model.nodes import Device
from edt_scheduler.operations import answers
from edt_scheduler.operations import frameworks as catalogue
from edt_scheduler.plan.queues import Sharing
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView

router = APIRouter(prefix="/api/v1")

_KINDS: dict[str, type[Any]] = {
    kind.kind: kind
    for kind in (
        changes.MoreSlots,
        changes.NodeLess,
        changes.NodeOpened,
        changes.JobWith,
        changes.JobStopped,
        changes.JobResumed,
        changes.QueueWith,
        changes.NewJob,
    )
}


@router.get("/jobs/{exec_id}/explanation")
async def explanation(platform: ThePlatform, viewer: Viewer, exec_id: str) -> shapes.Explained:
    """Explain why a job waits, or why it has as many slots as it has, by the plan that the scheduler would make now.

    For a job that waits: its rank, the rule, what blocks it, a verdict on each node, what would start it now, and when
    it is expected to start. Every change that the answer suggests was tried on the present state.
    """
    asked = await concurrency.bulk.run(partial(answers.explain, platform, exec_id, viewer=viewer))
    return _explained(await concurrency.answers.run(answers.answered, asked), viewer)


@router.post("/dry-run")
async def dry_run(platform: ThePlatform, viewer: Viewer, wanted: shapes.DryRunRequest) -> shapes.DryRun:
    """Say what would become of a submission now, without its code: whether it starts, where and when, and whose slots
    it would take. Nothing is stored. The script itself is not looked at.
    """
    asked = await concurrency.bulk.run(partial(_dry_run, platform, viewer, wanted.args))
    found = await concurrency.answers.run(answers.answered, asked)
    told = _explained(found.explained, viewer)
    return shapes.DryRun.model_validate({**vars(found), "explained": told}, from_attributes=True)


def _dry_run(platform: Platform, viewer: UserView, args: str) -> answers.Asked[answers.DryRun]:
    submission = placed(platform, viewer, read(args, None, (), partial(catalogue.find, platform)))
    check_data_folder(submission, platform.settings.data)
    return answers.dry_run(platform, submission, owner=viewer)


@router.post("/what-if")
async def what_if(platform: ThePlatform, viewer: ReadingViewer, wanted: shapes.WhatIfRequest) -> shapes.WhatIf:
    """Say what would be different with these changes, all of them together: who grows, shrinks, starts earlier or
    later. Nothing is changed.
    """
    assumed = [_change(each) for each in wanted.changes]
    asked = await concurrency.bulk.run(partial(answers.ask_what_if, platform, assumed, viewer=viewer))
    return shapes.WhatIf.model_validate(await concurrency.answers.run(answers.answered, asked), from_attributes=True)


def _change(wanted: shapes.Change) -> changes.Change:
    """Return the change that a request asks for."""
    given = wanted.model_dump(exclude={"kind"})
    if given.get("models") is not None:
        given["models"] = tuple(given["models"])
    if isinstance(wanted, shapes.MoreSlots | shapes.NewJob) and wanted.device is not None:
        given["device"] = Device(wanted.device)
    if given.get("policy") is not None:
        given["policy"] = Sharing(given["policy"])
    change: changes.Change = _KINDS[wanted.kind](**given)
    return change


def _explained(found: Explained, viewer: UserView) -> shapes.Explained:
    suggested = [{**vars(each), "command": _command(each, viewer)} for each in found.changes]
    return shapes.Explained.model_validate({**vars(found), "changes": suggested}, from_attributes=True)


def _command(found: Suggestion, viewer: UserView) -> str:
    """Return the command that makes a change; "": there is none, or the viewer may not give it."""
    if found.resubmit or not viewer.may_change:
        return ""
    match change := found.change:
        case changes.JobStopped(job):
            return f"edt stop {job}"
        case changes.JobResumed(job):
            return f"edt resume {job}"
        case changes.JobWith(job) if change.min is not None:
            return f"edt resize {job} --min {change.min}"
        case changes.JobWith(job) if change.max is not None:
            return f"edt resize {job} --max {change.max}"
        case changes.JobWith(job) if change.priority is not None and viewer.is_admin:
            return f"edt resize {job} --priority {change.priority}"
        case changes.NodeOpened(node) if viewer.is_admin:
            return f"edt nodes uncordon {shlex.quote(node)}"
        case changes.QueueWith(queue) if viewer.is_admin and change.quota is not None:
            return f"edt queue set {shlex.quote(queue or '/')} --quota {change.quota}"
        case changes.QueueWith(queue) if viewer.is_admin and change.limit is not None:
            return f"edt queue set {shlex.quote(queue or '/')} --limit {change.limit}"
    return ""
