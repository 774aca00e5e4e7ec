"""The main loop of a supervisor, and what supervisors of elastic jobs and of gangs have in common.

A supervisor has one thread and one selector. It receives desired states, starts, stops and reaps processes, and writes
reports. ``elastic`` and ``gang`` decide which processes run.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import PatientLog
from edt_contract.reports import ExitKind, ReportKind
from edt_runner import environment
from edt_runner.errors import UsageError
from edt_runner.supervisor import forking
from edt_runner.supervisor.agent_link import AgentLink, Spool, Storage, wakeup_at_signals
from edt_runner.supervisor.shared_folder import SharedFolder
from edt_runner.supervisor.usage import UsageMeter

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
_FENCE_SECONDS = 1.0
END_SECONDS = 5.0
"""Seconds that a driver has to print a failure and exit, and that processes have to exit once the attempt is over."""


class Supervisor(ABC):
    """The supervisor of one attempt of one job on one node.

    Args:
        spec: the attempt.

    Raises:
        OSError: the spool cannot be written. The supervisor may not start processes that it cannot report.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        self._spec = spec
        forking.begin()
        self._spool = Spool(spec, lambda: self._agent.notify())  # noqa: PLW0108 - the link is made below
        self._storage = Storage(self._spool.append)
        self._selector = selectors.EpollSelector()
        self._folder = SharedFolder(spec)
        self._desired: DesiredState | None = None
        """The newest desired state; None: the agent has not sent one."""
        self._signalled = False
        """The supervisor got SIGTERM or SIGINT, and has not acted on it yet."""
        self._terminated = False
        """The supervisor has acted on SIGTERM: all processes leave, and it ignores later desired states."""
        self._end: tuple[ExitKind, str, int] | None = None
        """How the attempt ends on this node (kind, message, exit status); None: it has not ended."""
        self._end_deadline = 0.0
        self._stop_deadline: float | None = None
        self._fence_at = 0.0
        self._usage = UsageMeter(spec)
        self._agent = AgentLink(spec.socket, self._selector, receive=self._set_desired, gone=self._without_agent)
        self._wakeup = wakeup_at_signals(self._note_signal)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, lambda: self._wakeup[0].recv(4096))
        self._spool.introduce()

    def run(self) -> int:
        """Run until the attempt is over on this node; returns the exit status."""
        forking.share_files(self._spec)  # an earlier attempt that was killed has not done it
        self._spool.append(ReportKind.ATTEMPT_STARTED, {"pid": os.getpid()})
        if self._is_environment_valid():
            self._begin()
        while True:
            for key, _ in self._selector.select(_LOOK_SECONDS):
                key.data()
            if self._signalled:
                self._signalled = False
                self._leave_all()
            self._reap()
            now = time.monotonic()
            self._advance(now)
            self._usage.measure(now, self._measured())
            if now >= self._fence_at:
                self._fence_at = now + _FENCE_SECONDS
                self._look_at_folder()
            self._storage.look_at_logs(self._logs())
            self._spool.flush()
            if self._end is not None and self._is_empty():
                return self._close()

    def _is_environment_valid(self) -> bool:
        """Whether this process can read the variables that it needs itself. A wrong value is an error of the job: the
        attempt ends with it, since each further attempt would meet it again."""
        try:
            self._read_environment()
        except UsageError as error:
            name = str(error).partition(":")[0]
            whose = "the job" if name in self._spec.environ else f"node {self._spec.node}"
            self._finish(ExitKind.SCRIPT_ERROR, f"a variable in the environment of {whose} is wrong: {error}", 1)
            return False
        return True

    # ── what an elastic job and a gang do differently ─────────────────────────────────────────────────────────
    def _read_environment(self) -> None:
        """Read the variables that this process uses later.

        Raises:
            UsageError: a value is not valid.
        """
        environment.log_limit_bytes()

    def _begin(self) -> None:  # noqa: B027 - an elastic job does nothing then
        """Do what comes before the first desired state."""

    @abstractmethod
    def _advance(self, now: float) -> None:
        """Start and end processes until the running processes are those that the desired state asks for. Called again
        and again. ``now``: monotonic seconds."""

    @abstractmethod
    def _child_ended(self, pid: int, status: int) -> None:
        """Take in that a child has ended; ``status`` is its wait status."""

    @abstractmethod
    def _never_started(self, allocations: Iterable[int]) -> list[int]:
        """Which of these allocations never had a process. From now on they count as ended."""

    @abstractmethod
    def _without_slots(self, desired: DesiredState | None) -> DesiredState:
        """The desired state for leaving. ``desired``: the newest one."""

    @abstractmethod
    def _measured(self) -> Mapping[int, DesiredSlot]:
        """The slot of each process that is measured, by pid."""

    @abstractmethod
    def _logs(self) -> Iterable[PatientLog]:
        """The logs of the living processes."""

    @abstractmethod
    def _terminate(self) -> None:
        """Send SIGTERM to the processes that run user code."""

    @abstractmethod
    def _end_body(self, kind: ExitKind) -> Mapping[str, Any]:
        """The fields of ATTEMPT_ENDED other than kind, code and message."""

    def _is_empty(self) -> bool:
        """Whether no process is left, now that the attempt has ended. Remaining processes may be killed here."""
        self._kill_all()
        return not processes.descendants(os.getpid())

    def _without_agent(self) -> None:  # noqa: B027 - a gang goes on
        """Handle that the last connection to the socket has ended."""

    # ── the desired state ─────────────────────────────────────────────────────────────────────────────────────
    def _set_desired(self, desired: DesiredState) -> None:
        if desired.fence == self._spec.fence and not self._terminated and self._end is None:
            self._desired = desired
            self._report_never_started(desired.leaving, ExitKind.STOPPED if desired.stop else ExitKind.LEFT)
            if desired.stop and self._stop_deadline is None:
                self._stop()

    def _report_never_started(self, allocations: Iterable[int], kind: ExitKind) -> None:
        """Report ENGINE_GONE for slots that the platform gave and took back before a process was started on them."""
        for allocation in self._never_started(allocations):
            never_started = {"allocation": allocation, "slot": "", "kind": kind.value, "seconds": 0.0}
            self._spool.append(ReportKind.ENGINE_GONE, never_started)

    def _note_signal(self) -> None:
        self._signalled = True

    def _leave_all(self) -> None:
        """Handle SIGTERM: ask all processes to leave, and ignore later desired states."""
        self._set_desired(self._without_slots(self._desired))
        self._terminated = True

    def _stop(self) -> None:
        self._stop_deadline = time.monotonic() + self._spec.grace_seconds
        self._terminate()
        self._end = (ExitKind.STOPPED, "stopped by its user", 0)
        self._end_deadline = self._stop_deadline

    # ── children that have ended ──────────────────────────────────────────────────────────────────────────────
    def _reap(self) -> None:
        for pid, status in processes.ended_children():
            self._child_ended(pid, status)

    # ── the end of the attempt ────────────────────────────────────────────────────────────────────────────────
    def _look_at_folder(self) -> None:
        """End the attempt on this node if the platform has given it up. Called once a second.

        The platform writes this into the fence file, because messages may not reach this node. If the spool folder is
        gone, the platform has moved the job's folder away, which means the same.
        """
        if self._end is not None:
            return
        with suppress(OSError):  # the storage does not answer, so nothing is known
            if not Path(self._spec.spool_dir).exists():
                self._finish(ExitKind.LOST, f"{self._spec.spool_dir} is gone", 0, now=True)
                return
        if lowest := self._folder.shut_out_by():
            self._finish(ExitKind.LOST, f"attempt {self._spec.fence} is shut out by fence {lowest}", 0, now=True)

    def _finish(self, kind: ExitKind, message: str, code: int, *, now: bool = False) -> None:
        """End the attempt on this node. Its processes are killed after ``END_SECONDS``, or at once if ``now``."""
        if self._stop_deadline is None:  # otherwise its user has stopped it, and the end stays STOPPED
            self._end = (kind, message, code)
        self._end_deadline = time.monotonic() + (0.0 if now else END_SECONDS)

    def _kill_all(self) -> None:
        for pid in processes.descendants(os.getpid()):
            forking.send_signal(pid, signal.SIGKILL)

    def _close(self) -> int:
        assert self._end is not None
        crash_point(CrashPoint.SUPERVISOR_END)
        kind, message, code = self._end
        forking.share_files(self._spec)
        self._spool.append(
            ReportKind.ATTEMPT_ENDED, {"kind": kind.value, "code": code, "message": message, **self._end_body(kind)}
        )
        _log.info("attempt %d of %s is over: %s %s", self._spec.fence, self._spec.job, kind, message)
        self._spool.wait_for_room(self._folder.shut_out_by)
        self._agent.close()
        self._spool.close()
        return 0
