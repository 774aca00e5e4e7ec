"""Looking at the platform until something is so, with a table meanwhile. Room: examples; reads by ``client``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from edt_api.schemas import ExecState, Job, Timeline
from edt_demo.budget import Budget
from edt_demo.client import Client
from edt_demo.exits import DemoFailed, ExitCode
from edt_demo.screen import JobNow, Screen, SlotNow, Snapshot

_LOOK_SECONDS = 0.3


@dataclass(frozen=True)
class View:
    """The platform at one moment."""

    jobs: dict[str, Job]
    """By the demo's name for it."""
    timeline: Timeline


class Watch:
    """Knows the demo's jobs by name and waits for what they should do."""

    def __init__(self, client: Client, budget: Budget, screen: Screen) -> None:
        self._client, self._budget, self._screen = client, budget, screen
        self._ids: dict[str, str] = {}

    def follow(self, name: str, exec_id: str) -> None:
        """From now on ``name`` is in the table."""
        self._ids[name] = exec_id

    def until(
        self, what: str, true: Callable[[dict[str, Job]], bool], *, seconds: float, while_running: str = ""
    ) -> View:
        """Look until ``true(jobs)``. Raises DemoFailed when a job fails, when the one that is to run meanwhile is
        over before, and after ``seconds``."""
        wait = self._budget.waiting(what, seconds)
        while True:
            view = self._look()
            self._screen.show(self._snapshot(view, what))
            if true(view.jobs):
                return view
            self._refuse_failure(view, what, while_running)
            wait.check()
            time.sleep(_LOOK_SECONDS)

    def _look(self) -> View:
        jobs = {name: self._client.job(exec_id) for name, exec_id in self._ids.items()}
        return View(jobs, self._client.timeline())

    def _refuse_failure(self, view: View, what: str, while_running: str) -> None:
        for name, job in view.jobs.items():
            if job.state in {ExecState.ERROR, ExecState.KILLED}:
                tail = "\n".join(self._client.log(job.id, "errlog").splitlines()[-20:])
                raise DemoFailed(ExitCode.TRAINING, f"{name} is {job.state}: {job.message}\n{tail}")
        if while_running and view.jobs[while_running].state is ExecState.FINISHED:
            raise DemoFailed(ExitCode.RESIZES, f"{while_running} was over before: {what}")

    def _snapshot(self, view: View, what: str) -> Snapshot:
        names = {exec_id: name for name, exec_id in self._ids.items()}
        counting = {
            allocation.slot
            for allocation in view.timeline.allocations
            if allocation.counted_at is not None and allocation.released_at is None
        }
        slots = (slot for node in view.timeline.nodes for slot in node.slots)
        return Snapshot(
            tuple(
                SlotNow(slot.slot, names.get(slot.exec_id or ""), slot.slot in counting and not slot.leaving)
                for slot in slots
            ),
            tuple(_now(name, job) for name, job in view.jobs.items()),
            what,
        )


def _now(name: str, job: Job) -> JobNow:
    running = job.state is ExecState.RUNNING
    return JobNow(
        name,
        job.state.value if job.state is not ExecState.PENDING else "PENDING",
        job.state.over,
        job.workers if running else 0,
        job.progress.get("step") or 0,
        job.steps_total or 0,
        job.progress.get("loss"),
        job.progress.get("samples_per_second") if running else None,
    )
