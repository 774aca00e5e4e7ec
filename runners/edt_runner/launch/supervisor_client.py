"""Starts a supervisor, sends it desired states, and reads its reports.

On a platform, the agent does this. ``python main.py`` uses this module for its local engines. Tests and benchmarks use
it to add and remove engines; several supervisors with one coordinator simulate several nodes. ``LocalSlots`` replaces
lost engines.
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
from edt_contract.frameworks import NO_FRAMEWORK, must_be_cold, supervisor_environ
from edt_contract.reports import REPORTS_FILE, ExitKind, Report, ReportKind
from edt_runner.errors import RunnerError
from edt_runner.protocol.channel import LineChannel

_POLL_SECONDS = 0.25
_END_SECONDS = 2.0
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before the first, second, … replacement of an engine; the last number holds for all later ones."""


class Process(Protocol):
    """A supervisor's process, with the interface of ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


def spawn(spec: AttemptSpec) -> Process:
    """Start a supervisor as a new process, which imports its framework first. For a gang it imports none."""
    framework = spec.framework if spec.gang is None else NO_FRAMEWORK
    environ = os.environ | supervisor_environ(framework, chosen=os.environ)
    cold = ["--cold"] if must_be_cold(spec.environ, environ) else []
    with (Path(spec.spool_dir) / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "edt_runner.supervisor", "--framework", framework, *cold],
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
        """Return the reports that were written since the last call."""
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
    """One supervisor of one attempt. As a context manager, it kills the supervisor at the end.

    Args:
        spec: the attempt.
        start: starts a supervisor.
    """

    def __init__(self, spec: AttemptSpec, start: Callable[[AttemptSpec], Process] = spawn) -> None:
        self.spec = spec
        self.reports: list[Report] = []
        Path(spec.spool_dir).mkdir(parents=True, exist_ok=True)
        self._reader = SpoolReader(spec.spool_dir)
        self._reader.read()  # skip the reports of an earlier supervisor
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
        """Set the desired state to exactly these engines. An allocation that exists keeps its slot.

        Args:
            allocations: numbers of allocations, one engine each.
            coordinator: ``host:port`` of the coordinator on another node; None: this is the head node.
            device: the device of new engines.

        Raises:
            RunnerError: the supervisor cannot be reached.
        """
        self._slots = {
            number: self._slots.get(number, DesiredSlot(number, str(number), device)) for number in allocations
        }
        self.set_desired(DesiredState(self.spec.fence, tuple(self._slots.values()), coordinator))

    def set_desired(self, desired: DesiredState) -> None:
        """Send a desired state.

        Raises:
            RunnerError: the supervisor cannot be reached.
        """
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
        """Return the reports that were written since the last call."""
        found = self._reader.read()
        self.reports.extend(found)
        return found

    def until(self, true: Callable[[Report], bool], seconds: float = 60.0) -> Report:
        """Wait for a report. A report that has already been read counts, too.

        Args:
            true: whether a report is the awaited one.
            seconds: how long to wait.

        Returns:
            The first such report.

        Raises:
            RunnerError: the time is over, or the supervisor has ended without such a report.
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
        """Wait for the attempt's end, and for the supervisor's. Returns the body of the ATTEMPT_ENDED report."""
        report = self.until(lambda report: report.kind is ReportKind.ATTEMPT_ENDED, seconds)
        self.process.wait(10)
        return dict(report.body)

    def kill(self) -> None:
        """Send SIGKILL to the supervisor if it still runs. Its child processes then end, too."""
        self.process.kill()
        self.process.wait()
        if self._channel:
            self._channel.close()

    def __enter__(self) -> SupervisorClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


class LocalSlots:
    """Holds the slots of a local training, and replaces lost engines as the scheduler does on a platform.

    A slot whose engine was lost gets a new engine: the first time at once, later after growing pauses.

    Args:
        supervisor: the training's supervisor.
        devices: the device of each slot.
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
        """Give all slots to the training, and start to replace lost engines."""
        self._set_desired()
        self._thread = threading.Thread(target=self._replace_lost, name="edt-slots", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Ask all engines to leave."""
        self._done.set()
        with self._lock:
            self._supervisor.set_desired(DesiredState(self._supervisor.spec.fence, ()))

    def stop(self) -> None:
        """Stop replacing engines, and end the thread, so that the interpreter can end."""
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
