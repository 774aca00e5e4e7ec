"""Looks up what a submission names beside its code: the jobs that come before it, and until when it shall be done."""

from __future__ import annotations

from dataclasses import replace

from edt_api.errors import ArgumentsInvalid
from edt_api.submissions import scheduling
from edt_api.submissions.args import Submission
from edt_scheduler.errors import NoSuchJob
from edt_scheduler.operations import execs
from edt_scheduler.platform import Platform
from edt_scheduler.views import UserView


def placed(platform: Platform, viewer: UserView, submission: Submission) -> Submission:
    """Return the submission with its deadline as a time, after a look whether there are the jobs of ``--after``.

    Raises:
        ArgumentsInvalid: the viewer may see no job of such an id, or the deadline is past.
    """
    for name in submission.after:
        try:
            execs.job(platform, name, viewer=viewer)
        except NoSuchJob:
            got = f"{name}, which was never submitted, was deleted, or belongs to another user"
            raise ArgumentsInvalid("--after", got, scheduling.TAKES_JOBS) from None
    return replace(submission, deadline=scheduling.due(submission.due, platform.clock()))
