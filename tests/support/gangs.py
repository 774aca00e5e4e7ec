"""What tests of gangs have in common: scripts, submissions with any args, and a job's processes by their ranks."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cast import cast
from support.credentials import PASSWORD
from support.nursery import TESTS
from support.paging import every
from support.running_platform import EXECS, Platform
from support.waiting import until

SCRIPTS = TESTS / "support" / "scripts" / "gangs"
COUNTING = SCRIPTS / "counting_together.py"
EXAMPLES = TESTS.parent / "examples"
APPLICATIONS = "/platform/rest/deeplearning/v1/scheduler/applications"


def packed(path: Path) -> bytes:
    """The script, or the folder under its own name, as an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(path, path.name, filter=lambda member: None if "__pycache__" in member.name else member)
    return buffer.getvalue()


@dataclass
class GangJob:
    """A job of a platform that runs as a gang."""

    platform: Platform
    id: str

    @property
    def folder(self) -> Path:
        return self.platform.home / "jobs" / self.id

    def shown(self) -> dict[str, Any]:
        """The job as the platform shows it."""
        return self.platform.job(self.id)

    def wait(self, *states: str, seconds: float = 120.0) -> dict[str, Any]:
        return self.platform.wait(self.id, *states, seconds=seconds)

    def finish(self, seconds: float = 120.0) -> dict[str, Any]:
        return self.wait("FINISHED", seconds=seconds)

    def output(self, rank: int = 0, stream: str = "out") -> str:
        """What a rank has written so far."""
        path = self.folder / "log" / f"rank-{rank}.{stream}"
        return path.read_text(errors="replace") if path.exists() else ""

    def log(self, **query: str) -> str:
        """The job's log through the API."""
        answer = self.platform.api.get(f"{EXECS}/{self.id}/log", params=query, headers={"Accept": "text/plain"})
        assert answer.status_code == 200, answer.text
        return answer.text

    def executor(self, number: int, stream: str = "stdout") -> str:
        """The log of one process as dlicmd and notebooks read it. The first has the number 1."""
        answer = self.platform.api.get(f"{APPLICATIONS}/{self.id}/executor/{number}/logs/{stream}")
        assert answer.status_code == 200, answer.text
        return answer.text

    def allocations(self, fence: int = 1) -> list[dict[str, Any]]:
        """Of one attempt, those that are held and those that were."""
        found = every(self.platform.api, f"/api/v1/jobs/{self.id}/allocations")
        return [each for each in found if each["fence"] == fence]

    def nodes(self, fence: int = 1) -> list[str]:
        """The node of each slot of an attempt, sorted."""
        return sorted(each["node"] for each in self.allocations(fence))

    def pids(self, rank: int) -> set[int]:
        """The living processes that were told this rank."""
        mark = f"RANK={rank}".encode()
        return {each.pid for each in cast(self.platform, self.id).processes if mark in _environ(each.pid)}

    def kill(self, rank: int) -> None:
        """SIGKILL to a rank's processes."""
        self.platform.checker.disturbed()
        pids = until(lambda: self.pids(rank), 30, f"rank {rank} of {self.id} lives")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def events(self) -> list[str]:
        """The messages of its history."""
        return [str(each["message"]) for each in every(self.platform.api, f"/api/v1/jobs/{self.id}/events")]


def submit(platform: Platform, args: str, upload: Path | None = None) -> GangJob:
    """POST these args, with a script, with a folder, or without a body. What the args must say they have to say."""
    files = {"file": ("x.modelDir.tar", packed(upload))} if upload is not None else None
    answer = platform.api.post(EXECS, params={"args": args}, files=files)
    assert answer.status_code == 200, answer.text
    job = str(answer.json()["id"])
    platform.checker.acknowledge(job)
    platform.jobs.append(job)
    return GangJob(platform, job)


@dataclass
class Counting(GangJob):
    """A gang whose ranks count together until ``end``."""

    flag: Path

    def rounds(self) -> int:
        """How far they are."""
        path = self.folder / "rounds"
        return int(path.read_text()) if path.exists() else 0

    def until_counting(self) -> int:
        """Until all ranks have met and counted on; how far they are then."""
        began = self.rounds()
        return until(lambda: rounds if (rounds := self.rounds()) > began + 2 else 0, 60, f"{self.id} counts")

    def end(self) -> dict[str, Any]:
        """Let it end, and wait until it has."""
        self.flag.touch()
        return self.finish()


def counting(platform: Platform, options: str, framework: str = "distPyTorch") -> Counting:
    """Submit the script ``counting_together`` with these options of the platform's."""
    flag = platform.folder / f"end-{len(platform.jobs)}"
    args = f"--exec-start {framework} --model-main {COUNTING.name} {options} --until {flag}"
    job = submit(platform, args, COUNTING)
    return Counting(platform, job.id, flag)


@contextmanager
def closed(platform: Platform, node: str, how: str = "drain") -> Iterator[None]:
    """A node that takes no work meanwhile."""
    answer = platform.api.post(f"/api/v1/nodes/{node}/{how}")
    assert answer.is_success, answer.text
    try:
        yield
    finally:
        platform.api.post(f"/api/v1/nodes/{node}/uncordon").raise_for_status()


def first_node(platform: Platform) -> str:
    """The node of ``edt up``, which is named after the machine."""
    [name] = {node["name"] for node in platform.nodes()} - set(platform.agents())
    return str(name)


def log_in(platform: Platform) -> None:
    """``edt login`` as the administrator."""
    done = platform.cli("login", "-u", "admin", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert done.returncode == 0, done.stderr


def typed(platform: Platform, command: str) -> GangJob:
    """A job that was submitted by this line of the examples' pages, typed in the repository."""
    log_in(platform)
    done = platform.cli(*shlex.split(command.replace("examples/", f"{EXAMPLES}/"))[1:])
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    platform.checker.acknowledge(job)
    platform.jobs.append(job)
    return GangJob(platform, job)


def spread(job: GangJob) -> int:
    """Over how many nodes its last attempt went."""
    return len(set(job.nodes(job.shown()["attempts"])))


def losses(job: GangJob) -> list[float]:
    """The loss of each epoch, which rank 0 has printed."""
    return [float(number) for number in re.findall(r"loss (\S+)", job.log())]


def learned(job: GangJob) -> None:
    """Assert that the loss has become smaller from epoch to epoch."""
    found = losses(job)
    assert len(found) >= 3 and found[-1] < 0.8 * found[0], found


def add_framework(platform: Platform, file: Path) -> None:
    """Put an entry into the platform's catalogue, as its administrator."""
    log_in(platform)
    done = platform.cli("frameworks", "add", str(file))
    assert done.returncode == 0, done.stderr


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
