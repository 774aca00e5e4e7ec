"""When the periodic tasks run: while this scheduler leads. Room: scheduler. Owns two threads and a worker process.

With a broker, Celery's beat sends a message for each task on its period, from a thread of this process, and the worker
(``task_worker``) runs it; both exist only while this scheduler leads. A message dies after one period, so that missed
ones do not pile up. Tasks that no worker has begun for OVERDUE_PERIODS of their periods (the broker is away, or the
worker) are run here, in the thread that watches the worker. Without a broker that thread runs all of them on their
periods. Nothing of this is in the way of a decision.

Two schedulers may take themselves for the leader for a moment; then tasks run twice, which they bear (``tasks``).
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any

from celery import beat

from edt_scheduler.broker import TASKS_QUEUE, celery_app
from edt_scheduler.child import Child
from edt_scheduler.house import House
from edt_scheduler.tasks import TASKS, Runner, Task

log = logging.getLogger("edt.tasks")

FIRST_SECONDS = 2.0
"""So soon after a scheduler begins to lead all tasks run: the one before it may have died long ago."""
OVERDUE_PERIODS = 3
"""A task that the worker has not begun for so many of its periods is run by the scheduler itself."""
_WATCH_SECONDS = 1.0
_END_SECONDS = 1.0


class Timetable:
    """Which tasks this process is to run. Pure: instants are seconds of one monotonic clock, handed in.

    ``periods``: so many periods after its last beginning a task is due.
    """

    def __init__(self, tasks: Iterable[Task], now: float, periods: int = 1) -> None:
        self._periods = periods
        self._due = {task: now + FIRST_SECONDS + (periods - 1) * task.period_seconds for task in tasks}

    def due(self, now: float) -> list[Task]:
        """What is to run now, the longest overdue first."""
        return [task for task, at in sorted(self._due.items(), key=lambda item: item[1]) if at <= now]

    def began(self, task: Task, now: float) -> None:
        """It runs from now on, here or elsewhere, however long it takes."""
        self._due[task] = now + self._periods * task.period_seconds

    def rest(self, now: float) -> float:
        """Seconds until something is due."""
        return max(0.0, min(self._due.values(), default=now + 60.0) - now)


class Beat:
    """Has the tasks run on their periods for the length of a ``with`` block."""

    def __init__(
        self, house: House, tasks: Iterable[Task] = TASKS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        broker_url = house.settings.broker_url
        self._runner = Runner(house)
        self._monotonic = monotonic
        self._tasks = {task.name: task for task in tasks}
        self._timetable = Timetable(self._tasks.values(), monotonic(), OVERDUE_PERIODS if broker_url else 1)
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._worker: Child | None = None
        self._sender: Any = None
        if broker_url:
            self._worker = Child("edt_scheduler.task_worker", "the periodic tasks' worker", self._writing, {})
            self._sender = beat.EmbeddedService(
                _sending(broker_url, self._tasks.values()), thread=True, scheduler_cls=_Sender
            )
        self._alone = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)

    def __enter__(self) -> Beat:
        self._thread.start()
        if self._sender is not None:
            self._sender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A task that runs is not waited for, and the worker is killed: its tasks bear that at any instant."""
        self._ended.set()
        if self._sender is not None:
            self._sender.service.stop()
        os.write(self._writing, b"\n")
        self._thread.join(_END_SECONDS)
        if self._worker is not None:
            self._worker.kill()
        if not self._thread.is_alive():
            os.close(self._reading)
            os.close(self._writing)

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._worker is not None:
                self._worker.keep()
            self._hear(self._timetable.rest(self._monotonic()))
            for task in self._timetable.due(self._monotonic()):
                if self._ended.is_set():
                    return
                self._timetable.began(task, self._monotonic())
                if self._worker is not None and not self._alone:
                    log.warning("no worker takes the periodic tasks; until one does, this scheduler runs them itself")
                    self._alone = True
                self._runner.run(task)

    def _hear(self, seconds: float) -> None:
        """Wait, and note which tasks the worker has begun meanwhile."""
        watched = min(seconds, _WATCH_SECONDS) if self._worker is not None else seconds
        ready, _, _ = select.select([self._reading], [], [], watched)
        if not ready:
            return
        begun = [name for name in os.read(self._reading, 1 << 16).decode().split("\n") if name in self._tasks]
        for name in begun:
            self._timetable.began(self._tasks[name], self._monotonic())
        if begun and self._alone:
            log.info("a worker takes the periodic tasks again")
            self._alone = False


def _sending(broker_url: str, tasks: Iterable[Task]) -> Any:
    """The application of beat, with its schedule: held in memory, since all tasks run soon after a start."""
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
    """Celery's scheduler. A broker that does not answer costs one period, and no word: ``Beat`` sees that nothing has
    begun, and the relay of notifications says why."""

    producer = None
    """Celery would wait for a connection here and lose the task if there is none; so each message takes its own."""

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send the message of a task that is due."""
        try:
            self.apply_async(entry, advance=False)
        except Exception as error:
            log.debug("%s is not sent: %s", entry.name, error)

    def close(self) -> None:
        """At the end of the thread."""
        super().close()
        self.app.close()
