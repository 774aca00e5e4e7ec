"""What a recovery checkpoint costs a training: 25 million parameters under Adam (300 MB of state), short steps.

Each participant is asked for a checkpoint at a step boundary and the training goes on. Counted is

  pause   the longest interval between two steps from there on, less a steady step
  cost    all the time that the training lost until the checkpoint was on disk
  ratio   of step times, with a checkpoint each 10 s (our default) to without: 1 + cost / 10 s

"background" is what an engine does: a copy of the boundary while the next step computes, then the disk, with SHA-256
and fsync. "synchronous" writes the same in the loop. "torch.save" is the usual line in a training loop: no digest,
no fsync. "DCP async_save" is torch.distributed.checkpoint's own background save. Participants take turns.
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
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _report

from edt_runner.adapter import State
from edt_runner.checkpoints import checkpoint
from edt_runner.checkpoints.snapshot import HostCopy, Snapshots, write_state
from edt_runner.frameworks.pytorch.adapter import TorchAdapter

WIDTH, LAYERS = 2048, 6
INTERVAL_SECONDS = 10.0
STEADY_STEPS, LEAST_STEPS = 20, 20


class Training:
    """Plain steps of a stack of linear layers."""

    def __init__(self, device: torch.device) -> None:
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
        self.model = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, fused=True)
        self.adapter = TorchAdapter(self.model, self.optimizer, nn.functional.mse_loss, {}, device)
        self._batch = torch.randn(4 if device.type == "cpu" else 4096, WIDTH, device=device)
        self._device = device

    def step(self, before_update: Callable[[], None] = lambda: None) -> None:
        self.optimizer.zero_grad(set_to_none=False)  # the same memory each step: steadier steps
        nn.functional.mse_loss(self.model(self._batch), self._batch).backward()
        before_update()
        self.optimizer.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class Participant:
    """``begin`` makes a checkpoint at a boundary, ``before_update`` comes in each step, ``done``: is it on disk?"""

    def __init__(self, name: str, begin: Callable[[Path], None]) -> None:
        self.name, self.begin = name, begin
        self.before_update: Callable[[], None] = lambda: None
        self.done: Callable[[], bool] = lambda: True


def participants(training: Training) -> list[Participant]:
    host_copy = HostCopy()

    def write(folder: Path, offset: int, metric_sums: Mapping[str, Any], state: State) -> None:
        facts = {"fence": 1, "metric_sums": dict(metric_sums), "meta": state.meta}
        checkpoint.write(folder, offset, facts, lambda path: write_state(path, state))

    def fail(text: str) -> None:
        sys.exit(text)

    background = Participant("background (OpenEDT)", lambda folder: None)

    def begin(folder: Path) -> None:
        snapshots = Snapshots(INTERVAL_SECONDS, training.adapter.export_state, host_copy, partial(write, folder), fail)
        background.before_update, background.done = snapshots.wait_copied, lambda: not snapshots.under_way
        snapshots.begin(1, {}, force=True)

    background.begin = begin

    def synchronous(folder: Path) -> None:
        export = training.adapter.export_state
        Snapshots(INTERVAL_SECONDS, export, host_copy, partial(write, folder), fail).write_now(1, {})

    def torch_save(folder: Path) -> None:
        content = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
        torch.save(content, folder / "draft.pt")
        (folder / "draft.pt").rename(folder / "checkpoint.pt")

    return [
        background,
        Participant("synchronous (OpenEDT)", synchronous),
        Participant("torch.save in the loop", torch_save),
        _async_save(training),
    ]


def _async_save(training: Training) -> Participant:
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    them = Participant("DCP async_save", lambda folder: None)

    def begin(folder: Path) -> None:
        model, optimizer = get_state_dict(training.model, training.optimizer)
        saved = dcp.async_save({"model": model, "optimizer": optimizer}, checkpoint_id=folder / "dcp")
        them.done = lambda: saved.done() and saved.result() is not None

    them.begin = begin
    return them


def measure(training: Training, who: Participant) -> tuple[float, float, float]:
    """(a steady step, the pause, the cost) in seconds."""
    os.sync()  # nobody pays for what another left to the disk
    moments = [time.perf_counter()]
    for _ in range(STEADY_STEPS):
        training.step()
        moments.append(time.perf_counter())
    steady = statistics.median(b - a for a, b in itertools.pairwise(moments))
    folder = Path(tempfile.mkdtemp(prefix="edt-checkpoint-", dir=os.environ.get("TMPDIR")))
    try:
        moments = [time.perf_counter()]
        who.begin(folder)
        while len(moments) <= LEAST_STEPS or not who.done():
            training.step(who.before_update)
            moments.append(time.perf_counter())
        who.before_update = lambda: None
    finally:
        shutil.rmtree(folder)
    steps = [b - a for a, b in itertools.pairwise(moments)]
    return steady, max(steps) - steady, sum(steps) - len(steps) * steady


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--threads", type=int, help="of the training; default: all cores but one, if there are two")
    chosen = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(chosen.threads or max(1, cores - 1))
    training = Training(torch.device("cuda:0" if torch.cuda.is_available() else "cpu"))
    for _ in range(5):
        training.step()
    everybody = participants(training)
    nobody = Participant("no checkpoint", lambda folder: None)
    found: dict[str, list[tuple[float, float, float]]] = {who.name: [] for who in [nobody, *everybody]}
    for repetition in range(-1, 3 if chosen.quick else 10):
        for who in [nobody, *everybody]:
            measured = measure(training, who)
            if repetition >= 0:  # the first turn of each warms its memory up
                found[who.name].append(measured)
    rows = []
    for who, runs in found.items():
        rows += [
            _report.row("steady step", who, "ms", [steady * 1e3 for steady, _, _ in runs]),
            _report.row("pause", who, "ms", [pause * 1e3 for _, pause, _ in runs]),
            _report.row("cost", who, "ms", [cost * 1e3 for _, _, cost in runs]),
            _report.row("ratio at 10 s", who, "x", [1 + cost / INTERVAL_SECONDS for _, _, cost in runs]),
        ]
    ratio = next(r.value for r in rows if r.who.startswith("background") and r.case.startswith("ratio"))
    target = _report.Target("step time with a background checkpoint each 10 s", 1.02, ratio, "x", ratio <= 1.02)
    _report.finish("checkpoint_pause", rows, [target], chosen.json)


if __name__ == "__main__":
    main()
