"""Whether a training ends with the same parameters, whatever happens to its processes on the way.

  schedules  engines join, leave and are killed at random; a schedule follows from its seed, which is printed
  W = …      nothing happens; the same training on 1, 2, 3 and 4 processes, with the same global batches
  one dies   one of two replicas is killed and comes back (torchft)

Counted are the different digests, SHA-256 of all parameters and buffers in the end. The difference is the largest one
of a training to the first of its row, the norm of the difference over the norm. "again" is the A/A row: two trainings
to which the same happens.

"OpenEDT" is its exact reduction, "OpenEDT, fast" plain all-reduce. DDP and torchft run over gloo on lo. All train a
small convolutional network under Adam, "normalized" with batch normalization and dropout. Peers get each global batch
with the same samples on any number of processes; with batch normalization and dropout their results must differ by more
than the order of their sums, since each process normalizes and drops out for itself.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import _report
import torch
from _exactness_sides import Ours, State, ddp, schedule, torchft
from _participants import HERE, RUNNERS, has_torchft

OURS, FAST = "OpenEDT", "OpenEDT, fast"


def digest(state: State) -> str:
    """SHA-256 of all tensors, in the order of their names."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(name.encode())
        found.update(state[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def difference(one: State, other: State) -> float:
    """How far two results are apart: the norm of the difference of all numbers, over the norm of the numbers."""
    numbers = [_flat(state, sorted(one)) for state in (one, other)]
    return float((numbers[0] - numbers[1]).norm() / numbers[0].norm())


def _flat(state: State, names: Sequence[str]) -> torch.Tensor:
    return torch.cat([state[name].double().reshape(-1) for name in names])


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────
class Count:
    """Runs trainings and says how their results differ."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self.rows: list[_report.Row] = []

    def __call__(self, case: str, who: str, trainings: Mapping[str, Callable[[Path], State]]) -> int:
        """Run them; returns the number of different digests. The keys say what each is."""
        first: State | None = None
        digests: list[str] = []
        differences: list[float] = []
        for what, training in trainings.items():
            self._number += 1
            state = training(self._folder / str(self._number))
            first = first or state
            digests.append(digest(state))
            differences.append(difference(first, state))
            print(f"{case}, {who}: {digests[-1][:16]}  {what}", flush=True)
        count = len(set(digests))
        self.rows.append(_report.Row(case, who, count, "different digests", (count,)))
        self.rows.append(_report.Row(case, who, max(differences), "relative difference", tuple(differences)))
        return count


def by_schedules(network: str, reduction: str, seeds: Sequence[int]) -> dict[str, Callable[[Path], State]]:
    found: dict[str, Callable[[Path], State]] = {
        "undisturbed": lambda folder: Ours(folder, network, reduction).train(1, ())
    }
    for seed in seeds:
        events = schedule(seed)
        what = f"seed {seed}: {', '.join(map(str, events))}"
        found[what] = lambda folder, events=events: Ours(folder, network, reduction).train(1, events)  # type: ignore[misc]
    return found


def fixed(network: str, reduction: str) -> Callable[[Path, int], State]:
    return lambda folder, size: Ours(folder, network, reduction).train(size, ())


def on_sizes(train: Callable[[Path, int], State], sizes: Sequence[int]) -> dict[str, Callable[[Path], State]]:
    return {f"W = {size}": lambda folder, size=size: train(folder, size) for size in sizes}  # type: ignore[misc]


def again(train: Callable[[Path], State]) -> dict[str, Callable[[Path], State]]:
    return {"once": train, "again": train}


def deaths(network: str, python: str, seeds: Sequence[int]) -> dict[str, Callable[[Path], State]]:
    found: dict[str, Callable[[Path], State]] = {"undisturbed": lambda folder: torchft(folder, network, python, None)}
    for seed in seeds:
        step = random.Random(seed).randint(10, 60)  # noqa: S311
        found[f"seed {seed}: killed after step {step}"] = lambda folder, step=step: torchft(  # type: ignore[misc]
            folder, network, python, step
        )
    return found


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--schedules", type=int, help="random schedules of each case (default 10, with --quick 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule; the next ones follow (default 1)")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="the interpreter with torchft")
    options = parser.parse_args()
    number = options.schedules or (2 if options.quick else 10)
    seeds, sizes = range(options.seed, options.seed + number), (1, 2) if options.quick else (1, 2, 3, 4)
    os.environ["PYTHONPATH"] = f"{RUNNERS}:{HERE}"
    targets: list[_report.Target] = []

    def held(count: int, case: str) -> None:
        targets.append(_report.Target(f"{case}: different digests of {OURS}", 1, count, "", count == 1))

    with tempfile.TemporaryDirectory(prefix="edt-exactness-", ignore_cleanup_errors=True) as place:
        count = Count(Path(place))
        for network in ("plain",) if options.quick else ("plain", "normalized"):
            case = f"{network}, {number} random schedules"
            held(count(case, OURS, by_schedules(network, "exact", seeds)), case)
            if network == "plain":
                count(case, FAST, by_schedules(network, "fast", seeds))
            case = f"{network}, W = {', '.join(map(str, sizes))}"
            held(count(case, OURS, on_sizes(fixed(network, "exact"), sizes)), case)
            if network == "plain":
                count(case, FAST, on_sizes(fixed(network, "fast"), sizes))
            count(case, "DDP", on_sizes(lambda folder, size: ddp(folder, network, size), sizes))  # noqa: B023
        count("plain, again", "DDP", again(lambda folder: ddp(folder, "plain", 2)))
        if torchft_is_there := has_torchft(options.peers):
            if not options.quick:
                count("plain, again", "torchft", again(lambda folder: torchft(folder, "plain", options.peers, None)))
            times = seeds[: 1 if options.quick else 3]
            case = f"plain, one of two dies, {len(times)} times"
            count(case, "torchft", deaths("plain", options.peers, times))
    absent = [] if torchft_is_there else [f"torchft: not installed for {Path(options.peers).name}"]
    _report.finish("exactness", count.rows, targets, options.json, absent)


if __name__ == "__main__":
    main()
