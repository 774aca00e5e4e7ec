"""The periodic tasks: what the platform does by itself from time to time. Runs ``operations``.

Each task is one line of TASKS. Its function takes the ``Platform`` and returns how many things it did. The function
must keep three rules:

* It does no harm when it runs twice, even twice at the same time: two schedulers may lead for a moment, and a message
  may come again. So it decides by what it reads in the transaction in which it writes, and a folder that is gone is no
  error.
* It ends soon: it works in batches (``in_batches``), and what is left waits for its next run.
* It raises if it could not do its work. The failure is logged under the task's name, and the task runs again at its
  next period.

``beat`` decides when the tasks run, and in which process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from edt_scheduler.errors import SchedulerError, Unavailable
from edt_scheduler.operations.answers import estimate_starts
from edt_scheduler.operations.execs import end_never_started_jobs, stop_jobs_of_removed_users
from edt_scheduler.operations.images import ask_for_pulls
from edt_scheduler.periodic import retention, rollups
from edt_scheduler.periodic.sweeping import sweep_changes, sweep_keys, sweep_leftovers, sweep_tokens
from edt_scheduler.platform import Platform

log = logging.getLogger("edt.tasks")

BEGUN, ENDED = "begun", "ended"
"""The words that a worker writes to the scheduler that leads: one of these and the task's name, one line each."""


@dataclass(frozen=True)
class Task:
    """One periodic task."""

    name: str
    """``edt.<what>``: the task's name in the log and at the broker."""
    done: str
    """What the task counts, for the log: ``folders of deleted jobs removed``."""
    period_seconds: float
    """Seconds from one beginning to the next."""
    limit_seconds: float
    """Seconds after which a run is killed, at any point; at least three times as long as its batches may take."""
    work: Callable[[Platform], int]
    """The function that does the work; returns how many things it did."""


TASKS: tuple[Task, ...] = (
    Task("edt.set-aside", "job folders of no known job moved, old uploads removed", 30, 300, sweep_leftovers),
    Task("edt.stop-left-jobs", "jobs stopped of users who were removed", 30, 120, stop_jobs_of_removed_users),
    Task("edt.end-never-started", "jobs ended that waited too long for their start", 10, 120, end_never_started_jobs),
    Task("edt.estimate-starts", "starts estimated of jobs that wait", 10, 120, estimate_starts),
    Task("edt.remove-folders", "folders of deleted or old jobs removed", 30, 300, retention.remove_folders),
    Task("edt.delete-old-jobs", "jobs deleted because of their age", 300, 120, retention.delete_old_jobs),
    Task("edt.remove-old-results", "results marked to be removed for age", 300, 120, retention.remove_old_results),
    Task("edt.thin-metrics", "curves of old jobs thinned out", 600, 120, retention.thin_old_metrics),
    Task("edt.count-user-days", "sums counted of slots held, by user and day", 600, 300, rollups.count_user_days),
    Task("edt.purge-deleted", "jobs purged that were deleted long enough ago", 600, 120, retention.purge_deleted),
    Task("edt.forget-roll-ups", "sums forgotten because of their age", 3600, 120, rollups.forget_roll_ups),
    Task("edt.ask-for-images", "pulls of images asked of nodes", 30, 120, ask_for_pulls),
    Task("edt.forget-changes", "changes forgotten because of their age", 120, 120, sweep_changes),
    Task("edt.forget-keys", "idempotency keys forgotten that are a day old", 600, 120, sweep_keys),
    Task("edt.forget-tokens", "expired tokens forgotten", 600, 120, sweep_tokens),
    Task("edt.count-queue-usage", "sums of queues' usage added to", 60, 120, rollups.count_queue_usage),
    Task("edt.forget-decisions", "records of decisions forgotten", 600, 120, rollups.forget_decisions),
    Task("edt.forget-speeds", "measured speeds forgotten because of their age", 3600, 120, rollups.forget_speeds),
    Task("edt.forget-requests", "requests forgotten for nodes that are gone", 3600, 120, rollups.forget_requests),
    Task("edt.forget-usage", "samples of busy slots forgotten", 600, 120, rollups.forget_usage),
)


class Runner:
    """Runs tasks in this process, one at a time. Remembers the last failure of each task, so that it is logged once."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._failed: dict[str, str] = {}

    def run(self, task: Task) -> None:
        """Run the task now. Raises nothing: a failure is logged, once for as long as it stays the same."""
        try:
            done = task.work(self._platform)
        except Unavailable as error:
            log.debug("%s: %s", task.name, error)  # the scheduler's loop logs this
            return
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if self._failed.get(task.name) != failure:
                foreseen = isinstance(error, SchedulerError | OSError)
                log.error(
                    "%s failed: %s; it is tried again every %g s",
                    task.name,
                    error,
                    task.period_seconds,
                    exc_info=None if foreseen else error,
                )
            self._failed[task.name] = failure
            return
        if self._failed.pop(task.name, None):
            log.info("%s works again", task.name)
        if done:
            log.info("%s: %d %s", task.name, done, task.done)
