"""The trainings of ``exactness``: how far they may go, what happens to them, and what they leave."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from _exactness_training import FOLDER, MICRO_BATCHES, STEPS
from _participants import CORES, HERE, free_port

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient

SCRIPT = HERE / "_exactness_training.py"
EVENTS = 8
"""Of a schedule."""
PATIENCE_SECONDS = 90.0
PACE_SECONDS, LAST_STEPS = 0.05, 40
"""For each step while something is awaited, so that the training does not end before its schedule; and steps that are
left for after it."""
State = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Event:
    """Something that happens to one engine of a training.

    Args:
        steps: how many steps after the event before.
        what: "join", "leave" or "kill".
        engine: number of the engine; engine 1 begins.
        settles: the next event waits until this one has come to pass.
    """

    steps: int
    what: str
    engine: int
    settles: bool

    def __str__(self) -> str:
        return f"+{self.steps} {self.what} {self.engine}{'' if self.settles else ' …'}"


def schedule(seed: int, events: int = EVENTS, most: int = MICRO_BATCHES) -> list[Event]:
    """Return random events: never more than ``most`` engines, never none."""
    chance = random.Random(seed)  # noqa: S311
    engines, newest = [1], 1
    found: list[Event] = []
    for _ in range(events):
        possible = ["join"] * (len(engines) < most) + ["leave", "kill"] * (len(engines) > 1)
        what = chance.choice(possible)
        if what == "join":
            newest += 1
            engine = newest
            engines.append(engine)
        else:
            engine = chance.choice(engines)
            engines.remove(engine)
        found.append(Event(chance.randint(1, 5), what, engine, chance.random() < 0.7))
    return found


class Steps:
    """How far a training may go and how far it is, by the files of its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.allowed = 0
        self.allow(1)

    def allow(self, number: int) -> None:
        self.allowed = number
        draft = self._folder / "allowed.new"
        draft.write_text(str(number))
        draft.rename(self._folder / "allowed")

    def all(self) -> list[tuple[int, int]]:
        """(step, processes) of each line that any process has written."""
        lines = [
            line.split()
            for path in self._folder.glob("steps-*")
            for line in path.read_text().rpartition("\n")[0].splitlines()
        ]
        return [(int(step), int(workers)) for step, workers in lines]

    def reached(self) -> int:
        return max((step for step, _ in self.all()), default=0)

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Let a step through every now and then until ``happened``."""
        deadline, opened = time.monotonic() + PATIENCE_SECONDS, time.monotonic()
        while not happened():
            now = time.monotonic()
            if now > deadline or self.allowed >= STEPS - LAST_STEPS:
                sys.exit(f"not in time, at step {self.reached()} of {STEPS}: {what}")
            if self.reached() >= self.allowed and now > opened + PACE_SECONDS:
                self.allow(self.allowed + 1)
                opened = now
            time.sleep(0.005)

    def result(self, alive: Callable[[], bool], why: Callable[[], str]) -> State:
        """Let all steps through and return the trained state."""
        self.allow(STEPS + 1)
        path, deadline = self._folder / "model.pt", time.monotonic() + 2 * PATIENCE_SECONDS
        while not path.exists():
            if time.monotonic() > deadline or not (alive() or path.exists()):
                sys.exit(f"it did not finish:\n{why()}")
            time.sleep(0.02)
        state: State = torch.load(path, weights_only=True)
        return state


# ── OpenEDT ───────────────────────────────────────────────────────────────────────────────────────────────────
class Ours:
    """A training of ours to which a schedule happens."""

    def __init__(self, folder: Path, network: str, reduction: str) -> None:
        folder.mkdir()
        self._folder, self._steps = folder, Steps(folder)
        spec = AttemptSpec(
            job="edt-1",
            fence=1,
            node="here",
            framework="pytorch",
            main=str(SCRIPT),
            arguments=(reduction, network),
            work_dir=str(folder),
            result_dir=str(folder),
            log_dir=str(folder / "log"),
            checkpoint_dir=str(folder / "checkpoint"),
            spool_dir=str(folder / "spool"),
            socket=str(folder / "socket"),
            environ={FOLDER: str(folder)},
            seed=1,
            max_engines=MICRO_BATCHES,
            threads=1,
            cores=CORES,
            grace_seconds=30.0,
            token="benchmark",  # noqa: S106 - it opens nothing
        )
        self._supervisor = SupervisorClient(spec)
        self._held: set[int] = set()

    def train(self, engines: int, events: Sequence[Event]) -> State:
        """Begin on so many engines, let the events happen, and return the trained state."""
        with self._supervisor:
            self._hold(set(range(1, engines + 1)))
            self._settle()
            for event in events:
                target = self._steps.reached() + event.steps
                self._steps.until(lambda: self._steps.reached() >= target, f"step {target}")  # noqa: B023
                self._happen(event)
                if event.settles:
                    self._settle()
            self._settle()
            return self._steps.result(lambda: self._supervisor.process.poll() is None, self._why)

    def _happen(self, event: Event) -> None:
        engine = event.engine
        if event.what == "join":
            self._hold(self._held | {engine})
            return
        remain = self._held - {engine}
        self._steps.until(lambda: bool(remain & self._training()), f"one of {remain} trains")
        if event.what == "kill":
            self._steps.until(lambda: engine in self._started(), f"{engine} is started")
            os.kill(self._started()[engine], signal.SIGKILL)
        self._hold(remain)

    def _hold(self, engines: set[int]) -> None:
        self._held = engines
        self._supervisor.hold(sorted(engines))

    def _settle(self) -> None:
        self._steps.until(lambda: self._training() == self._held, f"{sorted(self._held)} train and no other")

    def _training(self) -> set[int]:
        return self._of(ReportKind.ENGINE_COUNTED) - self._of(ReportKind.ENGINE_GONE)

    def _of(self, kind: ReportKind) -> set[int]:
        self._supervisor.poll()
        return {report.body["allocation"] for report in self._supervisor.reports if report.kind is kind}

    def _started(self) -> dict[int, int]:
        self._supervisor.poll()
        started = [report.body for report in self._supervisor.reports if report.kind is ReportKind.ENGINE_STARTED]
        return {body["allocation"]: int(body["pid"]) for body in started}

    def _why(self) -> str:
        logs = [*(self._folder / "log").glob("*.err"), self._folder / "spool" / "supervisor.log"]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in logs if path.exists())


# ── peers ─────────────────────────────────────────────────────────────────────────────────────────────────────
class Peers:
    """Plain processes of the script."""

    def __init__(self, folder: Path, words: Sequence[str], workers: int, python: str = sys.executable) -> None:
        folder.mkdir()
        self.steps, self._folder = Steps(folder), folder
        self._command = [python, "-W", "ignore", str(SCRIPT), *words]
        self._environ = {
            **os.environ,
            FOLDER: str(folder),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(workers),
        }
        self.processes = [self.start(rank) for rank in range(workers)]

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        with (self._folder / f"log-{rank}").open("ab") as log:
            environ = {**self._environ, "RANK": str(rank)}
            return subprocess.Popen(self._command, env=environ, stdout=log, stderr=log)

    def result(self) -> State:
        return self.steps.result(lambda: self.processes[0].poll() is None, self._why)

    def _why(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self._folder.glob("log-*"))

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def ddp(folder: Path, network: str, workers: int) -> State:
    with Peers(folder, ["ddp", network], workers) as peers:
        return peers.result()


def torchft(folder: Path, network: str, python: str, kill_after: int | None) -> State:
    """Two replicas. After so many steps one is killed; another takes its place once the first has gone on alone."""
    with Peers(folder, ["torchft", network], 2, python) as peers:
        if kill_after is None:
            return peers.result()
        steps = peers.steps
        steps.until(lambda: (kill_after, 2) in steps.all(), f"step {kill_after}")
        peers.processes[1].kill()
        peers.processes[1].wait()
        steps.until(lambda: any(workers == 1 for _, workers in steps.all()), "one goes on alone")
        peers.processes[1] = peers.start(1)
        alone = steps.reached()
        steps.until(lambda: any(step > alone + 1 and workers == 2 for step, workers in steps.all()), "two again")
        return peers.result()
