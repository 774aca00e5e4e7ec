"""Starts a supervisor, sends it desired states, and reads what it reports.

This is what an agent does on a platform. ``python main.py`` uses it for its local engines, tests and benchmarks to let
engines come and go. Several supervisors with one coordinator stand for several nodes.
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

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.encoding import dump_line, dumps
from edt_contract.environment import must_be_cold, supervisor_environ
from edt_contract.reports import Report, ReportKind
from edt_runner.errors import RunnerError
from edt_runner.protocol.channel import LineChannel
from edt_runner.supervisor.spool import SpoolReader


class Process(Protocol):
    """A supervisor's process, as ``subprocess.Popen`` shows it."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def spawn(spec: AttemptSpec) -> Process:
    """Start a supervisor from nothing; it imports its framework first."""
    environ = os.environ | supervisor_environ(spec.framework, chosen=os.environ)
    cold = ["--cold"] if must_be_cold(spec.environ, environ) else []
    with (Path(spec.spool_dir) / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "edt_runner.supervisor", "--framework", spec.framework, *cold],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environ,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(dumps(spec).encode() + b"\n")
        process.stdin.close()
    return process


class SupervisorClient:
    """One supervisor of one attempt. A context manager, which kills the supervisor at its end.

    Args:
        spec: of the attempt.
        start: how a supervisor is started.
    """

    def __init__(self, spec: AttemptSpec, start: Callable[[AttemptSpec], Process] = spawn) -> None:
        self.spec = spec
        self.reports: list[Report] = []
        Path(spec.spool_dir).mkdir(parents=True, exist_ok=True)
        self._reader = SpoolReader(spec.spool_dir)
        self._reader.read()  # what an earlier supervisor has reported
        self._channel: LineChannel | None = None
        self._slots: dict[int, DesiredSlot] = {}
        self.process = start(spec)

    # ── the desired state ───────────────────────────────────────────────────────────────────────────────────────
    def hold(
        self,
        allocations: Iterator[int] | list[int] | range,
        *,
        coordinator: str | None = None,
        device: str = "cpu",
    ) -> None:
        """Let exactly these engines run. An allocation keeps the slot it had.

        Args:
            allocations: an engine each.
            coordinator: ``host:port`` of the coordinator on another node; None: this is the head node.
            device: what new engines compute on.
        """
        self._slots = {
            number: self._slots.get(number, DesiredSlot(number, str(number), device)) for number in allocations
        }
        self.set_desired(DesiredState(self.spec.fence, tuple(self._slots.values()), coordinator))

    def set_desired(self, desired: DesiredState) -> None:
        """Send a desired state."""
        self._connect().send_line(dump_line(desired))

    def _connect(self) -> LineChannel:
        deadline = time.monotonic() + 60
        while self._channel is None or self._channel.closed:
            if self._channel is not None:
                self._channel.close()
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(self.spec.socket)
                self._channel = LineChannel(sock)
            except OSError:
                sock.close()
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RunnerError(
                        f"the supervisor does not answer; see {self.spec.spool_dir}/supervisor.log"
                    ) from None
                time.sleep(0.02)
        return self._channel

    # ── reports ──────────────────────────────────────────────────────────────────────────────────────────────
    def poll(self) -> list[Report]:
        """Reports that have come since the last call."""
        found = self._reader.read()
        self.reports.extend(found)
        return found

    def until(self, true: Callable[[Report], bool], seconds: float = 60.0) -> Report:
        """Wait for a report, past ones included.

        Args:
            true: whether it is the one.
            seconds: how long to wait.

        Raises:
            RunnerError: the time is over, or the supervisor has ended without that report.
        """
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
        """Wait for the attempt's end; returns the body of ATTEMPT_ENDED."""
        report = self.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED, seconds)
        self.process.wait(10)
        return dict(report.body)

    def kill(self) -> None:
        """SIGKILL to the supervisor if it lives; its children die with it."""
        self.process.kill()
        self.process.wait()
        if self._channel:
            self._channel.close()

    def __enter__(self) -> SupervisorClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
