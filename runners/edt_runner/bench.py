"""A hand on the supervisor's socket: start supervisors, wish, and read what they report. Room: runners.

What an agent does for the platform, without one: ``python main.py`` uses it for its local engines, the tests
and the benchmarks to make engines come and go. Several benches with one coordinator are several nodes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from edt_runner.channel import Channel
from edt_runner.contract import Letter, Report, ReportKind, SlotWish, Wish
from edt_runner.environment import must_be_cold, supervisor_environ
from edt_runner.errors import RunnerError
from edt_runner.spool import SpoolReader


class Process(Protocol):
    """A supervisor's process, as ``subprocess.Popen`` shows it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def spawn(letter: Letter) -> Process:
    """Start a supervisor from nothing; it imports its framework first."""
    environ = os.environ | supervisor_environ(letter.framework, chosen=os.environ)
    cold = ["--cold"] if must_be_cold(letter.environ, environ) else []
    with (Path(letter.spool_dir) / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "edt_runner.supervisor", "--framework", letter.framework, *cold],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environ,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(letter.to_json().encode() + b"\n")
        process.stdin.close()
    return process


class Bench:
    """One supervisor of one attempt, and the wishes given to it.

    Args:
        letter: what it shall do.
        start: how a supervisor is started.
    """

    def __init__(self, letter: Letter, start: Callable[[Letter], Process] = spawn) -> None:
        self.letter = letter
        self.reports: list[Report] = []
        Path(letter.spool_dir).mkdir(parents=True, exist_ok=True)
        self._reader = SpoolReader(letter.spool_dir, after=_lines(letter))
        self._channel: Channel | None = None
        self._slots: dict[int, SlotWish] = {}
        self.process = start(letter)

    # ── wishing ───────────────────────────────────────────────────────────────────────────────────────────────
    def hold(
        self,
        allocations: Iterator[int] | list[int] | range,
        *,
        coordinator: str | None = None,
        device: str = "cpu",
    ) -> None:
        """Wish that exactly these engines run. An allocation keeps the slot it had."""
        wanted = list(allocations)
        self._slots = {number: self._slots.get(number, SlotWish(number, str(number), device)) for number in wanted}
        self.wish(Wish(self.letter.fence, tuple(self._slots.values()), coordinator))

    def wish(self, wish: Wish) -> None:
        """Send one wish as it is."""
        self._connect().send(wish.to_message())

    def _connect(self) -> Channel:
        deadline = time.monotonic() + 60
        while self._channel is None or self._channel.closed:
            if self._channel is not None:
                self._channel.close()
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(self.letter.socket)
                self._channel = Channel(sock)
            except OSError:
                sock.close()
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RunnerError(
                        f"the supervisor does not answer; see {self.letter.spool_dir}/supervisor.log"
                    ) from None
                time.sleep(0.02)
        return self._channel

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────
    def poll(self) -> list[Report]:
        """Reports that have come since the last call."""
        found = self._reader.read()
        self.reports.extend(found)
        return found

    def until(self, true: Callable[[Report], bool], seconds: float = 60.0) -> Report:
        """Wait for a report, past ones included. Raises RunnerError after ``seconds`` or when nobody can report."""
        deadline = time.monotonic() + seconds
        checked = 0
        while True:
            ended = self.process.poll() is not None
            self.poll()
            for report in self.reports[checked:]:
                if true(report):
                    return report
            checked = len(self.reports)
            if ended or time.monotonic() > deadline:
                raise RunnerError(f"the awaited report did not come; the last were {self.reports[-3:]}")
            time.sleep(0.005)

    def ended(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the attempt's end: the body of ATTEMPT_ENDED."""
        report = self.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED, seconds)
        self.process.wait(10)
        return dict(report.body)

    def kill(self) -> None:
        """SIGKILL to the supervisor; its children die with it."""
        self.process.kill()
        self.process.wait()
        if self._channel:
            self._channel.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.kill()
        elif self._channel:
            self._channel.close()


def _lines(letter: Letter) -> int:
    path = Path(letter.spool_dir) / "reports.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0
