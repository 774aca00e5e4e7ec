"""Starts the processes of the lanes side by side, shows how far they are, and leaves none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from suite.account import Account, Ended

MARK = "SUITE_RUN"
"""In the environment of everything that a run has started, so that it is found whoever its parent is. A run that a
test of another run has started writes its own mark behind the other's, and what it starts belongs to both."""
_PATIENCE = 90.0
"""Seconds that tests have to clean up after Ctrl-C."""
_QUIET = 60.0
"""After so many seconds without a line a lane says what it is at."""


@dataclass
class Job:
    """One process of a lane: a command; ``account`` and ``written`` are there where it is pytest."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path
    written: Path | None = None
    account: Account | None = None
    process: subprocess.Popen[bytes] | None = None
    seconds: float = 0.0
    _begun: float = 0.0
    _file: TextIO | None = None
    _rest: str = ""

    @property
    def good(self) -> bool:
        """Whether it has ended as it should."""
        return self.process is not None and self.process.poll() == 0

    def start(self, mark: str) -> None:
        self._begun = time.monotonic()
        if self.written is not None:
            self.written.touch()
            self._file = self.written.open()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                env={**os.environ, **self.environ, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is told to it by us, once, and not to what it has started
            )

    def over(self) -> bool:
        if self.process is None or self.process.poll() is None:
            return False
        self.seconds = self.seconds or time.monotonic() - self._begun
        return True

    def news(self) -> list[Ended]:
        """The tests that have ended since the last time."""
        if self._file is None or self.account is None:
            return []
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        return [ended for line in lines if (ended := self.account.take(line)) is not None]

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


@dataclass
class Lane:
    """Jobs one after the other. Tells what happens in lines that begin with its name."""

    name: str
    jobs: list[Job]
    at: int = 0
    _file: str = ""
    _counts: dict[str, int] = field(default_factory=dict)
    _spent: float = 0.0
    _printed_at: float = 0.0

    @property
    def job(self) -> Job:
        return self.jobs[self.at]

    def print_line(self, text: str) -> None:
        self._printed_at = time.monotonic()
        print(f"[{self.name}] {text}", flush=True)

    def step(self, mark: str) -> bool:
        """Look once; False: all its jobs are over."""
        if self.at == len(self.jobs):
            return False
        job = self.job
        if job.process is None:
            self.print_line(f"{job.name} begins")
            job.start(mark)
            return True
        over = job.over()  # asked before the news, which are complete then
        for ended in job.news():
            self._take(ended)
        if over:
            self._close(job)
            self.at += 1
        elif time.monotonic() - self._printed_at > _QUIET:
            running = job.account.running if job.account is not None else None
            self.print_line(f"{self._share():>4} {running or job.name} is running")
        return True

    def _take(self, ended: Ended) -> None:
        file = ended.test.partition("::")[0]
        if file != self._file:
            self._print_file()
            self._file = file
        self._counts[ended.outcome] = self._counts.get(ended.outcome, 0) + 1
        self._spent += ended.seconds
        if ended.outcome == "failed":
            self.print_line(f"FAILED {ended.test}")

    def _print_file(self) -> None:
        if self._counts:
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._counts.items()))
            self.print_line(f"{self._share():>4} {self._file}  {counts}  {self._spent:.0f} s")
        self._file, self._counts, self._spent = "", {}, 0.0

    def _share(self) -> str:
        account = self.job.account
        if account is None or not account.selected:
            return ""
        return f"{100 * len(account.ended) // len(account.selected)}%"

    def _close(self, job: Job) -> None:
        assert job.process is not None
        if job.account is not None:
            status = job.process.returncode
            why = f"{job.name} ended with status {status} while this test was running; {job.log} has more"
            if (ended := job.account.close(why)) is not None:
                self._take(ended)
        self._print_file()
        self.print_line(f"{job.name} has ended after {job.seconds / 60:.1f} min" + ("" if job.good else ", not well"))


def run(lanes: Sequence[Lane]) -> None:
    """All lanes side by side, to their end. Raises KeyboardInterrupt on Ctrl-C or SIGTERM, when all has been ended."""
    mark = f"{os.environ.get(MARK, '')}{uuid.uuid4().hex}."
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    try:
        left = list(lanes)
        while left := [lane for lane in left if lane.step(mark)]:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("\nEnding both lanes; Ctrl-C again kills them at once", flush=True)
        _interrupt([lane.job for lane in lanes if lane.at < len(lane.jobs)])
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sweep(mark)


def _as_ctrl_c(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _interrupt(jobs: Sequence[Job]) -> None:
    """Ctrl-C to each, and wait until it has cleaned up."""
    deadline = time.monotonic() + _PATIENCE
    with suppress(KeyboardInterrupt):
        for job in jobs:
            job.signal(signal.SIGINT)
        while time.monotonic() < deadline and any(job.process is not None and not job.over() for job in jobs):
            time.sleep(0.1)
    for job in jobs:
        job.signal(signal.SIGKILL)


def sweep(mark: str) -> None:
    """Kill what is left of a run, and say what it was: a test should have ended it."""
    deadline = time.monotonic() + 20
    named: set[int] = set()
    while left := bearers(mark):
        for pid, line in left.items():
            if pid not in named:
                print(f"left behind, and killed now: {pid} {line[:160]}", file=sys.stderr, flush=True)
                named.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            print("some of them cannot be killed", file=sys.stderr, flush=True)
            return
        time.sleep(0.05)


def bearers(mark: str) -> dict[int, str]:
    """pid to command line of every living process of a run, the zombies left out."""
    wanted, found = f"{MARK}={mark}".encode(), {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            each = (entry / "environ").read_bytes().split(b"\0")  # a zombie's is empty
            if any(variable.startswith(wanted) for variable in each):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = command.decode(errors="replace").strip()
    return found
