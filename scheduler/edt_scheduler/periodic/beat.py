"""Runs the periodic tasks while this scheduler leads. Owns three threads and a worker process.

With a broker, a thread of this process runs Celery's beat, which sends a message for each task on its period. The
worker (``worker``) runs the tasks. Beat and worker exist only while this scheduler leads. The worker writes to a pipe
when a task begins and when it ends. A second thread reads this pipe and keeps the worker running. If no worker takes
tasks (``Taking``), a third thread runs them here. It is a separate thread, since a task that hangs on a dead network
disk must not delay the thread that keeps the worker. Without a broker the third thread runs all tasks. None of this
delays a decision.

The broker keeps a message until a worker takes it, even after the message has expired. So beat removes all waiting
messages before it sends its first one. While no worker takes tasks, beat removes them before each message. The next
worker then finds only the newest message.

For a moment two schedulers may both believe that they lead. Then tasks run twice, which does no harm (``tasks``).
"""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any

from celery import beat

from edt_contract.processes import wake
from edt_scheduler.notify.broker import TASKS_QUEUE, celery_app
from edt_scheduler.notify.child import Child
from edt_scheduler.periodic.tasks import BEGUN, ENDED, TASKS, Runner, Task
from edt_scheduler.platform import Platform

log = logging.getLogger("edt.tasks")

FIRST_SECONDS = 2.0
"""This many seconds after a scheduler begins to lead, all tasks run: the earlier leader may have died long ago."""
QUIET_PERIODS = 3
"""How long a worker may report nothing before it counts as taking no tasks.

The time is this many of the tasks' shortest period, plus the limit of the task that the worker runs.
"""
_WATCH_SECONDS = 1.0
_END_SECONDS = 1.0


class Timetable:
    """Which tasks are due. Pure: the caller hands in all times, as seconds of one monotonic clock."""

    def __init__(self, tasks: Iterable[Task], now: float) -> None:
        self._due = dict.fromkeys(tasks, now + FIRST_SECONDS)

    def due(self, now: float) -> list[Task]:
        """The tasks that should run now, the longest overdue first."""
        return [task for task, at in sorted(self._due.items(), key=lambda item: item[1]) if at <= now]

    def began(self, task: Task, now: float) -> None:
        """Note that the task begins now, here or in the worker. How long it takes does not matter."""
        self._due[task] = now + task.period_seconds

    def rest(self, now: float) -> float:
        """Seconds until a task is due."""
        return max(0.0, min(self._due.values(), default=now + 60.0) - now)


class Taking:
    """Whether the worker takes tasks. Pure: times as for ``Timetable``. The worker runs one task at a time."""

    def __init__(self, tasks: Iterable[Task], now: float) -> None:
        self._patience = QUIET_PERIODS * min(task.period_seconds for task in tasks)
        self._reported_at = now
        self.running: Task | None = None
        """The task that the worker runs.

        A task that is killed at its limit reports no end, so it stays here until the next one begins.
        """

    def began(self, task: Task, now: float) -> None:
        """Note that the worker reported the beginning of a task."""
        self.running, self._reported_at = task, now

    def ended(self, now: float) -> None:
        """Note that the worker reported the end of its task, or that the worker itself ended."""
        if self.running is not None:
            self.running, self._reported_at = None, now

    def nobody(self, now: float) -> bool:
        """Whether no worker takes tasks.

        Reasons: none has begun a task, the broker is away, or the worker hangs and cannot be killed.
        """
        limit = self.running.limit_seconds if self.running is not None else 0.0
        return now >= self._reported_at + limit + self._patience


class Beat:
    """Runs the tasks on their periods for the length of a ``with`` block.

    Args:
        platform: database, notifications and settings.
        tasks: the tasks to run.
    """

    def __init__(self, platform: Platform, tasks: Iterable[Task] = TASKS) -> None:
        broker_url = platform.settings.broker_url
        self._runner = Runner(platform)
        self._tasks = {task.name: task for task in tasks}
        self._timetable = Timetable(self._tasks.values(), time.monotonic())
        self._taking = Taking(self._tasks.values(), time.monotonic())
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._worker: Child | None = None
        self._worker_pid: int | None = None
        self._sender: Any = None
        self._alone = not broker_url
        """Whether this process runs the tasks."""
        if broker_url:
            self._worker = Child("edt_scheduler.periodic.worker", "the periodic tasks' worker", self._writing, {})
            self._sender = beat.EmbeddedService(
                _sending(broker_url, self._tasks.values()),
                thread=True,
                scheduler_cls=partial(_Sender, lambda: self._alone),
            )
        self._ended = threading.Event()
        self._turns: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._busy = False
        """Whether a task runs in this process."""
        self._threads = (
            threading.Thread(target=self._watch, name="tasks-watch", daemon=True),
            threading.Thread(target=self._run, name="tasks", daemon=True),
        )

    def __enter__(self) -> Beat:
        for thread in self._threads:
            thread.start()
        if self._sender is not None:
            self._sender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the threads and kill the worker, without waiting for a task: a task may end at any point."""
        self._ended.set()
        if self._sender is not None:
            self._sender.service.stop()
        self._turns.put(None)
        wake(self._writing, b"\n")
        for thread in self._threads:
            thread.join(_END_SECONDS)
        if self._worker is not None:
            self._worker.kill()
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self._reading)
            os.close(self._writing)

    def _watch(self) -> None:
        while not self._ended.is_set():
            self._keep_worker()
            self._receive(_WATCH_SECONDS if self._busy or not self._alone else self._timetable.rest(time.monotonic()))
            self._take_over()
            if self._alone and not self._busy:
                self._hand_out()

    def _keep_worker(self) -> None:
        if self._worker is None:
            return
        self._worker.keep()
        if self._worker.pid != self._worker_pid:
            self._worker_pid = self._worker.pid
            self._taking.ended(time.monotonic())

    def _receive(self, seconds: float) -> None:
        """Wait, and note which tasks the worker has begun and ended."""
        watched = min(seconds, _WATCH_SECONDS) if self._worker is not None else seconds
        ready, _, _ = select.select([self._reading], [], [], watched)
        if not ready:
            return
        for line in os.read(self._reading, 1 << 16).decode().split("\n"):
            word, _, name = line.partition(" ")
            if word == BEGUN and name in self._tasks:
                self._taking.began(self._tasks[name], time.monotonic())
                self._timetable.began(self._tasks[name], time.monotonic())
            elif word == ENDED:
                self._taking.ended(time.monotonic())

    def _take_over(self) -> None:
        """Run the tasks in this process while no worker takes them."""
        alone = self._worker is None or self._taking.nobody(time.monotonic())
        if alone and not self._alone:
            log.warning("no worker takes the periodic tasks; until one does, this scheduler runs them itself")
        elif self._alone and not alone:
            log.info("a worker takes the periodic tasks again")
        self._alone = alone

    def _hand_out(self) -> None:
        """Begin one task that is due. A task in which the worker hangs is not begun here."""
        for task in self._timetable.due(time.monotonic()):
            self._timetable.began(task, time.monotonic())
            if task is not self._taking.running:
                self._busy = True
                self._turns.put(task)
                return

    def _run(self) -> None:
        while (task := self._turns.get()) is not None and not self._ended.is_set():
            self._runner.run(task)
            self._busy = False
            wake(self._writing, b"\n")


def _sending(broker_url: str, tasks: Iterable[Task]) -> Any:
    """Beat's Celery application with its schedule.

    The schedule is only in memory, since all tasks run soon after a start.
    """
    app = celery_app(broker_url, sends=True)
    app.conf.beat_schedule = {
        task.name: {
            "task": task.name,
            "schedule": task.period_seconds,
            "last_run_at": app.now() - timedelta(seconds=task.period_seconds - FIRST_SECONDS),
            "options": {"queue": TASKS_QUEUE, "expires": task.period_seconds, "ignore_result": True},
        }
        for task in tasks
    }
    return app


class _Sender(beat.Scheduler):  # type: ignore[misc]  # Celery has no types
    """Celery's beat scheduler, which does not wait for a broker that does not answer.

    A broker that does not answer costs a task one period, and this class logs it for debugging only. ``Beat`` notices
    that no task has begun, and the relay of notifications logs why.

    Args:
        nobody_takes: returns whether no worker takes the messages.
        args: arguments of Celery's class.
        options: keyword arguments of Celery's class.
    """

    producer = None
    """Celery would wait for a connection here and lose the task without one. So each message has its own."""

    def __init__(self, nobody_takes: Callable[[], bool], *args: Any, **options: Any) -> None:
        self._nobody_takes = nobody_takes
        self._begun = False
        super().__init__(*args, **options)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the message of a task that is due."""
        try:
            if not self._begun or self._nobody_takes():
                self._purge()
                self._begun = True
            self.apply_async(entry, advance=False)
        except Exception as error:
            log.debug("%s is not sent: %s", entry.name, error)

    def _purge(self) -> None:
        with self.app.connection_for_write() as connection:
            connection.default_channel.queue_purge(TASKS_QUEUE)

    def close(self) -> None:
        """Close the application when beat's thread ends."""
        super().close()
        self.app.close()
