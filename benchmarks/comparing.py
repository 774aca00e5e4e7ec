"""What it costs a training to compare the replicas of its engines: 25 million parameters under Adam (300 MB of state)
and 1 million (12 MB).

Each participant is asked for checksums of weights, buffers, optimizer state and its settings at a step boundary, and
the training goes on. Counted is

  checksums   the time that they take, with nothing beside
  cost        all the time that the training lost until they were told
  share       of the time of training, at the rate at which epochs' ends are compared by default

"beside a step" is what an engine does: a thread takes them while the next step's passes are computed; the update waits
for it. "in the loop" is the same between two steps. "SHA-256 in the loop" is the digest that a training ends with.
Participants take turns. A share is by design 1 % or less: the coordinator passes over epochs' ends that come sooner, so
the figure says whether what an engine tells of its time is what it costs.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from edt_contract.encoding import dump_line

sys.path.insert(0, str(Path(__file__).parents[1] / "runners"))

import _report

from edt_runner.engine.checksum_sender import ChecksumSender
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.frameworks.flat import checksums
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.protocol.engine_messages import ChecksumsTaken
from edt_runner.protocol.messages import Message
from edt_runner.schedule import Schedule

SIZES = {"25M": (2048, 6), "1M": (512, 4)}
"""(width, layers) by what a case is called."""
SHARE = 0.01
STEADY_STEPS, STEPS = 10, 10
SCHEDULE = Schedule(train_samples=1000, test_samples=0, micro_batches=1, batch_size=1, epochs=1)


class Training:
    """Plain steps of a stack of linear layers."""

    def __init__(self, width: int, layers: int, device: torch.device) -> None:
        stack = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
        self.model = nn.Sequential(*stack).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, fused=True)
        self.adapter = TorchAdapter(self.model, self.optimizer, nn.functional.mse_loss, {}, device)
        self._batch = torch.randn(16 if device.type == "cpu" else 4096, width, device=device)
        self._device = device

    def step(self, before_update: Callable[[], None] = lambda: None) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(self.model(self._batch), self._batch).backward()
        before_update()
        self.optimizer.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class Line:
    """Where an engine would tell the coordinator; what is told is made into bytes, as it is there."""

    compare_from = 0

    def __init__(self) -> None:
        self.bytes = 0
        self.seconds = 0.0

    def send(self, message: Message) -> None:
        assert isinstance(message, ChecksumsTaken)
        self.bytes = len(dump_line(message))
        self.seconds = message.seconds


Participant = tuple[str, Callable[[], None], Callable[[], None]]
"""(name, at the boundary, before the update)"""


def participants(training: Training, line: Line) -> list[Participant]:
    comparing = ChecksumSender(cast(EngineLink, line), training.adapter.export_state, checksums, 1)
    where = SCHEDULE.at(0)

    def begin() -> None:
        comparing.committed(where, 1, Membership(1, ("1", "2"), cast(Any, None), "1"))

    def in_the_loop() -> None:
        begin()
        comparing.wait()

    def nothing() -> None: ...

    return [
        ("beside a step (OpenEDT)", begin, comparing.wait),
        ("in the loop", in_the_loop, nothing),
        ("SHA-256 in the loop", lambda: _ignore(training.adapter.digest()), nothing),
        ("no comparison", nothing, nothing),
    ]


def _ignore(value: Any) -> None: ...


def cost(training: Training, at_boundary: Callable[[], None], before_update: Callable[[], None]) -> float:
    """Seconds that a training loses."""
    moments = [time.perf_counter()]
    for _ in range(STEADY_STEPS):
        training.step()
        moments.append(time.perf_counter())
    steady = statistics.median(b - a for a, b in itertools.pairwise(moments))
    begun = time.perf_counter()
    at_boundary()
    training.step(before_update)
    return time.perf_counter() - begun - steady


def main() -> None:
    chosen = _report.arguments(__doc__).parse_args()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores - 1))
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    for size, (width, layers) in SIZES.items():
        training, line = Training(width, layers, device), Line()
        for _ in range(3):
            training.step()
        everybody = participants(training, line)
        lost: dict[str, list[float]] = {name: [] for name, _, _ in everybody}
        alone: dict[str, list[float]] = {name: [] for name, _, _ in everybody[1:3]}
        told: list[float] = []
        for repetition in range(-1, 3 if chosen.quick else 15):
            for name, at_boundary, before_update in everybody:
                found = cost(training, at_boundary, before_update)
                if repetition >= 0:  # the first turn of each warms its memory up
                    lost[name].append(found)
                    if name.startswith("beside"):
                        told.append(line.seconds)
            for name, at_boundary, _ in everybody[1:3]:
                begun = time.perf_counter()
                at_boundary()
                if repetition >= 0:
                    alone[name].append(time.perf_counter() - begun)
        rows += [_report.row(f"{size}: checksums", who, "ms", [s * 1e3 for s in runs]) for who, runs in alone.items()]
        rows += [_report.row(f"{size}: cost", who, "ms", [s * 1e3 for s in runs]) for who, runs in lost.items()]
        ours = everybody[0][0]
        shares = [max(0.0, mine) / max(1.0, said / SHARE) * 100 for mine, said in zip(lost[ours], told, strict=True)]
        rows.append(_report.row(f"{size}: share", ours, "%", shares))
        rows.append(_report.row(f"{size}: message", ours, "kB", [line.bytes / 1e3]))
        share = statistics.median(shares)
        targets.append(_report.Target(f"share of a training's time, {size}", 1.0, share, "%", share <= 1.0))
    _report.finish("comparing", rows, targets, chosen.json)


if __name__ == "__main__":
    main()
