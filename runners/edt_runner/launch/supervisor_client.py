"""Starts a supervisor, sends it desired states, and reads what it reports.

This is what an agent does on a platform. ``python main.py`` uses it for its local engines, tests and benchmarks to let
engines come and go. Several supervisors with one coordinator stand for several nodes. ``LocalSlots`` replaces lost
engines.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.encoding import dump_line, dumps
from edt_contract.frameworks import must_be_cold, supervisor_environ
from edt_contract.reports import REPORTS_FILE, ExitKind, Report, ReportKind
from edt_runner.errors import RunnerError
from edt_runner.protocol.channel import LineChannel

_POLL_SECONDS = 0.25
_END_SECONDS = 2.0
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before the first, second, … replacement of an engine."""


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


class SpoolReader:
    """Reads a spool: every whole line once, in order."""

    def __init__(self, spool_dir: str | Path) -> None:
        self._path, self._offset = Path(spool_dir) / REPORTS_FILE, 0

    def read(self) -> list[Report]:
        """Reports that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [Report.from_message(json.loads(line)) for line in whole.splitlines() if line]


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
        allocations: Iterable[int],
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


class LocalSlots:
    """Holds the slots of a local training, and replaces lost engines as a scheduler does on a platform: a slot whose
    engine was lost gets another one, at first at once, then after growing pauses.

    Args:
        supervisor: of the training.
        devices: what each slot computes on.
    """

    def __init__(self, supervisor: SupervisorClient, devices: Sequence[str]) -> None:
        self._supervisor = supervisor
        self._slots = [DesiredSlot(number + 1, str(number), device) for number, device in enumerate(devices)]
        self._reader = SpoolReader(supervisor.spec.spool_dir)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._lost = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Give all slots to the training, and begin to replace lost engines."""
        self._set_desired()
        self._thread = threading.Thread(target=self._replace_lost, name="edt-slots", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Let all engines leave."""
        self._done.set()
        with self._lock:
            self._supervisor.set_desired(DesiredState(self._supervisor.spec.fence, ()))

    def stop(self) -> None:
        """Replace no engine any more, and end the thread, so that the interpreter can end."""
        self._done.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _replace_lost(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            for report in self._reader.read():
                lost = report.body.get("kind") in (ExitKind.LOST, ExitKind.SCRIPT_ERROR)
                if report.kind is ReportKind.ENGINE_GONE and lost:
                    self._replace(int(report.body["allocation"]))

    def _replace(self, allocation: int) -> None:
        if self._done.wait(_PAUSES[min(self._lost, len(_PAUSES) - 1)]):
            return
        self._lost += 1
        newest = max(slot.allocation for slot in self._slots)
        self._slots = [
            replace(slot, allocation=newest + 1) if slot.allocation == allocation else slot for slot in self._slots
        ]
        with self._lock:
            if not self._done.is_set():
                self._set_desired()

    def _set_desired(self) -> None:
        self._supervisor.set_desired(DesiredState(self._supervisor.spec.fence, tuple(self._slots)))
