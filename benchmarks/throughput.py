"""What an elastic training costs while nothing happens: steps of ours beside those of its framework's own way.

PyTorch     E = 4 micro-batches a step on W processes, ours (exact and fast reduction) and DistributedDataParallel with
            the same global batch over gloo on lo: E/W micro-batches a process, no_sync up to the last.
            1 million parameters behind convolutions, 25 million in linear layers; one thread a process.
TensorFlow  one process, ours with E = 1 and E = 4 and plain Keras ``fit`` with the same global batch, at its defaults
            and with TensorFlow's deterministic ops, which ours always uses. Convolutions whose step takes some 100 ms,
            25 million parameters in dense layers; as many threads as there are cores. And what memory both hold.

Model, data, optimizer, threads are the same on both sides. All participants of a case live beside each other and
compute in turn, for a second or more each; shown is the median over the turns, a step's time being a turn's divided by
its steps. Ratios are of turns of one round. "MALLOC_" is the peer with the settings of memory that our engines have
(``edt_contract.processes.keep_freed_memory``); --quick leaves it, W = 1 and Keras's dense layers out. Recovery
checkpoints are off here: ``checkpoint`` measures what they cost.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _memory
import _report
from _turns import Turns

from edt_contract.attempt import AttemptSpec
from edt_runner.launch.supervisor_client import SupervisorClient

HERE = Path(__file__).parent
RUNNERS = HERE.parent / "runners"
CORES = len(os.sched_getaffinity(0))
KERAS_BATCH = {"conv": 192, "dense-25M": 64}
"""Samples of a step; ours divides them among E micro-batches."""
MOST_OF_FIT = 1.10
FEW = 3
"""Rounds below which the last participant of a case is left out."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
"""What our engines set for themselves: ``edt_contract.processes.keep_freed_memory``."""


@dataclass(frozen=True)
class Task:
    """What all participants of a case do."""

    folder: Path
    framework: str
    network: str
    workers: int
    threads: int
    turn: int
    """Steps of a turn."""

    @property
    def script(self) -> Path:
        return HERE / ("_torch_training.py" if self.framework == "pytorch" else "_keras_training.py")

    def words(self, who: str, *numbers: int) -> list[str]:
        return [who, self.network, *map(str, numbers), str(self.turn)]

    def place(self, name: str) -> Path:
        path = self.folder / f"{self.framework}-{self.network}-{self.workers}-{name}".replace(" ", "").replace(",", "")
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
        self._bench = SupervisorClient(spec)
        self._bench.hold(range(1, task.workers + 1))

    def alive(self) -> bool:
        return self._bench.process.poll() is None

    def why(self) -> str:
        logs = [*(self._folder / "log").glob("*.err"), self._folder / "spool" / "supervisor.log"]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in logs if path.exists())

    def processes(self) -> list[int]:
        return _memory.family(self._bench.process.pid)

    def close(self) -> None:
        self._bench.kill()
        self.turns.close()


class Peer:
    """Plain processes of the script, each told its rank."""

    def __init__(self, name: str, task: Task, words: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
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
            "MASTER_PORT": str(_free_port()),
            "WORLD_SIZE": str(task.workers),
        }
        command = [sys.executable, str(task.script), *words]
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True)
class Measured:
    """Of one participant: seconds a step, one for each round, and bytes at the end."""

    steps: Sequence[float]
    resident: float
    """Of a process that computes."""
    own: float
    """Of all its processes."""


def compare(starts: Sequence[Callable[[], Side]], rounds: int) -> dict[str, Measured]:
    """Start them one after another, so that each warms up alone; then let them compute in turn. Who begins changes
    from round to round."""
    with ExitStack() as stack:
        sides: list[Side] = []
        for start in starts:
            side = start()
            stack.callback(side.close)
            side.turns.wait_for_all(side.alive, side.why)
            sides.append(side)
        steps: dict[str, list[float]] = {side.turns.name: [] for side in sides}
        for number in range(rounds):
            for place in range(len(sides)):
                turns = sides[(number + place) % len(sides)].turns
                steps[turns.name].append(turns.take())
        return {
            side.turns.name: Measured(
                steps[side.turns.name],
                max(_memory.resident(pid) for pid in side.turns.pids),
                _memory.own(side.processes()),
            )
            for side in sides
        }


def rows_of(case: str, found: Mapping[str, Measured], samples: int, peers: Sequence[str]) -> list[_report.Row]:
    """ms a step, samples a second, and how many times as long a step takes as a peer's."""
    rows = []
    for who, measured in found.items():
        rows.append(_report.row(case, who, "ms a step", [1e3 * each for each in measured.steps]))
        rows.append(_report.row(case, who, "samples/s", [samples / each for each in measured.steps]))
        for peer in peers:
            if who != peer:
                rows.append(_report.row(case, who, f"x {peer}", ratios(measured, found[peer])))
    return rows


def ratios(one: Measured, other: Measured) -> list[float]:
    return [own / peer for own, peer in zip(one.steps, other.steps, strict=True)]


# ── the cases ─────────────────────────────────────────────────────────────────────────────────────────────────
def torch_rows(folder: Path, network: str, workers: int, turn: int, rounds: int) -> list[_report.Row]:
    from _torch_training import BATCH, E

    # A job's threads are its node's cores / its slots, whatever W is; here it has two slots on two cores.
    task = Task(folder, "pytorch", network, workers, 1, turn)
    starts: list[Callable[[], Side]] = [
        lambda: Ours("OpenEDT", task, task.words("exact", workers)),
        lambda: Ours("OpenEDT, fast", task, task.words("fast", workers)),
        lambda: Peer("DDP", task, task.words("ddp", workers)),
        lambda: Peer("DDP, MALLOC_", task, task.words("ddp", workers), MALLOC),
    ]
    found = compare(starts[:-1] if rounds < FEW else starts, rounds)
    return rows_of(f"PyTorch {network} ({E}, {workers})", found, E * BATCH[network], ["DDP"])


def keras_rows(folder: Path, network: str, turn: int, rounds: int) -> tuple[list[_report.Row], list[float]]:
    """The rows, and the ratios to plain Keras at its defaults."""
    task = Task(folder, "tensorflow", network, 1, CORES, turn)
    batch = KERAS_BATCH[network]
    starts: list[Callable[[], Side]] = [
        lambda: Ours("OpenEDT, E = 1", task, task.words("ours", batch, 1)),
        lambda: Ours("OpenEDT, E = 4", task, task.words("ours", batch // 4, 4)),
        lambda: Peer("Keras fit", task, task.words("fit", batch, 1)),
        lambda: Peer("Keras fit, deterministic", task, task.words("deterministic", batch, 1)),
        lambda: Peer("Keras fit, MALLOC_", task, task.words("fit", batch, 1), MALLOC),
    ]
    found = compare(starts[:-1] if rounds < FEW else starts, rounds)
    case = f"TensorFlow {network}"
    rows = rows_of(case, found, batch, ["Keras fit"])
    for who, measured in found.items():
        rows.append(_report.row(case, who, "MiB resident, who trains", [measured.resident / _memory.MIB]))
        rows.append(_report.row(case, who, "MiB, all processes", [measured.own / _memory.MIB]))
    return rows, ratios(found["OpenEDT, E = 1"], found["Keras fit"])


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--framework", choices=("pytorch", "tensorflow"), help="only this one")
    chosen = parser.parse_args()
    rounds = 2 if chosen.quick else 9
    os.environ["PYTHONPATH"] = f"{RUNNERS}:{HERE}"
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    with tempfile.TemporaryDirectory(prefix="edt-throughput-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        if chosen.framework != "tensorflow":
            for network, turn in (("conv-1M", 20), ("linear-25M", 6)):
                for workers in (2,) if chosen.quick else (1, 2):
                    rows += torch_rows(folder, network, workers, turn, rounds)
        if chosen.framework != "pytorch" and importlib.util.find_spec("tensorflow"):
            for network, turn in (("conv", 10),) if chosen.quick else (("conv", 10), ("dense-25M", 10)):
                found, against_fit = keras_rows(folder, network, turn, rounds)
                rows += found
                if network == "conv":
                    ratio = statistics.median(against_fit)
                    what = "a step of TensorFlow conv at E = 1, against Keras fit"
                    targets.append(_report.Target(what, MOST_OF_FIT, ratio, "x", ratio <= MOST_OF_FIT))
    _report.finish("throughput", rows, targets, chosen.json)


if __name__ == "__main__":
    main()
