"""Who takes part in ``resize_pause``: a training of each system that workers join and leave, and in which they die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "demo"))

from _resize_notes import VARIABLE, Account, Reader, account
from _resize_training import MICRO_BATCHES, SIZES

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ReportKind
from edt_demo import sample_record
from edt_runner.launch.supervisor_client import SupervisorClient

HERE = Path(__file__).parent
RUNNERS = HERE.parent / "runners"
SCRIPT = HERE / "_resize_training.py"
START_SECONDS = 120.0
POLL_SECONDS = 0.05
TORCHRUN_CONF = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
"""torchrun's own: 30 s, 5 s, 3."""
NO_TIMEOUT_IN_TIME = "stands still until gloo's timeout, 30 min"


class System(Protocol):
    """A training. What changes the workers returns the time at which it was asked for."""

    name: str
    reader: Reader
    restarts: bool
    """Whether all workers start again at each change."""
    replaces: bool
    """Whether a killed worker is started again without being asked."""
    cannot: dict[str, str]
    """Events that it does not come through in a time that could be measured, and why."""

    def join(self) -> float: ...
    def leave(self) -> float: ...
    def strike(self, signal_: int) -> float: ...
    def why(self) -> str: ...
    def close(self) -> None: ...
    def account(self, since: float, until: float) -> Account: ...


def wait(happened: Callable[[], bool], what: Callable[[], str], seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            sys.exit(f"not within {seconds:.0f} s: {what()}")
        time.sleep(POLL_SECONDS)


class Ours:
    """An attempt without a platform."""

    name = "OpenEDT"
    restarts = replaces = False

    def __init__(self, folder: Path, size: str, workers: int) -> None:
        folder.mkdir()
        self.cannot: dict[str, str] = {}
        self.reader, self._folder = Reader(folder), folder
        self._batch = MICRO_BATCHES * workers * SIZES[size][1]
        spec = AttemptSpec(
            job="edt-1",
            fence=1,
            node="here",
            framework="pytorch",
            main=str(SCRIPT),
            arguments=("ours", size, str(workers)),
            work_dir=str(folder),
            result_dir=str(folder),
            log_dir=str(folder / "log"),
            checkpoint_dir=str(folder / "checkpoint"),
            spool_dir=str(folder / "spool"),
            socket=str(folder / "socket"),
            environ={VARIABLE: str(folder), "EDT_SAMPLE_RECORD": str(folder / "samples")},
            seed=1,
            max_engines=workers,
            threads=1,
            cores=len(os.sched_getaffinity(0)),
            grace_seconds=30.0,
            token="benchmark",  # noqa: S106 - it opens nothing
        )
        self._supervisor = SupervisorClient(spec)
        self._engines, self._newest = list(range(1, workers + 1)), workers
        self._supervisor.hold(self._engines)

    def join(self) -> float:
        self._newest += 1
        self._engines.append(self._newest)
        return self._hold()

    def leave(self) -> float:
        self._engines.pop()
        return self._hold()

    def strike(self, signal_: int) -> float:
        self._supervisor.poll()
        victim = self._engines.pop(0)
        [pid] = [
            report.body["pid"]
            for report in self._supervisor.reports
            if report.kind is ReportKind.ENGINE_STARTED and report.body["allocation"] == victim
        ]
        moment = time.monotonic()
        os.kill(int(pid), signal_)
        return moment

    def kill_part(self, name: str) -> float:
        """Kill driver or coordinator, and wait until another has been started."""
        wait(lambda: bool(self._parts(name)), lambda: f"a {name}\n{self.why()}")
        restarts, moment = self._restarts(), time.monotonic()
        os.kill(self._parts(name)[0], signal.SIGKILL)
        wait(lambda: self._restarts() > restarts, lambda: f"another {name}\n{self.why()}")
        return moment

    def _parts(self, name: str) -> list[int]:
        found = []
        for pid in children(self._supervisor.process.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == f"edt-{name}":
                    found.append(pid)
        return found

    def _restarts(self) -> int:
        self._supervisor.poll()
        return sum(report.kind is ReportKind.RESTARTED for report in self._supervisor.reports)

    def _hold(self) -> float:
        moment = time.monotonic()
        self._supervisor.hold(self._engines)
        return moment

    def why(self) -> str:
        return _ends_of([*(self._folder / "log").glob("*.err"), self._folder / "spool" / "supervisor.log"])

    def close(self) -> None:
        self._supervisor.kill()

    def account(self, since: float, until: float) -> Account:
        """By the record that engines write of their samples, when the training is over."""
        steps = [commit.step - 1 for commit in self.reader.commits() if since <= commit.time < until]
        found = [self._recorded.get(step, (0, 0)) for step in range(min(steps), max(steps) + 1)]
        samples, again = sum(each[0] for each in found), sum(each[1] for each in found)
        return Account(len(found) * self._batch - (samples - again), again)

    @cached_property
    def _recorded(self) -> dict[int, tuple[int, int]]:
        """By step: its samples, and how many of them were in a step before it, or twice in it."""
        found: dict[int, tuple[int, int]] = {}
        seen: set[int] = set()
        for entry in sample_record.read(self._folder / "samples"):
            new = len(set(entry.samples) - seen)
            seen.update(entry.samples)
            samples, again = found.get(entry.step, (0, 0))
            found[entry.step] = samples + len(entry.samples), again + len(entry.samples) - new
        return found


class Processes:
    """A peer, whose processes are started and ended by whoever wants it to have more or fewer."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.reader, self._log = Reader(folder), folder / "log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environ = {
            **os.environ,
            VARIABLE: str(folder),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(words, env=self._environ, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def why(self) -> str:
        return _ends_of([self._log])

    def close(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)  # an agent shall not start another worker
            for pid in children(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()

    def account(self, since: float, until: float) -> Account:
        return account(self.reader.commits(), since, until)


class Torchrun(Processes):
    """An agent for each worker, as if each were a node. The first one's holds the store and is never hurt."""

    name = "torchrun"
    restarts = replaces = True

    def __init__(self, folder: Path, size: str, workers: int) -> None:
        super().__init__(folder)
        self.cannot = {"SIGSTOP": NO_TIMEOUT_IN_TIME}
        self._words = [sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:{workers}", "--nproc-per-node=1"]
        self._words += ["--max-restarts=1000", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
        self._words += ["--rdzv-id=resize", "--local-addr=127.0.0.1"]
        self._script = [str(SCRIPT), "torchrun", size, str(folder / "checkpoint.pt")]
        self._agents = [self._agent(hosts_store=number == 0) for number in range(workers)]

    def _agent(self, *, hosts_store: bool) -> subprocess.Popen[bytes]:
        conf = f"--rdzv-conf={TORCHRUN_CONF},is_host={hosts_store}"
        return self._start(*self._words, conf, *self._script)

    def join(self) -> float:
        moment = time.monotonic()
        self._agents.append(self._agent(hosts_store=False))
        return moment

    def leave(self) -> float:
        moment = time.monotonic()
        self._agents.pop().send_signal(signal.SIGTERM)
        return moment

    def strike(self, signal_: int) -> float:
        """A worker alone: its agent starts another."""
        [pid] = children(self._agents[-1].pid)
        moment = time.monotonic()
        os.kill(pid, signal_)
        return moment


class Torchft(Processes):
    """A replica for each worker, and a lighthouse."""

    name = "torchft"
    restarts = replaces = False

    def __init__(self, folder: Path, size: str, workers: int, python: str) -> None:
        super().__init__(folder)
        self.cannot: dict[str, str] = {}
        port = free_port()
        self._start(python, str(SCRIPT), "lighthouse", str(port))
        self._environ["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{port}"
        self._words = [python, str(SCRIPT), "torchft", size]
        self._replicas = [self._start(*self._words) for _ in range(workers)]

    def join(self) -> float:
        moment = time.monotonic()
        self._replicas.append(self._start(*self._words))
        return moment

    def leave(self) -> float:
        moment = time.monotonic()
        self._replicas.pop().send_signal(signal.SIGTERM)
        return moment

    def strike(self, signal_: int) -> float:
        moment = time.monotonic()
        self._replicas.pop(0).send_signal(signal_)
        return moment


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _ends_of(paths: list[Path]) -> str:
    return "\n".join(path.read_text(errors="replace")[-3000:] for path in paths if path.exists())
