"""The worker process of the periodic tasks: a Celery worker with one process in its pool. Opens the database.

``beat`` alone starts it, as ``python -m edt_scheduler.periodic.worker PARENT FD``. The worker takes home, database and
broker from the same EDT_ settings as its parent, so no secret stands in its command line. A task that takes longer than
its limit is killed together with the pool's process, and Celery starts another process for the pool. The worker writes
to FD when a task begins and when it has ended, so the parent knows that a worker runs the tasks. The worker dies with
its parent.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

from edt_contract.broker import begin_worker
from edt_contract.processes import die_with, wake
from edt_scheduler.notify.broker import TASKS_QUEUE, celery_app, worker
from edt_scheduler.periodic.tasks import BEGUN, ENDED, TASKS, Runner, Task
from edt_scheduler.platform import opened_platform
from edt_scheduler.settings import Settings


class Pool:
    """What the pool's process has open. Its parent process has nothing open, so the fork shares no connection."""

    def __init__(self, settings: Settings, descriptor: int) -> None:
        self._settings = settings
        self._descriptor = descriptor
        self._runner: Runner | None = None

    def open(self, **_: Any) -> None:
        """Open the platform. Legal in the pool's process, before its first task."""
        die_with(os.getppid())
        self._runner = Runner(opened_platform(self._settings))

    def run(self, task: Task) -> None:
        """Run a task, and report its beginning and its end."""
        assert self._runner is not None
        wake(self._descriptor, f"{BEGUN} {task.name}\n".encode())
        self._runner.run(task)
        wake(self._descriptor, f"{ENDED} {task.name}\n".encode())


def main(arguments: list[str]) -> int:
    """Take tasks until the parent stops this process, or until the parent itself ends.

    Args:
        arguments: the parent's process id and the descriptor to write to.

    Returns:
        The exit status.
    """
    parent, descriptor = int(arguments[0]), int(arguments[1])
    begin_worker(parent)
    logging.getLogger("edt").setLevel(logging.INFO)
    # When the broker is away, the scheduler logs that and runs the tasks itself.
    logging.getLogger("celery.worker.consumer.consumer").setLevel(logging.CRITICAL)
    settings = Settings()
    app = celery_app(settings.broker_url, sends=False)
    app.conf.update(
        worker_cancel_long_running_tasks_on_connection_loss=False,  # running a task twice does no harm
        worker_proc_alive_timeout=60,
    )
    pool = Pool(settings, descriptor)
    worker_process_init.connect(pool.open, weak=False)
    for task in TASKS:
        _register(app, pool, task)
    taking = worker(app, TASKS_QUEUE, f"tasks-{parent}", pool="prefork")
    taking.start()
    return int(taking.exitcode or 0)


def _register(app: Celery, pool: Pool, task: Task) -> None:
    @app.task(name=task.name, acks_late=True, ignore_result=True, time_limit=task.limit_seconds)  # type: ignore[untyped-decorator]
    def run() -> None:
        pool.run(task)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
