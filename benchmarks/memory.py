"""What memory a training holds at its peak: 25 million parameters in linear layers under Adam, E = 4.

A process that trains is asked for the largest resident memory (VmHWM, by Linux) that it had during a turn of steps
after its first ones. Of several processes counts the largest.

  whole process   what Linux says
  above idle      less what a process holds that has imported PyTorch and has the data, and does nothing. In this, a
                  target is held: 200 MiB of libraries on both sides would make any ratio look like 1
  from its start  the largest since the process started, less the same
  all processes   what exists because of the training, sampled during the turn: of ours also driver, coordinator and
                  supervisor. Memory that several share counts once
  by count        parameters, optimizer, gradients and so on, by arithmetic

"DDP" has its default buckets, "DDP, again" is the same a second time: the A/A row. Recovery checkpoints are off, but
for "OpenEDT, snapshots", which makes one each second: an engine copies its state for that. Each round starts every
participant anew. Ratios are of one round; a target holds when the 95 % bound of the median ratio is within it, or, of
fewer than five rounds, the largest.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import _bound
import _memory
import _report
from _participants import HERE, RUNNERS, Ours, Peer, Side, Task
from _torch_training import network

from edt_runner.comm.buckets import buckets_of, shard_of
from edt_runner.comm.exchange import _WINDOW as WINDOW

E = 4
NETWORK, TURN = "linear-25M", 12
SNAPSHOT_SECONDS = 1.0
SAMPLE_SECONDS = 0.05
DDP, FAST, EXACT, SNAPSHOTS = "DDP", "OpenEDT, fast", "OpenEDT", "OpenEDT, snapshots"
AGAIN, VIEW = "DDP, again", "DDP, bucket view"
MOST = {FAST: 1.10, EXACT: 1.35}
"""Times DDP, with W = 2."""


@dataclass(frozen=True)
class Measured:
    """Bytes of one training."""

    steps: int
    """The peak of a process during the turn."""
    start: int
    """The peak of a process before it."""
    everything: int
    """The largest sample of all processes during the turn."""


@dataclass(frozen=True)
class Counted:
    """Bytes by arithmetic."""

    parameters: int
    optimizer: int
    gradients: int
    sums: int
    """Buffers in which gradients are added up. DDP: its buckets."""
    results: int
    arriving: int
    """Parts of other engines' sums."""
    snapshot: int
    """The copy that a recovery checkpoint is written from."""


def measure(side: Side) -> Measured:
    with_all: list[int] = [0]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            with_all.append(_memory.own(side.processes()))

    try:
        side.turns.wait_for_all(side.alive, side.why)
        pids = side.turns.pids
        start = max(map(_memory.peak, pids))
        for pid in pids:
            _memory.begin_peak(pid)
        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            side.turns.take()
        finally:
            done.set()
            sampler.join()
        return Measured(max(map(_memory.peak, pids)), start, max(with_all))
    finally:
        side.close()


def idle() -> int:
    """Bytes of a process that has imported PyTorch and has the data."""
    line = "import _torch_training as t; data = t.Images(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", line], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = _memory.resident(process.pid)
        process.kill()
    return found


def count(who: str, sizes: Sequence[int], micro_batches: int, workers: int) -> Counted:
    """Bytes that a process of a training under Adam holds, of float32 numbers.

    An engine gives each gradient away as soon as it is computed, so it has about one at a time. It adds up n
    micro-batches in max(1, log2(n)) buffers. A fast reduction has its sum in one of two results, which are used in turn
    where there are other engines. An exact one has one result more than its sums there.

    Args:
        who: the participant.
        sizes: how many numbers each parameter has.
        micro_batches: E, divisible by ``workers``, with a quotient that is a power of two.
        workers: W.
    """
    whole = 4 * sum(sizes)
    if who in (DDP, AGAIN, VIEW):
        return Counted(whole, 2 * whole, 0 if who == VIEW else whole, whole, 0, 0, 0)
    gradients, snapshot = 4 * max(sizes), 3 * whole if who == SNAPSHOTS else 0
    if who == FAST:
        return Counted(whole, 2 * whole, gradients, 0, (1 if workers == 1 else 2) * whole, 0, snapshot)
    buffers = max(1, round(math.log2(micro_batches // workers)))
    buckets = buckets_of(sizes, sum(sizes), 4)
    shards = sorted((high - low for low, high in (shard_of(bucket, 0, workers) for bucket in buckets)), reverse=True)
    arriving = 4 * (workers - 1) * sum(shards[:WINDOW])
    results = 0 if workers == 1 else whole
    return Counted(whole, 2 * whole, gradients, buffers * whole, results, arriving, snapshot)


def starts(task: Task, quick: bool) -> dict[str, Callable[[], Side]]:
    def words(who: str, *more: str) -> list[str]:
        numbers = map(str, (task.micro_batches, task.workers, task.turn))
        return [who, task.network, *numbers, "--optimizer", "adam", *more]

    found: dict[str, Callable[[], Side]] = {
        EXACT: lambda: Ours(EXACT, task, words("exact")),
        FAST: lambda: Ours(FAST, task, words("fast")),
        DDP: lambda: Peer(DDP, task, words("ddp")),
        AGAIN: lambda: Peer(AGAIN, task, words("ddp")),
    }
    if not quick:
        found[VIEW] = lambda: Peer(VIEW, task, words("ddp-view"))
        snapshots = words("exact", "--recovery", str(SNAPSHOT_SECONDS))
        found[SNAPSHOTS] = lambda: Ours(SNAPSHOTS, task, snapshots)
    return found


def rows_of(case: str, found: Mapping[str, Sequence[Measured]], base: int) -> list[_report.Row]:
    rows = []
    for who, runs in found.items():
        peers = found[DDP]
        for unit, bytes_of in BYTES.items():
            own = [bytes_of(each, base) for each in runs]
            rows.append(_report.row(case, who, f"MiB, {unit}", [each / _memory.MIB for each in own]))
            if who != DDP:
                other = [bytes_of(each, base) for each in peers]
                rows.append(_report.row(case, who, f"x DDP, {unit}", [a / b for a, b in zip(own, other, strict=True)]))
    return rows


BYTES: Mapping[str, Callable[[Measured, int], int]] = {
    "whole process": lambda found, _: found.steps,
    "above idle": lambda found, base: found.steps - base,
    "from its start": lambda found, base: found.start - base,
    "all processes": lambda found, _: found.everything,
}


def counted_rows(case: str, people: Sequence[str], workers: int) -> list[_report.Row]:
    sizes = [parameter.numel() for parameter in network(NETWORK).parameters()]
    rows = []
    ddp = sum(astuple(count(DDP, sizes, E, workers)))
    for who in people:
        counted = count(who, sizes, E, workers)
        for field in fields(counted):
            rows.append(_report.row(case, who, f"MiB, {field.name}", [getattr(counted, field.name) / _memory.MIB]))
        rows.append(_report.row(case, who, "MiB, all", [sum(astuple(counted)) / _memory.MIB]))
        rows.append(_report.row(case, who, "x DDP", [sum(astuple(counted)) / ddp]))
    return rows


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--rounds", type=int, help="starts of each participant (default 5, with --quick 1)")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else _bound.FEWEST)
    os.environ["PYTHONPATH"] = f"{RUNNERS}:{HERE}"
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    base = idle()
    for workers in (2,) if options.quick else (2, 1):
        found: dict[str, list[Measured]] = {}
        for number in range(rounds):
            with tempfile.TemporaryDirectory(prefix="edt-memory-", ignore_cleanup_errors=True) as place:
                task = Task(Path(place), "pytorch", NETWORK, E, workers, 1, TURN)
                for who, start in starts(task, options.quick).items():
                    print(f"{task.case}, round {number + 1}: {who} …", file=sys.stderr, flush=True)
                    found.setdefault(who, []).append(measure(start()))
        measured = rows_of(task.case, found, base)
        rows += measured + counted_rows(f"{task.case} by count", list(found), workers)
        if workers == 2:
            for who, most in MOST.items():
                [runs] = [each.runs for each in measured if each.who == who and each.unit == "x DDP, above idle"]
                bound = _bound.of_median(runs) if rounds >= _bound.FEWEST else max(runs)
                what = f"{task.case}: peak of {who} beside DDP, above idle, bound of {rounds}"
                targets.append(_report.Target(what, most, bound, "x", bound <= most))
    rows.append(_report.row("an idle process", "PyTorch and the data", "MiB", [base / _memory.MIB]))
    _report.finish("memory", rows, targets, options.json)


if __name__ == "__main__":
    main()
