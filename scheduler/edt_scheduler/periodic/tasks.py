"""The periodic tasks: what the platform does by itself every now and then. Runs ``operations``.

One line a task. Its function takes the ``Platform`` and answers how many things it did. It must

* be as good done twice as once, also twice at the same time: two schedulers may lead for a moment, a message may come
  again. So it decides on what it reads in the transaction in which it writes, and a folder that is gone is no error;
* end soon: it works in batches (``in_batches``), and what is left waits for its next run;
* raise where it could not do its work: that is logged under its name, and it is tried again at its next period.

When they run, and who runs them: ``beat``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from edt_scheduler.errors import SchedulerError, Unavailable
from edt_scheduler.operations.execs import stop_jobs_of_removed_users
from edt_scheduler.operations.images import ask_for_pulls
from edt_scheduler.periodic import retention, rollups
from edt_scheduler.periodic.sweeping import sweep_changes, sweep_keys, sweep_leftovers
from edt_scheduler.platform import Platform

log = logging.getLogger("edt.tasks")

BEGUN, ENDED = "begun", "ended"
"""What a worker tells the scheduler that leads, a line each: one of these and the task's name."""


@dataclass(frozen=True)
class Task:
    """One periodic task."""

    name: str
    """``edt.<what>``: its name in the log and at the broker."""
    done: str
    """What it did some of, for the log: ``folders of deleted jobs removed``."""
    period_seconds: float
    """From one beginning to the next."""
    limit_seconds: float
    """After this it is ended, wherever it stands; at least three times what its batches may take."""
    work: Callable[[Platform], int]


TASKS: tuple[Task, ...] = (
    Task("edt.set-aside", "job folders of no known job moved, old uploads removed", 30, 300, sweep_leftovers),
    Task("edt.stop-left-jobs", "jobs stopped of users who were removed", 30, 120, stop_jobs_of_removed_users),
    Task("edt.remove-folders", "folders of deleted or old jobs removed", 30, 300, retention.remove_folders),
    Task("edt.delete-old-jobs", "jobs deleted because of their age", 300, 120, retention.delete_old_jobs),
    Task("edt.remove-old-results", "results marked to be removed for age", 300, 120, retention.remove_old_results),
    Task("edt.thin-metrics", "curves of old jobs thinned out", 600, 120, retention.thin_old_metrics),
    Task("edt.count-user-days", "sums counted of slots held, by user and day", 600, 300, rollups.count_user_days),
    Task("edt.purge-deleted", "jobs purged that were deleted long enough ago", 600, 120, retention.purge_deleted),
    Task("edt.forget-roll-ups", "sums forgotten because of their age", 3600, 120, rollups.forget_roll_ups),
    Task("edt.ask-for-images", "pulls of images asked of nodes", 30, 120, ask_for_pulls),
    Task("edt.forget-changes", "changes forgotten that everybody has seen", 120, 120, sweep_changes),
    Task("edt.forget-keys", "idempotency keys forgotten that are a day old", 600, 120, sweep_keys),
    Task("edt.forget-usage", "samples of busy slots forgotten", 600, 120, rollups.forget_usage),
)


class Runner:
    """Runs tasks in this process, one at a time, and remembers what it has said of each."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._failed: dict[str, str] = {}

    def run(self, task: Task) -> None:
        """Run it now. Raises nothing: a failure is logged, once for as long as it stays the same."""
        try:
            done = task.work(self._platform)
        except Unavailable as error:
            log.debug("%s: %s", task.name, error)  # the scheduler says it, who needs the database all the time
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
