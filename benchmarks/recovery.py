"""What a death costs a training: two engines on one machine, a small network, short steps.

  SIGKILL   from the kill of one of the two that train to the next committed step; where the other could still
            commit the step under way, from there to its next one
  SIGSTOP   the same, of one that is stopped
  driver, coordinator   the longest interval between two steps around its death, less a steady step, counted in steps

Who trains notes the time of each step, who kills notes his own. Each kill is followed by a replacement and a while of
steady steps. "torchrun" is torch.distributed.run --max-restarts with plain DDP over gloo, two processes on one node: it
starts both again (its script gives each start a part of the store of its own: else gloo finds the addresses of the dead
there and does not come up, torch 2.13). Plain DDP never goes on: its row for SIGSTOP is gloo's timeout, not a
measurement. torchft is not installed; published for it are 0.54 s tuned and 5.07 s by default.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _report

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient

RUNNERS = Path(__file__).parents[1] / "runners"
GLOO_TIMEOUT_SECONDS = 1800.0
STEADY_STEPS = 40
"""Between two kills; 40 of some 10 ms."""
_NETWORK = """
    import os, time
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    STEPS = open(os.environ["STEPS"] + f"-{os.getpid()}", "w", buffering=1)
    def note():
        STEPS.write(f"{time.monotonic()}\\n")
    def data():
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(20000, 256, generator=generator)
        return TensorDataset(x, x.sum(1, keepdim=True))
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    BATCH, EPOCHS = 64, 1000
"""
_OURS = """
    from fabric_model import FabricModel

    class Logger:
        def on_train_begin(self): ...
        def on_train_end(self): ...
        def log_train_metrics(self, metrics, iteration, epoch, workers): note()
        def log_test_metrics(self, metrics, iteration, epoch): ...

    FabricModel(net, lambda: (data(), None), nn.functional.mse_loss, optimizer, worker_logger_callback=Logger()).train(
        EPOCHS, BATCH, 2, checkpoint_freq=0)
"""
_DDP = """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.set_num_threads(1)
    told = os.environ
    store = dist.TCPStore(told["MASTER_ADDR"], int(told["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore(told["TORCHELASTIC_RESTART_COUNT"], store)
    dist.init_process_group("gloo", store=store, rank=int(told["RANK"]), world_size=int(told["WORLD_SIZE"]))
    model, samples = DistributedDataParallel(net), data()
    sampler = DistributedSampler(samples)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(samples, BATCH, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            note()
"""


class Steps:
    """The times of steps, as those who train write them down: one file a process."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "steps"

    def of(self, *, without: int = 0) -> list[float]:
        """All times, in order; ``without`` those of one process."""
        found: list[float] = []
        for path in self.prefix.parent.glob("steps-*"):
            if int(path.name.partition("-")[2]) != without:
                found += [float(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
        return sorted(found)

    def processes(self) -> list[int]:
        """Those that have committed a step and live."""
        pids = (int(path.name.partition("-")[2]) for path in self.prefix.parent.glob("steps-*") if path.stat().st_size)
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def more(self, number: int, seconds: float = 60.0) -> None:
        """Wait for so many more."""
        target = len(self.of()) + number
        wait(lambda: len(self.of()) >= target, f"{number} steps", seconds)

    def gap_after(self, moment: float, *, without: int) -> float:
        """The longest of the three intervals between ``moment`` and the steps of the survivor after it: it may still
        commit the step in which it does not miss the other yet."""

        def later() -> list[float]:
            return [found for found in self.of(without=without) if found > moment]

        wait(lambda: len(later()) >= 3, "the training goes on")
        return max(b - a for a, b in itertools.pairwise([moment, *later()[:3]]))

    def intervals(self, since: float, until: float) -> list[float]:
        """Between the steps of the process that has noted most of them then."""
        best: list[float] = []
        for path in self.prefix.parent.glob("steps-*"):
            times = [float(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
            times = [found for found in times if since <= found <= until]
            best = max(best, times, key=len)
        return [b - a for a, b in itertools.pairwise(best)]


def wait(happened: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            sys.exit(f"not in time: {what}")
        time.sleep(0.02)


def script(folder: Path, rest: str) -> Path:
    path = folder / "main.py"
    path.write_text(textwrap.dedent(_NETWORK) + textwrap.dedent(rest))
    return path


# ── OpenEDT ───────────────────────────────────────────────────────────────────────────────────────────────────
class Ours:
    """A training on two engines whose dead are replaced."""

    def __init__(self, supervisor: SupervisorClient, steps: Steps) -> None:
        self.supervisor, self.steps = supervisor, steps
        self._engines, self._newest = [1, 2], 2
        supervisor.hold(self._engines)
        self._wait_for_two()

    def strike(self, signal_: int) -> float:
        """Seconds from a signal to one engine to the next committed step."""
        engine, pid = next(iter(self._pids().items()))
        moment = time.monotonic()
        os.kill(pid, signal_)
        gap = self.steps.gap_after(moment, without=pid)
        self._engines.remove(engine)
        self._newest += 1
        self._engines.append(self._newest)
        self.steps.more(10)
        self.supervisor.hold(self._engines)
        self._wait_for_two()
        return gap

    def kill_part(self, name: str) -> tuple[float, float]:
        """Kill driver or coordinator. (The longest interval around that, a steady step), in seconds."""
        wait(lambda: bool(self._parts(name)), f"a {name}")  # the one before may have been killed, too: it has a pause
        began = time.monotonic()
        self.steps.more(STEADY_STEPS)
        moment = time.monotonic()
        os.kill(self._parts(name)[0], signal.SIGKILL)
        restarted = len([r for r in self.supervisor.reports if r.kind is ReportKind.RESTARTED])
        wait(lambda: self._restarts() > restarted, f"another {name}")
        time.sleep(2.0)  # it takes the line up again
        self.steps.more(STEADY_STEPS)
        steady = statistics.median(self.steps.intervals(began, moment))
        return max(self.steps.intervals(began, time.monotonic())), steady

    def _parts(self, name: str) -> list[int]:
        comms = [path for path in Path("/proc").glob("[0-9]*/comm") if self._is_ours(path.parent)]
        return [int(path.parent.name) for path in comms if path.read_text().strip() == f"edt-{name}"]

    def _restarts(self) -> int:
        self.supervisor.poll()
        return len([report for report in self.supervisor.reports if report.kind is ReportKind.RESTARTED])

    def _is_ours(self, place: Path) -> bool:
        try:
            return int((place / "stat").read_text().rpartition(")")[2].split()[1]) == self.supervisor.process.pid
        except OSError:
            return False

    def _pids(self) -> dict[int, int]:
        self.supervisor.poll()
        started = {
            report.body["allocation"]: int(report.body["pid"])
            for report in self.supervisor.reports
            if report.kind is ReportKind.ENGINE_STARTED
        }
        return {engine: started[engine] for engine in self._engines}

    def _wait_for_two(self) -> None:
        def there() -> bool:
            self.supervisor.poll()
            counted = {r.body["allocation"] for r in self.supervisor.reports if r.kind is ReportKind.ENGINE_COUNTED}
            return set(self._engines) <= counted

        wait(there, f"engines {self._engines} count")
        self.steps.more(STEADY_STEPS)


@contextmanager
def ours(folder: Path) -> Iterator[Ours]:
    folder.mkdir()
    steps = Steps(folder)
    spec = AttemptSpec(
        job="edt-1",
        fence=1,
        node="here",
        framework="pytorch",
        main=str(script(folder, _OURS)),
        arguments=(),
        work_dir=str(folder),
        result_dir=str(folder),
        log_dir=str(folder / "log"),
        checkpoint_dir=str(folder / "checkpoint"),
        spool_dir=str(folder / "spool"),
        socket=str(folder / "socket"),
        environ={"STEPS": str(steps.prefix)},
        seed=1,
        max_engines=2,
        threads=1,
        cores=2,
        grace_seconds=30.0,
        token="benchmark",  # noqa: S106 - it opens nothing
    )
    os.environ["PYTHONPATH"] = str(RUNNERS)
    with SupervisorClient(spec) as supervisor:
        yield Ours(supervisor, steps)


# ── peers ─────────────────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def torchrun(folder: Path, restarts: int) -> Iterator[tuple[subprocess.Popen[bytes], Steps]]:
    """Two processes of plain DDP under torch.distributed.run."""
    folder.mkdir()
    steps = Steps(folder)
    words = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}", str(script(folder, _DDP))]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words],
            env={**os.environ, "STEPS": str(steps.prefix), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait(lambda: len(steps.processes()) == 2, "two processes")
        steps.more(2 * STEADY_STEPS)
        yield process, steps
    finally:
        for pid in steps.processes():
            os.kill(pid, signal.SIGKILL)
        process.terminate()
        process.wait(60)


def torchrun_kills(folder: Path, times: int) -> list[float]:
    """Seconds from each SIGKILL to the next step of anybody."""
    gaps = []
    with torchrun(folder, times) as (_, steps):
        for _ in range(times):
            before = set(steps.processes())
            victim = min(before)
            moment = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            # a survivor that had all gradients may write down one step more: the next is one of both
            wait(lambda: len(set(steps.processes()) - before) == 2, "a restart", 60.0)  # noqa: B023 - called at once
            fresh = set(steps.processes()) - before
            gaps.append(min(_first(steps, pid) for pid in fresh) - moment)
            steps.more(2 * STEADY_STEPS)
    return gaps


def _first(steps: Steps, pid: int) -> float:
    return float(Path(f"{steps.prefix}-{pid}").read_text().split("\n", 1)[0])


def plain_ends(folder: Path) -> float:
    """Seconds from SIGKILL of one to the end of all: without restarts it does not go on."""
    with torchrun(folder, 0) as (process, steps):
        moment = time.monotonic()
        os.kill(min(steps.processes()), signal.SIGKILL)
        wait(lambda: process.poll() is not None, "the end", 120.0)
        return time.monotonic() - moment


def main() -> None:
    chosen = _report.arguments(__doc__).parse_args()
    kills, stops, parts, restarts = (5, 2, 2, 2) if chosen.quick else (30, 10, 5, 5)
    killed: list[float] = []
    stopped: list[float] = []
    paused: dict[str, list[float]] = {"driver": [], "coordinator": []}
    with tempfile.TemporaryDirectory(prefix="edt-recovery-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with ours(folder / "ours") as training:
            began = time.monotonic()
            training.steps.more(3 * STEADY_STEPS)
            step = statistics.median(training.steps.intervals(began, time.monotonic()))
            for _ in range(kills):
                killed.append(training.strike(signal.SIGKILL))
            for _ in range(stops):
                stopped.append(training.strike(signal.SIGSTOP))
            for part, found in paused.items():
                for _ in range(parts):
                    longest, steady = training.kill_part(part)
                    found.append(max(0.0, longest - steady) / steady)
        restarted = torchrun_kills(folder / "torchrun", restarts)
        ended = plain_ends(folder / "plain")
    who = "OpenEDT"
    rows = [
        _report.row("steady step", who, "ms", [1e3 * step]),
        _report.row("SIGKILL to the next step", who, "s", killed),
        _report.row("SIGSTOP to the next step", who, "s", stopped),
        *(_report.row(f"{part} killed, pause", who, "steps", found) for part, found in paused.items()),
        _report.row("SIGKILL to the next step", "torchrun", "s", restarted),
        _report.row("SIGKILL to its end", "DDP over gloo", "s", [ended]),
        _report.row("SIGSTOP to the next step", "DDP over gloo (its timeout)", "s", [GLOO_TIMEOUT_SECONDS]),
    ]
    by_case = {found.case: found.value for found in rows if found.who == who}
    targets = [
        _target("SIGKILL to the next step", 0.15 + step, by_case["SIGKILL to the next step"], "s"),
        _target("SIGSTOP to the next step", 2.0, by_case["SIGSTOP to the next step"], "s"),
        _target("driver killed, pause", 1.0, by_case["driver killed, pause"], "steps"),
        _target("coordinator killed, pause", 1.0, by_case["coordinator killed, pause"], "steps"),
    ]
    _report.finish("recovery", rows, targets, chosen.json)
    print("torchft is not installed; published: 0.54 s tuned, 5.07 s by default, SIGKILL to the next step")


def _target(what: str, target: float, value: float, unit: str) -> _report.Target:
    return _report.Target(what, target, value, unit, value <= target)


if __name__ == "__main__":
    main()
