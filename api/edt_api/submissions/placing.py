"""Looks up what a submission names beside its code: its queue, the jobs that come before it, and its deadline."""

from __future__ import annotations

from dataclasses import replace

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions import scheduling
from edt_api.submissions.args import Submission
from edt_scheduler.errors import NoSuchJob
from edt_scheduler.model.queues import belongs_to
from edt_scheduler.operations import execs, queues
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView


def placed(platform: Platform, viewer: UserView, submission: Submission) -> Submission:
    """Return the submission with its deadline as a time, and with a remark if its queue is not there. Looks whether
    there are the jobs of ``--after``.

    Raises:
        ArgumentsInvalid: the viewer may see no job of such an id, or the deadline is past.
    """
    for name in submission.after:
        try:
            execs.job(platform, name, viewer=viewer)
        except NoSuchJob:
            got = f"{name}, which was never submitted, was deleted, or belongs to another user"
            raise ArgumentsInvalid("--after", got, scheduling.TAKES_JOBS) from None
    remarks = (submission.remark, _elsewhere(platform, submission))
    return replace(
        submission,
        deadline=scheduling.due(submission.due, platform.clock()),
        remark="; ".join(filter(None, remarks)) or None,
    )


def _elsewhere(platform: Platform, submission: Submission) -> str:
    """Return a sentence if the job does not belong to the queue that it names.

    WMLA's clients name a consumer also where there are no queues. That is no remark.
    """
    if not submission.queue:
        return ""
    known = queues.paths(platform)
    found = belongs_to(submission.queue, known)
    wanted = len(known) > 1 or any(name == "--queue" for name, _ in submission.options)
    if found == submission.queue or not wanted:
        return ""
    return f"there is no queue {submission.queue}: the job belongs to {found or 'the root'} until there is"
