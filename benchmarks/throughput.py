"""What an elastic training costs while nothing happens: steps of ours beside those of its framework's own way.

PyTorch     E micro-batches a step on W processes, (E, W) = (4, 1), (4, 2), (6, 2) and (8, 2): ours (exact and fast
            reduction), DistributedDataParallel with the same global batch over gloo on lo (E/W micro-batches a process,
            no_sync up to the last), the same with gradient_as_bucket_view, and torchft's DistributedDataParallel with
            its Manager. 1 million parameters behind convolutions, 25 million in linear layers, a transformer of 10
            million; one thread a process.
TensorFlow  one process, ours with E = 1 and E = 4, Keras ``fit`` with the same global batch, at its defaults and with
            TensorFlow's deterministic ops, and a loop that adds up the gradients of 4 micro-batches. Convolutions whose
            step takes some 100 ms, 25 million parameters in dense layers; as many threads as there are cores. And what
            memory they hold.

Model, data, optimizer, threads are the same on all sides. All participants of a case live beside each other and
compute in turn, for a second or more each; shown is the median over the turns, a step's time being a turn's divided by
its steps. Ratios are of turns of one round. "again" is the peer a second time: its ratio to the first, the A/A row,
says what the machine lets one see. The base of a target beside DDP is the median of that ratio, or 1 where it is
below 1. A target holds when the 95 % bound of the median ratio is within it (``_bound``). "MALLOC_" is the peer with
the settings of memory that our engines have (``edt_contract.processes.keep_freed_memory``). Recovery checkpoints are
off here: ``checkpoint`` measures what they cost. --quick takes one case of each framework.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _bound
import _memory
import _report
from _participants import CORES, HERE, RUNNERS, Measured, Ours, Peer, Side, Task, compare, has_torchft
from _torch_training import BATCH

SIZES = ((4, 1), (4, 2), (6, 2), (8, 2))
"""(E, W)"""
TURNS = {"conv-1M": 30, "linear-25M": 5, "transformer-10M": 5}
"""Steps of a turn in PyTorch."""
SHORT_STEPS = ("conv-1M",)
"""Networks whose steps take 12 to 50 ms; those of the others take 100 ms and more."""
KERAS_BATCH = {"conv": 192, "dense-25M": 64}
"""Samples of a step; ours divides them among E micro-batches."""
KERAS_TURN = 10
ROUNDS, QUICK_ROUNDS = 15, _bound.FEWEST
QUICK = ("PyTorch conv-1M (4, 2)", "TensorFlow conv")
DDP, AGAIN, FIT = "DDP", "DDP, again", "Keras fit"
EXACT, FAST = "OpenEDT", "OpenEDT, fast"
FOUR, LOOP = "OpenEDT, E = 4", "Keras loop, 4 added up"
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
"""What our engines set for themselves: ``edt_contract.processes.keep_freed_memory``."""

Found = tuple[list[_report.Row], list[_report.Target]]


@dataclass(frozen=True)
class Options:
    rounds: int
    quick: bool
    torchft: str | None
    """The interpreter that has torchft."""


def margin(network: str, who: str, micro_batches: int, workers: int) -> float:
    """How much more than the base a ratio to DDP may be.

    An assignment is aligned where each engine computes one whole subtree of the sum: E/W is a power of two.
    """
    if network in SHORT_STEPS:
        return 0.05 if who == FAST else 0.12
    if who == FAST:
        return 0.02
    each = micro_batches // workers
    return 0.05 if each & (each - 1) == 0 else 0.08


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


def target(case: str, who: str, peer: str, most: float, found: Mapping[str, Measured]) -> _report.Target:
    bound = _bound.of_median(ratios(found[who], found[peer]))
    return _report.Target(f"{case}: {who} beside {peer}, 95 % bound of the median", most, bound, "x", bound <= most)


# ── the cases ─────────────────────────────────────────────────────────────────────────────────────────────────
def torch_case(task: Task, options: Options) -> Found:
    def words(who: str) -> list[str]:
        return [who, task.network, str(task.micro_batches), str(task.workers), str(task.turn)]

    starts: list[Callable[[], Side]] = [
        lambda: Ours(EXACT, task, words("exact")),
        lambda: Ours(FAST, task, words("fast")),
        lambda: Peer(DDP, task, words("ddp")),
        lambda: Peer(AGAIN, task, words("ddp")),
        lambda: Peer("DDP, bucket view", task, words("ddp-view")),
    ]
    if not options.quick:
        starts.append(lambda: Peer("DDP, MALLOC_", task, words("ddp"), MALLOC))
    if (python := options.torchft) is not None:
        starts.append(lambda: Peer("torchft", task, words("torchft"), python=python))
    found = compare(starts, options.rounds)
    samples = task.micro_batches * BATCH[task.network]
    base = _bound.base(ratios(found[AGAIN], found[DDP]))
    most = {who: base + margin(task.network, who, task.micro_batches, task.workers) for who in (FAST, EXACT)}
    return rows_of(task.case, found, samples, [DDP]), [
        target(task.case, who, DDP, limit, found) for who, limit in most.items()
    ]


def keras_case(task: Task, options: Options) -> Found:
    whole = KERAS_BATCH[task.network]

    def words(who: str, parts: int) -> list[str]:
        return [who, task.network, str(whole // parts), str(parts), str(task.turn)]

    starts: list[Callable[[], Side]] = [
        lambda: Ours("OpenEDT, E = 1", task, words("ours", 1)),
        lambda: Peer(FIT, task, words("fit", 1)),
        lambda: Peer("Keras fit, again", task, words("fit", 1)),
    ]
    if not options.quick:
        starts += [
            lambda: Ours(FOUR, task, words("ours", 4)),
            lambda: Peer(LOOP, task, words("accumulate", 4)),
            lambda: Peer("Keras fit, deterministic", task, words("deterministic", 1)),
            lambda: Peer("Keras fit, MALLOC_", task, words("fit", 1), MALLOC),
        ]
    found = compare(starts, options.rounds)
    rows = rows_of(task.case, found, whole, [FIT])
    targets = [target(task.case, "OpenEDT, E = 1", FIT, 1.10, found)]
    if not options.quick:
        rows.append(_report.row(task.case, FOUR, f"x {LOOP}", ratios(found[FOUR], found[LOOP])))
        if task.network == "dense-25M":
            targets.append(target(task.case, FOUR, LOOP, 1.15, found))
    for who, measured in found.items():
        rows.append(_report.row(task.case, who, "MiB resident, who trains", [measured.resident / _memory.MIB]))
        rows.append(_report.row(task.case, who, "MiB, all processes", [measured.own / _memory.MIB]))
    return rows, targets


def tasks(folder: Path) -> list[Task]:
    """All cases."""
    # A job's threads are its node's cores / its slots, whatever W is; here it has two slots on two cores.
    found = [
        Task(folder, "pytorch", network, micro_batches, workers, 1, turn)
        for network, turn in TURNS.items()
        for micro_batches, workers in SIZES
    ]
    if importlib.util.find_spec("tensorflow"):
        found += [Task(folder, "tensorflow", network, 4, 1, CORES, KERAS_TURN) for network in KERAS_BATCH]
    return found


def chosen_tasks(parser: argparse.ArgumentParser, folder: Path, only: Sequence[str]) -> list[Task]:
    every = tasks(folder)
    found = [task for task in every if not only or any(part in task.case for part in only)]
    if not found:
        parser.error(f"--only {' '.join(only)}: no such case; there are\n  " + "\n  ".join(task.case for task in every))
    return found


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only cases whose name has it; may be repeated"
    )
    parser.add_argument("--rounds", type=int, help=f"of each case (default {ROUNDS}, with --quick {QUICK_ROUNDS})")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="the interpreter with torchft")
    options = parser.parse_args()
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    if rounds < _bound.FEWEST:
        parser.error(f"--rounds is {rounds}; a bound of a median needs at least {_bound.FEWEST}")
    only = options.only or (QUICK if options.quick else ())
    os.environ["PYTHONPATH"] = f"{RUNNERS}:{HERE}"
    torchft = options.peers if has_torchft(options.peers) else None
    absent = [] if torchft else [f"torchft: not installed for {Path(options.peers).name}"]
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    with tempfile.TemporaryDirectory(prefix="edt-throughput-", ignore_cleanup_errors=True) as place:
        for task in chosen_tasks(parser, Path(place), only):
            print(f"{task.case} …", file=sys.stderr, flush=True)
            run = torch_case if task.framework == "pytorch" else keras_case
            found, held = run(task, Options(rounds, options.quick, torchft))
            rows += found
            targets += held
            _report.write("throughput", rows, targets, options.json, absent)
    _report.finish("throughput", rows, targets, options.json, absent)


if __name__ == "__main__":
    main()
