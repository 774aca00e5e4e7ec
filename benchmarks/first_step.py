"""How long until a joining engine counts: from the decision to the first step in which the engine has a part.

  warm node   from ``SupervisorClient.hold`` on a node on which the job has an engine already
  cold node   from the start of a supervisor on a node without one: Python and the framework are imported there, and
              with ``compile`` nothing has been compiled there
  compile     the same with ``train(compile=True)``

One engine trains, a second one joins and leaves again. Its peer is a worker of torchrun: two processes of plain DDP
over gloo, from the start of ``torch.distributed.run`` to the first step of both. torchrun has no worker that waits on a
warm node; there "warm" says that torch's cache of compiled models is filled. Steps take some 10 ms.

A joining engine prepares at low priority, so that the others' steps take no longer. On a machine that is busy with
other things it then waits long for a core. "processor time" is what it needs itself, with the programs that it starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _report

from edt_contract.attempt import AttemptSpec
from edt_contract.reports import Report, ReportKind
from edt_runner.launch.supervisor_client import SupervisorClient

RUNNERS = Path(__file__).parents[1] / "runners"
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
SECONDS = 300.0
"""Most seconds for one engine or one start of torchrun."""
REST_SECONDS = 1.0
"""Between two measurements, so that nothing of the one before runs."""
_TRAINING = """
    import os, time
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    def data():
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(20000, 256, generator=generator)
        return TensorDataset(x, x.sum(1, keepdim=True))
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    BATCH, COMPILES = 64, os.environ["COMPILES"] == "True"
"""
_OURS = """
    from fabric_model import FabricModel

    FabricModel(net, lambda: (data(), None), nn.functional.mse_loss, optimizer).train(
        1000, BATCH, 2, checkpoint_freq=0, compile=COMPILES)
"""
_DDP = """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, samples = DistributedDataParallel(net), data()
    if COMPILES:
        model = torch.compile(model, dynamic=False)
    for x, y in DataLoader(samples, BATCH, sampler=DistributedSampler(samples)):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        open(f"{os.environ['FIRST']}-{dist.get_rank()}", "w").write(str(time.monotonic()))
        break
    dist.barrier()
    dist.destroy_process_group()
"""


def script(folder: Path, rest: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "main.py"
    path.write_text(textwrap.dedent(_TRAINING) + textwrap.dedent(rest))
    return path


# ── OpenEDT ───────────────────────────────────────────────────────────────────────────────────────────────────
class Job:
    """A training on one engine, which a second one joins again and again."""

    def __init__(self, folder: Path, head: SupervisorClient) -> None:
        self._folder, self._head = folder, head
        self._newest = 1
        head.hold([1])
        self._counts(1)

    def join(self) -> tuple[float, float]:
        """Seconds until an engine on the first engine's node counts, and seconds of processor time that it has used."""
        self._newest += 1
        began = time.monotonic()
        self._head.hold([1, self._newest])
        self._counts(self._newest)
        took, used = time.monotonic() - began, self._processor_seconds(self._newest)
        self._head.hold([1])
        self._goes(self._newest)
        return took, used

    def join_from_a_cold_node(self) -> float:
        """The same of an engine on a node of which nothing runs yet."""
        self._newest += 1
        place = self._folder / f"node-{self._newest}"
        spec = replace(
            self._head.spec,
            node=place.name,
            spool_dir=str(place),
            socket=str(place / "socket"),
            environ={**self._head.spec.environ, COMPILED: str(place / "compiled")},
        )
        address = self._head.until(lambda report: report.kind is ReportKind.COORDINATOR_AT).body["address"]
        began = time.monotonic()
        with SupervisorClient(spec) as there:
            there.hold([self._newest], coordinator=address)
            self._counts(self._newest)
            took = time.monotonic() - began
            there.hold([], coordinator=address)
            self._goes(self._newest)
        return took

    def _processor_seconds(self, engine: int) -> float:
        started = self._head.until(
            lambda report: report.kind is ReportKind.ENGINE_STARTED and report.body["allocation"] == engine
        )
        fields = Path(f"/proc/{started.body['pid']}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def _counts(self, engine: int) -> None:
        self._until(lambda report: report.kind is ReportKind.ENGINE_COUNTED, engine)

    def _goes(self, engine: int) -> None:
        self._until(lambda report: report.kind in (ReportKind.ENGINE_GONE, ReportKind.RESIZED), engine)
        time.sleep(REST_SECONDS)

    def _until(self, happened: Callable[[Report], bool], engine: int) -> None:
        def concerns(report: Report) -> bool:
            engines = (report.body.get("allocation"), *report.body.get("left", ()))
            return happened(report) and engine in engines

        self._head.until(concerns, SECONDS)


@contextmanager
def ours(folder: Path, *, compiles: bool) -> Iterator[Job]:
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
        environ={"COMPILES": str(compiles), COMPILED: str(folder / "compiled")},
        seed=1,
        max_engines=2,
        threads=1,
        cores=2,
        grace_seconds=30.0,
        token="benchmark",  # noqa: S106 - it opens nothing
    )
    os.environ["PYTHONPATH"] = str(RUNNERS)
    with SupervisorClient(spec) as head:
        yield Job(folder, head)


# ── its peer ──────────────────────────────────────────────────────────────────────────────────────────────────
def torchrun(folder: Path, compiled: Path, *, compiles: bool) -> float:
    """Seconds from the start of torchrun to the first step of both of its processes."""
    main, first = script(folder, _DDP), folder / "first"
    environ = {"COMPILES": str(compiles), COMPILED: str(compiled), "FIRST": str(first), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(main)],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(f"torchrun has not taken a step in {SECONDS:g} s")
    if process.returncode:
        sys.exit(f"torchrun failed: {output}")
    time.sleep(REST_SECONDS)
    return max(float(Path(f"{first}-{rank}").read_text()) for rank in range(2)) - began


def main() -> None:
    chosen = _report.arguments(__doc__).parse_args()
    times, cold = (3, 1) if chosen.quick else (15, 5)
    rows, targets = [], []
    with tempfile.TemporaryDirectory(prefix="edt-first-", ignore_cleanup_errors=True) as place:
        for compiles, target in ((False, 1.0), (True, 5.0)):
            what, folder = ", compile" if compiles else "", Path(place) / f"compiles-{compiles}"
            with ours(folder / "ours", compiles=compiles) as job:
                joined, used = zip(*[job.join() for _ in range(times)], strict=True)
                from_cold = [job.join_from_a_cold_node() for _ in range(cold)]
            theirs = [
                torchrun(folder / f"torchrun-{number}", folder / f"compiled-{number}", compiles=compiles)
                for number in range(cold)
            ]
            again = [
                torchrun(folder / f"again-{number}", folder / "compiled-0", compiles=compiles) for number in range(cold)
            ]
            rows += [
                _report.row(f"warm node{what}", "OpenEDT", "s", joined),
                _report.row(f"warm node{what}, processor time", "OpenEDT", "s", used),
                _report.row(f"cold node{what}", "OpenEDT", "s", from_cold),
                _report.row(f"warm node{what}", "torchrun", "s", again),
                _report.row(f"cold node{what}", "torchrun", "s", theirs),
            ]
            value = _report.row("", "", "", joined).value
            targets.append(_report.Target(f"warm node{what}", target, value, "s", value <= target))
    _report.finish("first_step", rows, targets, chosen.json)


if __name__ == "__main__":
    main()
