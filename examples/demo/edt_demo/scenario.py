"""The demo's jobs and how they share the slots, step by step.

A grows to all slots; B comes, A gives it half and trains on; B is done, A takes its slots back. Then one of A's engines
is killed with SIGKILL: the others go on with the same step, and another takes its place. C is A once more on one slot
from beginning to end, so that the bits can be compared.

Every step waits until the platform shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edt_api.schemas.cluster import Timeline
from edt_api.schemas.jobs import ExecState, Job, Resize
from edt_demo.client import Client
from edt_demo.platform import kill_an_engine
from edt_demo.samples import LossPoint, losses
from edt_demo.settings import SEED, SLOTS, Framework
from edt_demo.watch import ProgressTable, Watch

A, B, C = "job A", "job B", "job C"
EPOCHS = {A: 80, B: 20, C: 80}
"""A is to outlive B, with room for the time that engines take to start; C is A again."""
_STEPS_IN_BETWEEN = 60
"""So many steps does A train as it is before what follows."""
_RESIZE_SECONDS = 120.0
_TRAINING_SECONDS = 300.0


@dataclass
class Scenario:
    """One run of it."""

    framework: Framework
    client: Client
    watch: Watch
    table: ProgressTable
    home: Path
    """The platform's: where the jobs' sample records go, and where a process to be killed is found."""
    fault: Mapping[str, str]
    """Environment of A alone."""
    ids: dict[str, str] = field(default_factory=dict)
    finished: dict[str, Job] = field(default_factory=dict)
    timeline: Timeline | None = None
    """Slots over time, until A was done."""

    def share(self) -> None:
        """A and B, to the end of both."""
        self._submit(A, SLOTS, self.fault)
        self._until_workers({A: SLOTS}, while_running=A)
        self._train_on(A)
        self._submit(B, SLOTS, {})
        self._until_workers({A: SLOTS // 2, B: SLOTS // 2}, while_running=B)
        self._finish(B)
        self._until_workers({A: SLOTS}, while_running=A)
        self._train_on(A)
        self._kill_an_engine(A)
        self._finish(A)
        self.timeline = self.client.timeline()

    def compare(self) -> None:
        """C: what A is to be compared with."""
        self._submit(C, 1, {})
        self._finish(C)

    def record(self, name: str) -> Path:
        """Folder of a job's sample record."""
        return self.home / "samples" / name.replace(" ", "-")

    def resizes(self, name: str) -> list[Resize]:
        return self.client.resizes(self.ids[name])

    def steps(self, name: str) -> tuple[LossPoint, ...]:
        return losses(self.client.log(self.ids[name]))

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────
    def _submit(self, name: str, workers: int, environ: Mapping[str, str]) -> None:
        own = {"EDT_SEED": str(SEED), "EDT_SAMPLE_RECORD": str(self.record(name))}
        exec_id = self.client.submit(self.framework, workers, {**own, **environ}, f"--epochs {EPOCHS[name]}")
        self.ids[name] = exec_id
        self.watch.follow(name, exec_id)
        self.table.say(f"{name} is submitted as {exec_id}: at most {workers} engine{'' if workers == 1 else 's'}")

    def _until_workers(self, sizes: Mapping[str, int], *, while_running: str) -> None:
        what = " and ".join(f"{name} on {size} engines" for name, size in sizes.items())
        self.watch.until(
            what,
            lambda jobs: all(jobs[name].workers == size for name, size in sizes.items()),
            seconds=_RESIZE_SECONDS,
            while_running=while_running,
        )
        self.table.say(what)

    def _kill_an_engine(self, name: str) -> None:
        """And wait until another has taken its place."""
        pid = kill_an_engine(self.home, self.ids[name])
        self.table.say(f"an engine of {name} (process {pid}) is killed with SIGKILL")
        self.watch.until(
            f"{name} goes on without it, and gets another",
            lambda jobs: self._lost_one(name) and jobs[name].workers == SLOTS,
            seconds=_RESIZE_SECONDS,
            while_running=name,
        )
        self.table.say(f"{name} went on without it, and is on {SLOTS} engines again")

    def _lost_one(self, name: str) -> bool:
        return any(resize.cause == "engine-lost" and resize.workers for resize in self.resizes(name))

    def _train_on(self, name: str) -> None:
        start = self.client.job(self.ids[name]).progress.get("step") or 0
        self.watch.until(
            f"{name} trains on",
            lambda jobs: (jobs[name].progress.get("step") or 0) >= start + _STEPS_IN_BETWEEN,
            seconds=_RESIZE_SECONDS,
            while_running=name,
        )

    def _finish(self, name: str) -> None:
        view = self.watch.until(
            f"{name} to its end", lambda jobs: jobs[name].state is ExecState.FINISHED, seconds=_TRAINING_SECONDS
        )
        self.finished[name] = view.jobs[name]
        self.table.say(f"{name} is finished: {view.jobs[name].steps_total} steps")
