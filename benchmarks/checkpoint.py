"""For how long a checkpoint blocks a training: 25 million parameters under Adam, 300 MB of state.

Each participant is asked for a checkpoint between two steps, and the training goes on. Counted is

  blocked  the time for which the training thread waits: in the call that begins the checkpoint, and, before the next
           update changes the parameters, for a copy that is not complete by then
  pause    the longest interval between two steps from there on, less a steady step
  cost     all the time that the training lost until the checkpoint was finished
  finished the time from the beginning until the checkpoint is written
  memory   what the process holds more while the first checkpoint is made
  ratio    of step times, with a checkpoint each 10 s (our default) to without: 1 + cost / 10 s

"OpenEDT" is what an engine does: a copy while the next forward and backward pass compute, then the disk, with SHA-256
and fsync. "torch.save" is the usual line in a training loop; it does no fsync. "DCP async_save" is the background save
of torch.distributed.checkpoint, with fsync; on a GPU once more with its asynchronous stager. Participants take turns in
one process and write to the same disk.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _memory
import _report

from edt_runner.adapter import State
from edt_runner.checkpoints import checkpoint
from edt_runner.checkpoints.snapshot import HostCopy, Snapshots, write_state
from edt_runner.frameworks.pytorch.adapter import TorchAdapter

WIDTH, LAYERS = 2048, 6
BATCH, GPU_BATCH = 64, 4096
INTERVAL_SECONDS = 10.0
STEADY_STEPS, LEAST_STEPS = 8, 8
OURS, PLAIN = "OpenEDT", "torch.save"
MOST_OF_PLAIN = 0.1
"""The most time for which ours may block, as a share of torch.save's."""


class Training:
    """Plain steps of a stack of linear layers."""

    def __init__(self, device: torch.device) -> None:
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, fused=True)
        self.adapter = TorchAdapter(self.model, self.optimizer, nn.functional.mse_loss, {}, device)
        self._batch = torch.randn(BATCH if device.type == "cpu" else GPU_BATCH, WIDTH, device=device)
        self.device = device

    def step(self, before_update: Callable[[], None] = lambda: None) -> None:
        self.optimizer.zero_grad(set_to_none=False)  # the same memory each step: steadier steps
        torch.autograd.backward(nn.functional.mse_loss(self.model(self._batch), self._batch))
        before_update()
        self.optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()


class Participant:
    """``begin`` makes a checkpoint between two steps; ``before_update`` comes in each step after the backward pass.

    ``finished`` is when the checkpoint was written, in seconds of ``time.perf_counter()``; None: not yet.
    """

    def __init__(self, name: str, begin: Callable[[Path], None]) -> None:
        self.name, self.begin = name, begin
        self.before_update: Callable[[], None] = lambda: None
        self.finished: float | None = None

    def note_finished(self, error: BaseException | None = None) -> None:
        if error is not None:
            print(f"{self.name}: {error!r}", file=sys.stderr)
            os._exit(1)  # whoever calls may be another thread
        self.finished = time.perf_counter()


@dataclass(frozen=True)
class Measured:
    """Of one checkpoint; seconds, and bytes."""

    steady: float
    blocked: float
    pause: float
    cost: float
    finished: float
    memory: int


def participants(training: Training) -> list[Participant]:
    return [_ours(training), _torch_save(training), *_async_saves(training)]


def _ours(training: Training) -> Participant:
    ours = Participant(OURS, lambda folder: None)
    host_copy = HostCopy()

    def write(folder: Path, offset: int, metric_sums: Mapping[str, Any], state: State) -> None:
        facts = {"fence": 1, "metric_sums": dict(metric_sums), "meta": state.meta}
        checkpoint.write(folder, offset, facts, lambda path: write_state(path, state))
        ours.note_finished()

    def fail(text: str) -> None:
        ours.note_finished(RuntimeError(text))

    def begin(folder: Path) -> None:
        snapshots = Snapshots(INTERVAL_SECONDS, training.adapter.export_state, host_copy, partial(write, folder), fail)
        ours.before_update = snapshots.wait_copied
        snapshots.begin(1, {}, force=True)

    ours.begin = begin
    return ours


def _torch_save(training: Training) -> Participant:
    plain = Participant(PLAIN, lambda folder: None)

    def begin(folder: Path) -> None:
        content = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
        torch.save(content, folder / "draft.pt")
        (folder / "draft.pt").rename(folder / "checkpoint.pt")
        plain.note_finished()

    plain.begin = begin
    return plain


def _async_saves(training: Training) -> list[Participant]:
    """As it is called by default; and on a GPU with the stager that copies while the next step computes."""
    from torch.distributed.checkpoint.staging import DefaultStager
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save

    def participant(name: str, stager: DefaultStager | None) -> Participant:
        them = Participant(name, lambda folder: None)

        def begin(folder: Path) -> None:
            model, optimizer = get_state_dict(training.model, training.optimizer)
            content = {"model": model, "optimizer": optimizer}
            saved = async_save(content, checkpoint_id=folder / "dcp", async_stager=stager, no_dist=True)
            if isinstance(saved, AsyncSaveResponse):
                them.before_update = saved.staging_completion.result
                saved = saved.upload_completion
            saved.add_done_callback(lambda done: them.note_finished(done.exception()))

        them.begin = begin
        return them

    found = [participant("DCP async_save", None)]
    if torch.cuda.is_available():
        found.append(participant("DCP async_save, async stager", DefaultStager()))
    return found


def measure(training: Training, who: Participant) -> Measured:
    os.sync()  # nobody pays for what another left to the disk
    moments = [time.perf_counter()]
    for _ in range(STEADY_STEPS):
        training.step()
        moments.append(time.perf_counter())
    steady = statistics.median(b - a for a, b in itertools.pairwise(moments))
    before = most = _memory.resident(os.getpid())
    blocked = 0.0

    def before_update() -> None:
        nonlocal blocked
        if training.device.type == "cuda":
            torch.cuda.synchronize()  # a thread that waits for a copy then waits for nothing else
        start = time.perf_counter()
        who.before_update()
        blocked += time.perf_counter() - start

    who.finished = None
    who.before_update = lambda: None
    folder = Path(tempfile.mkdtemp(prefix="edt-checkpoint-", dir=os.environ.get("TMPDIR")))
    try:
        begun = time.perf_counter()
        moments = [begun]
        who.begin(folder)
        blocked += time.perf_counter() - begun
        while len(moments) <= LEAST_STEPS or who.finished is None:
            training.step(before_update)
            moments.append(time.perf_counter())
            most = max(most, _memory.resident(os.getpid()))
        finished = who.finished - begun
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    steps = [b - a for a, b in itertools.pairwise(moments)]
    return Measured(steady, blocked, max(steps) - steady, sum(steps) - len(steps) * steady, finished, most - before)


def rows_of(who: str, first: Measured, runs: list[Measured]) -> list[_report.Row]:
    """``first``: its first checkpoint, for which it takes the memory that it may then keep."""
    if who == _NOBODY:
        return [_report.row("steady step", who, "ms", [run.steady * 1e3 for run in runs])]
    return [
        _report.row("steady step", who, "ms", [run.steady * 1e3 for run in runs]),
        _report.row("blocked", who, "ms", [run.blocked * 1e3 for run in runs]),
        _report.Row(
            "blocked, worst", who, max(run.blocked for run in runs) * 1e3, "ms", [r.blocked * 1e3 for r in runs]
        ),
        _report.row("pause", who, "ms", [run.pause * 1e3 for run in runs]),
        _report.row("cost", who, "ms", [run.cost * 1e3 for run in runs]),
        _report.row("finished", who, "ms", [run.finished * 1e3 for run in runs]),
        _report.row("memory", who, "MiB", [first.memory / _memory.MIB]),
        _report.row("ratio at 10 s", who, "x", [1 + run.cost / INTERVAL_SECONDS for run in runs]),
    ]


_NOBODY = "no checkpoint"


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--threads", type=int, help="of the training; default: all cores but one, if there are two")
    chosen = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(chosen.threads or max(1, cores - 1))
    training = Training(torch.device("cuda:0" if torch.cuda.is_available() else "cpu"))
    for _ in range(5):
        training.step()
    nobody = Participant(_NOBODY, lambda folder: None)
    nobody.begin = lambda folder: nobody.note_finished()
    everybody = [nobody, *participants(training)]
    firsts = {who.name: measure(training, who) for who in everybody}  # warms its memory up
    found: dict[str, list[Measured]] = {who.name: [] for who in everybody}
    for repetition in range(3 if chosen.quick else 9):
        for who in everybody[repetition % len(everybody) :] + everybody[: repetition % len(everybody)]:
            found[who.name].append(measure(training, who))
    rows = [row for who, runs in found.items() for row in rows_of(who, firsts[who], runs)]
    values = {(row.who, row.case): row.value for row in rows}
    shares = [ours.blocked / plain.blocked for ours, plain in zip(found[OURS], found[PLAIN], strict=True)]
    share, ratio = statistics.median(shares), values[OURS, "ratio at 10 s"]
    rows.append(_report.row("blocked, of torch.save", OURS, "x", shares))
    targets = [
        _report.Target("blocked, of torch.save in the same round", MOST_OF_PLAIN, share, "x", share <= MOST_OF_PLAIN),
        _report.Target("step time with a background checkpoint each 10 s", 1.02, ratio, "x", ratio <= 1.02),
    ]
    _report.finish("checkpoint", rows, targets, chosen.json)


if __name__ == "__main__":
    main()
