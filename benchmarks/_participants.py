"""Who takes part in a case of ``throughput`` or ``memory``: trainings of ours, trainings of a peer."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _memory
from _turns import Turns

from edt_contract.attempt import AttemptSpec
from edt_runner.errors import RunnerError
from edt_runner.launch.supervisor_client import SupervisorClient

HERE = Path(__file__).parent
RUNNERS = HERE.parent / "runners"
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Task:
    """What all participants of a case do."""

    folder: Path
    framework: str
    network: str
    micro_batches: int
    """E."""
    workers: int
    """W."""
    threads: int
    turn: int
    """Steps of a turn."""

    @property
    def case(self) -> str:
        if self.framework == "pytorch":
            return f"PyTorch {self.network} ({self.micro_batches}, {self.workers})"
        return f"TensorFlow {self.network}"

    @property
    def script(self) -> Path:
        return HERE / ("_torch_training.py" if self.framework == "pytorch" else "_keras_training.py")

    def place(self, name: str) -> Path:
        """A new folder. Its path is short, because it holds sockets."""
        path = self.folder / "".join(letter for letter in f"{self.case}-{name}" if letter.isalnum())
        path.mkdir()
        return path


class Ours:
    """An attempt without a platform, on so many engines."""

    def __init__(self, name: str, task: Task, words: Sequence[str]) -> None:
        self._folder = task.place(name)
        self.turns = Turns(name, self._folder, task.workers)
        spec = AttemptSpec(
            job="edt-1",
            fence=1,
            node="here",
            framework=task.framework,
            main=str(task.script),
            arguments=tuple(words),
            work_dir=str(self._folder),
            result_dir=str(self._folder),
            log_dir=str(self._folder / "log"),
            checkpoint_dir=str(self._folder / "checkpoint"),
            spool_dir=str(self._folder / "spool"),
            socket=str(self._folder / "socket"),
            environ=self.turns.environ,
            seed=1,
            max_engines=task.workers,
            threads=task.threads,
            cores=CORES,
            grace_seconds=30.0,
            token="benchmark",  # noqa: S106 - it opens nothing
        )
        self._supervisor = SupervisorClient(spec)
        try:
            self._supervisor.hold(range(1, task.workers + 1))
        except RunnerError:
            sys.exit(f"{name} does not start:\n{self.why()}")

    def alive(self) -> bool:
        return self._supervisor.process.poll() is None

    def why(self) -> str:
        logs = [*(self._folder / "log").glob("*.err"), self._folder / "spool" / "supervisor.log"]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in logs if path.exists())

    def processes(self) -> list[int]:
        return _memory.family(self._supervisor.process.pid)

    def close(self) -> None:
        self._supervisor.kill()
        self.turns.close()


class Peer:
    """Plain processes of the script, each told its rank.

    Args:
        environ: what these processes have in their environment beside the usual.
        python: the interpreter that runs them.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        words: Sequence[str],
        environ: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        folder = task.place(name)
        self.turns = Turns(name, folder, task.workers)
        self._log = folder / "log"
        told = {
            **os.environ,
            **self.turns.environ,
            **(environ or {}),
            "OMP_NUM_THREADS": str(task.threads),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(task.workers),
        }
        command = [python, str(task.script), *words]
        with self._log.open("wb") as log:
            self._processes = [
                subprocess.Popen(command, env={**told, "RANK": str(rank)}, stdout=log, stderr=log)
                for rank in range(task.workers)
            ]

    def alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def why(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def processes(self) -> list[int]:
        return [process.pid for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.turns.close()


Side = Ours | Peer


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def has_torchft(python: str) -> bool:
    """Whether this interpreter can import torchft."""
    asked = subprocess.run([python, "-W", "ignore", "-c", "import torchft"], capture_output=True, check=False)
    return asked.returncode == 0


@dataclass(frozen=True)
class Measured:
    """Of one participant: seconds a step, one for each round, and bytes at the end."""

    steps: Sequence[float]
    resident: float
    """Of a process that computes."""
    own: float
    """Of all its processes."""


def compare(starts: Sequence[Callable[[], Side]], rounds: int) -> dict[str, Measured]:
    """Start them one after another, so that each warms up alone; then let them compute in turn, in each round in
    another random order."""
    chance = random.Random(1)  # noqa: S311
    with ExitStack() as stack:
        sides: list[Side] = []
        for start in starts:
            side = start()
            stack.callback(side.close)
            side.turns.wait_for_all(side.alive, side.why)
            sides.append(side)
        steps: dict[str, list[float]] = {side.turns.name: [] for side in sides}
        for _ in range(rounds):
            for side in chance.sample(sides, len(sides)):
                steps[side.turns.name].append(side.turns.take())
        return {
            side.turns.name: Measured(
                steps[side.turns.name],
                max(_memory.resident(pid) for pid in side.turns.pids),
                _memory.own(side.processes()),
            )
            for side in sides
        }
