"""Looks at the platform until a condition holds, with a table of jobs and slots meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from edt_api.schemas.cluster import Timeline
from edt_api.schemas.jobs import ExecState, Job
from edt_demo.client import Client
from edt_demo.exits import Budget, DemoFailed, ExitCode

_PLAIN_SECONDS = 5.0
_COLOURS = ("dodger_blue2", "dark_orange", "sea_green3", "medium_purple")


@dataclass(frozen=True)
class SlotNow:
    """One slot at this moment."""

    slot: str
    job: str | None
    counts: bool
    """Its engine trains; else it prepares or leaves."""


@dataclass(frozen=True)
class JobNow:
    """One job at this moment."""

    name: str
    state: str
    over: bool
    engines: int
    step: int
    steps_total: int
    loss: float | None
    samples_per_second: float | None


@dataclass(frozen=True)
class Snapshot:
    """The whole at this moment."""

    slots: tuple[SlotNow, ...]
    jobs: tuple[JobNow, ...]
    doing: str
    """What is being waited for, in a few words."""


class ProgressTable:
    """Shows snapshots while it is entered; lines said meanwhile stay above the table."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._live: Live | None = None
        self._start = clock()
        self._plain_at = 0.0
        self._last = ""

    def __enter__(self) -> ProgressTable:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(f"[dim]{self._clock() - self._start:6.1f} s[/dim]  {text}", highlight=False, soft_wrap=True)

    def pause(self, seconds: float) -> None:
        """Nothing to show yet."""
        time.sleep(seconds)

    def show(self, snapshot: Snapshot) -> None:
        """Cheap to call often: without a terminal a line now and then."""
        if self._live is not None:
            self._live.update(table(snapshot))
            return
        now = self._clock()
        line = plain(snapshot)
        if line and line != self._last and now - self._plain_at >= _PLAIN_SECONDS:
            self._plain_at, self._last = now, line
            self.say(line)


def table(snapshot: Snapshot) -> RenderableType:
    """Jobs above, slots below."""
    colour = _colours(snapshot)
    jobs = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("job", "state", "engines", "progress", "", "loss", "samples/s"):
        jobs.add_column(heading, justify="right" if heading in ("loss", "samples/s") else "left")
    for job in snapshot.jobs:
        jobs.add_row(
            Text(job.name, style=f"bold {colour[job.name]}"),
            job.state,
            Text("●" * job.engines or "–", style=colour[job.name]),
            ProgressBar(
                total=max(job.steps_total, 1),
                completed=job.step,
                width=30,
                complete_style=colour[job.name],
                finished_style=colour[job.name],
            ),
            f"{job.step:>5}/{job.steps_total}",
            "" if job.loss is None else f"{job.loss:.4f}",
            "" if job.samples_per_second is None else f"{job.samples_per_second:,.0f}",
        )
    slots = Text.assemble(("slots ", "dim"))
    for slot in snapshot.slots:
        glyph = "░░░░░" if slot.job is None else "█████" if slot.counts else "▒▒▒▒▒"
        slots.append(f" {slot.slot} ", style="dim")
        slots.append(glyph, style="bright_black" if slot.job is None else colour.get(slot.job, "white"))
    return Group(Text(), jobs, Text(), slots, Text(f"waiting for: {snapshot.doing}", style="italic dim"))


def plain(snapshot: Snapshot) -> str:
    """The same in one line; what is over has been said."""
    jobs = [
        f"{job.name} {job.state.lower()}, {job.engines} engine{'' if job.engines == 1 else 's'}, "
        f"step {job.step}/{job.steps_total}" + ("" if job.loss is None else f", loss {job.loss:.4f}")
        for job in snapshot.jobs
        if not job.over
    ]
    return " · ".join(jobs)


def _colours(snapshot: Snapshot) -> dict[str, str]:
    names: Sequence[str] = [job.name for job in snapshot.jobs]
    return {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)}


_LOOK_SECONDS = 0.3


@dataclass(frozen=True)
class View:
    """The platform at one moment."""

    jobs: dict[str, Job]
    """By the demo's name for it."""
    timeline: Timeline


class Watch:
    """Knows the demo's jobs by name and waits for what they should do."""

    def __init__(self, client: Client, budget: Budget, table: ProgressTable) -> None:
        self._client, self._budget, self._table = client, budget, table
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
            self._table.show(self._snapshot(view, what))
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
