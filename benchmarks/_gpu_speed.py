"""A step of ours beside one of DistributedDataParallel, and what one engine copies between host and GPU."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from _gpu_attempts import SCRIPT, Attempt, Place
from _gpu_copies import TO_DEVICE, TO_HOST, Found, read
from _gpu_networks import TASKS
from _gpu_page import Page
from _participants import RUNNERS, free_port
from _turns import Turns

MOST_RATIO, MOST_GRADIENT_BYTES = 1.02, 0.0
FEWEST_ROUNDS, MOST_ROUNDS = 5, 25
OURS, SAME, PLAIN = "OpenEDT", "DDP, same determinism", "DDP, torch's defaults"
_MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        networks: convolutions, a transformer.
        length: steps of a turn.
    """

    networks: Sequence[str]
    length: int


class Ours:
    """A training of ours that computes in turn with its peers."""

    def __init__(self, place: Place, network: str, workers: int, length: int) -> None:
        name = f"ours-{network}-{workers}"
        folder = place.folder / name
        folder.mkdir()
        self.turns = Turns(OURS, folder, workers)
        words = ("turns", network, workers, length)
        self._attempt = Attempt(place, name, words, workers, collectives=True, environ=self.turns.environ)
        self._attempt.hold(range(1, workers + 1))

    def alive(self) -> bool:
        return self._attempt.supervisor.process.poll() is None

    def why(self) -> str:
        return self._attempt.why()

    def close(self) -> None:
        self._attempt.supervisor.kill()
        self.turns.close()


class Peer:
    """Processes of DistributedDataParallel, one for each GPU."""

    def __init__(self, place: Place, network: str, workers: int, length: int, *, deterministic: bool) -> None:
        title = SAME if deterministic else PLAIN
        folder = place.folder / f"ddp{'-same' if deterministic else ''}-{network}-{workers}"
        folder.mkdir()
        self.turns, self._log = Turns(title, folder, workers), folder / "log"
        told = {
            **os.environ,
            **self.turns.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(RUNNERS), os.environ.get("PYTHONPATH")))),
            "OMP_NUM_THREADS": str(place.threads),
            "GLOO_SOCKET_IFNAME": "lo",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(workers),
        }
        words = ["ddp", network, str(workers), str(length), *(["DETERMINISTIC"] if deterministic else [])]
        with self._log.open("wb") as log:
            self._processes = []
            for rank in range(workers):
                device = place.devices[rank % len(place.devices)]
                own = {"RANK": str(rank), "CUDA_VISIBLE_DEVICES": "" if device == "cpu" else device}
                command = [sys.executable, str(SCRIPT), *words]
                self._processes.append(subprocess.Popen(command, env={**told, **own}, stdout=log, stderr=log))

    def alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def why(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.turns.close()


def compare(page: Page, place: Place, sizes: Sizes, *, workers: int, seconds: float, judged: bool) -> None:
    """Steps of ours beside DDP's, in rounds in which all compute in turn, each time in another order.

    Args:
        page: gets the rows.
        place: where it runs.
        sizes: what is trained.
        workers: processes, one on each GPU.
        seconds: for all networks together; each has five rounds in any case.
        judged: whether the target holds here.
    """
    for number, network in enumerate(sizes.networks):
        until = time.monotonic() + seconds / (len(sizes.networks) - number)
        begun = time.monotonic()
        found = _rounds(place, network, workers, sizes.length, until)
        seconds -= time.monotonic() - begun
        title = f"{TASKS[network].title}, W = {workers}"
        for who, times in found.items():
            page.figure(title, who, "ms", [1e3 * each for each in times])
        for peer, most in ((SAME, MOST_RATIO), (PLAIN, None)):
            ratios = [own / other for own, other in zip(found[OURS], found[peer], strict=True)]
            page.figure(f"{title}: ours / {peer}", "", "x", ratios, most if judged else None)


def _rounds(place: Place, network: str, workers: int, length: int, until: float) -> dict[str, list[float]]:
    """Seconds of a step, by who, one for each round."""
    chance = random.Random(1)  # noqa: S311
    with ExitStack() as stack:
        sides: list[Ours | Peer] = []
        for start in (
            lambda: Ours(place, network, workers, length),
            lambda: Peer(place, network, workers, length, deterministic=True),
            lambda: Peer(place, network, workers, length, deterministic=False),
        ):
            side: Ours | Peer = start()
            stack.callback(side.close)
            sides.append(side)
        with ThreadPoolExecutor(len(sides)) as pool:
            for waiting in [pool.submit(_warm_up, side) for side in sides]:
                waiting.result()
        for side in sides:
            side.turns.take()  # alone, after all have warmed up beside each other
        steps: dict[str, list[float]] = {side.turns.name: [] for side in sides}
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and time.monotonic() > until:
                break
            for side in chance.sample(sides, len(sides)):
                steps[side.turns.name].append(side.turns.take())
        return steps


def _warm_up(side: Ours | Peer) -> None:
    try:
        side.turns.wait_for_all(side.alive, side.why)
    except SystemExit as exit_:  # which a thread would swallow
        raise RuntimeError(str(exit_)) from None


def copies(page: Page, place: Place, sizes: Sizes, *, judged: bool) -> None:
    """What one engine copies between host and GPU in a step, by the profiler of torch.

    Args:
        page: gets the rows.
        place: where it runs.
        sizes: what is trained.
        judged: whether the target holds here.
    """
    for network in sizes.networks:
        title = TASKS[network].title
        found = _profiled(place, network)
        if not judged and not any(each.number for each in found.copies.values()):
            page.text(title, "nothing is copied, for there is no GPU")
            continue
        for direction, words in ((TO_DEVICE, "host to GPU"), (TO_HOST, "GPU to host")):
            each = found.copies[direction]
            parts = (each.batches, each.gradients, each.others)
            batches, gradients, others = (_size(part / found.steps) for part in parts)
            page.text(
                f"{title}: {words}, a step",
                f"{_size(sum(parts) / found.steps)}: batches {batches}, gradients {gradients}, others {others}; "
                f"{each.number / found.steps:.1f} copies, the largest {_size(each.largest)}",
            )
        if judged and not found.copies[TO_DEVICE].batches:
            raise RuntimeError(f"{title}: the profiler saw no batch go to the GPU, so it would see no gradient either")
        crossed = sum(each.gradients for each in found.copies.values()) / found.steps
        what = f"{title}: gradients over PCIe, a step"
        page.figure(what, "", "B", [crossed], MOST_GRADIENT_BYTES if judged else None)
        page.text("  copies that count as gradients", f"of at least {_size(found.least_gradients)}, without batches")


def _profiled(place: Place, network: str) -> Found:
    found: list[Found] = []

    def has_found() -> bool:
        told = read(attempt.folder)
        found.extend([told] if told is not None else [])
        return bool(found)

    with Attempt(place, f"copies-{network}", ("profiled", network), 1, collectives=True) as attempt:
        attempt.hold([1])
        attempt.wait(has_found, "the profile of some steps")
    return found[0]


def _size(number: float) -> str:
    if number >= _MIB:
        return f"{number / _MIB:.1f} MiB"
    return f"{number / 1024:.1f} KiB" if number >= 1024 else f"{number:.0f} B"
