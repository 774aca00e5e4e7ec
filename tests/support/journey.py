"""What journeys have in common: a platform whose jobs can be gated, and the digest such a job should end with."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.gate import GateKeeper
from support.nursery import RUNNERS, TESTS
from support.paging import every
from support.running_platform import EXECS, Platform
from support.training import script
from support.waiting import until

SEED = 7
OVER = ("FINISHED", "KILLED", "ERROR")
_numbers = itertools.count(1)
PATIENCE = 120.0
"""So many seconds may a journey's next station take on a machine that does other things besides."""


def platform_in(folder: Path, slots: int = 4, *, one_core: bool = False, **environ: str) -> Platform:
    """A platform whose engines find the tests' own modules."""
    paths = {"PYTHONPATH": f"{TESTS}:{RUNNERS}", "GLOO_SOCKET_IFNAME": "lo", "EDT_GRACE_SECONDS": "10"}
    paths["EDT_MEASURED_SPEEDS"] = "false"  # a gate decides how long steps take
    return Platform(folder, slots, one_core=one_core, **{**paths, **environ})


@contextmanager
def visit(platform: Platform) -> Iterator[Platform]:
    """A platform that several tests use, for one of them: it serves, no job of another test holds a slot or waits, and
    what the checker has found by the end is this test's to tell."""
    if platform.up is None or platform.up.poll() is not None:
        platform.start()
    known = len(platform.jobs)
    try:
        yield platform
    finally:
        for job in platform.jobs[known:]:
            if platform.job(job)["state"] not in OVER:
                platform.api.post(f"{EXECS}/{job}/stop")
                platform.wait(job, *OVER)
    platform.checker.assert_sound()


@dataclass
class Job:
    """A job of a platform that takes only as many steps as it is let."""

    platform: Platform
    id: str
    gate: GateKeeper
    record: Path

    def slots(self) -> int:
        """Engines that have the weights, by the job's last report."""
        return int(self.platform.job(self.id).get("workers") or 0)

    def joined(self) -> int:
        """Engines that have been given the weights and hold their slots. Those of a lost node are kept from others for
        another lease, and train nothing."""
        lost = {node["name"] for node in self.platform.nodes() if node["health"] == "lost"}
        allocations = every(self.platform.api, f"/api/v1/jobs/{self.id}/allocations")
        held = [each for each in allocations if each["joined_at"] is not None and each["released_at"] is None]
        return sum(each["node"] not in lost for each in held)

    def until_slots(self, number: int, seconds: float = PATIENCE) -> None:
        """Let steps through until the job trains on ``number`` engines: those that engines need to come and go, however
        long they take to warm up, and then some of which a report is made. Where one is lost meanwhile, which is told a
        moment after its node is, the next one is waited for in the same way: a training has only so many steps."""
        deadline = time.monotonic() + seconds

        def left() -> float:
            return deadline - time.monotonic()

        while True:
            self.gate.until(lambda: self.joined() == number, left(), sparing=True)
            self.gate.until(lambda: self.slots() == number or self.joined() != number, left())
            if self.slots() == number:
                return

    def finish(self, seconds: float = PATIENCE) -> dict[str, Any]:
        self.gate.open()
        return self.platform.wait(self.id, "FINISHED", seconds=seconds)


WMLAS_NAME = {"pytorch": "edtPyTorch", "tensorflow": "edtTensorflow"}


def submit(
    platform: Platform,
    name: str,
    options: str = "--numWorker 4",
    arguments: str = "--epochs 20",
    framework: str = "pytorch",
) -> Job:
    """Submit the script ``conv`` behind a gate of its own."""
    name = f"{name}-{next(_numbers)}"
    gate = GateKeeper(platform.folder / f"gate-{name}")
    record = platform.folder / f"samples-{name}"
    env = f"--msd-env TEST_GATE={gate.path} --msd-env EDT_SAMPLE_RECORD={record} --msd-env EDT_SEED={SEED}"
    job = platform.submit(script("conv", framework), f"{options} {env}", arguments, WMLAS_NAME[framework])
    platform.checker.keeps(job, record)
    return Job(platform, job, gate, record)


def all_woken(platform: Platform, *jobs: Job) -> list[dict[str, Any]]:
    """All resizes of the jobs, once each has been woken."""

    def found() -> list[dict[str, Any]]:
        return [resize for job in jobs for resize in platform.resizes(job.id)]

    until(lambda: all(resize["woken_by"] for resize in found()), what="every resize was woken")
    return found()
