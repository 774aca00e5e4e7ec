"""When the periodic tasks run: while this scheduler leads. Room: scheduler. Owns a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from edt_scheduler.house import House
from edt_scheduler.tasks import TASKS, Runner, Task

FIRST_SECONDS = 5.0
"""So soon after a scheduler begins to lead all tasks run: the one before it may have died long ago."""
_END_SECONDS = 1.0


class Timetable:
    """Which tasks are due. Pure: instants are seconds of one monotonic clock, handed in."""

    def __init__(self, tasks: Iterable[Task], now: float) -> None:
        self._due = dict.fromkeys(tasks, now + FIRST_SECONDS)

    def due(self, now: float) -> list[Task]:
        """What is to run now, the longest overdue first."""
        return [task for task, at in sorted(self._due.items(), key=lambda item: item[1]) if at <= now]

    def began(self, task: Task, now: float) -> None:
        """It runs from now on: it is due again a period later, however long it takes."""
        self._due[task] = now + task.period_seconds

    def rest(self, now: float) -> float:
        """Seconds until something is due."""
        return max(0.0, min(self._due.values(), default=now + 60.0) - now)


class Beat:
    """Runs the tasks on their periods for the length of a ``with`` block, in a thread of its own."""

    def __init__(
        self, house: House, tasks: Iterable[Task] = TASKS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._runner = Runner(house)
        self._monotonic = monotonic
        self._timetable = Timetable(tasks, monotonic())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)

    def __enter__(self) -> Beat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A task that runs is not waited for: it does no harm beside the next leader's."""
        self._ended.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while not self._ended.wait(self._timetable.rest(self._monotonic())):
            for task in self._timetable.due(self._monotonic()):
                if self._ended.is_set():
                    return
                self._timetable.began(task, self._monotonic())
                self._runner.run(task)
