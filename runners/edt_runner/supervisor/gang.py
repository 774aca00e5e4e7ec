"""The supervisor of a gang: it starts the gang's processes on this node together, and ends them together.

It first reserves ports and reports them. When all nodes have done that, the desired state has the ports of all nodes,
and every supervisor starts its processes. When one fails, or the platform takes back one slot, all end: they get
SIGTERM, and SIGKILL after the grace.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from edt_contract import processes
from edt_contract.attempt import AttemptSpec, DesiredSlot, DesiredState
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import PatientLog
from edt_contract.gang import Processes, Rendezvous
from edt_contract.oom import OomCounter
from edt_contract.reports import ExitKind, ReportKind
from edt_runner.rsh.server import serve
from edt_runner.rsh.wire import key_of
from edt_runner.supervisor import gang_environment, gang_failures, gang_mpi, gang_processes, logs
from edt_runner.supervisor.gang_layout import Layout, Member, lay_out, ports_needed
from edt_runner.supervisor.gang_mpi import MpiProcesses
from edt_runner.supervisor.gang_processes import GangEnd, GangProcess
from edt_runner.supervisor.logs import LogPipe
from edt_runner.supervisor.supervisor import Supervisor

_log = logging.getLogger(__name__)
_SETTLE_SECONDS = 1.0
"""When a process fails because a connection broke, another process may be the cause, whose end may be seen a moment
later: its interpreter still runs, or it is on another node. For so long the cause is awaited."""


class GangSupervisor(Supervisor):
    """The supervisor of one attempt of one gang on one node.

    Args:
        spec: the attempt. Its ``gang`` is set.

    Raises:
        OSError: the spool cannot be written. The supervisor may not start processes that it cannot report.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        super().__init__(spec)
        assert spec.gang is not None
        self._gang = spec.gang
        self._own = [number for part in spec.gang.nodes if part.node == spec.node for number in part.allocations]
        self._ports: list[socket.socket] = []
        """Sockets that are bound and do not listen, so that no other program gets these ports."""
        self._layout: Layout | None = None
        """The gang's processes; None: they are not started yet."""
        self._living: dict[int, GangProcess] = {}
        """Processes by pid."""
        self._left_pipes: list[LogPipe] = []
        """Logs of ended processes whose own processes may still write. They are read until the attempt ends here."""
        self._gone: set[int] = set()
        """Allocations whose process has ended or will never be started."""
        self._suspects: list[GangEnd] = []
        """Failed processes that are not reported yet: the failure of another process may be the cause."""
        self._suspects_until = 0.0
        self._oom = False
        self._oom_counter = OomCounter()
        self._ended_late: list[GangEnd] = []
        """Processes that have ended since the attempt ends. What they have started may still use their slots."""
        self._termination = processes.Termination()
        self._mpi_launchers: tuple[int, ...] = ()
        """Pids of mpirun and its daemons when their ranks got SIGTERM."""

    def _begin(self) -> None:
        try:
            for _ in range(ports_needed(self._gang, self._spec.node)):
                self._ports.append(_reserve(self._spec.host))
        except OSError as error:
            self._finish(ExitKind.LOST, f"node {self._spec.node} has no free ports: {error.strerror}", 0)
            return
        self._spool.append(ReportKind.PORTS_RESERVED, {"ports": [sock.getsockname()[1] for sock in self._ports]})

    # ── the desired state ─────────────────────────────────────────────────────────────────────────────────────
    def _never_started(self, allocations: Iterable[int]) -> list[int]:
        if self._layout is not None:
            return []
        found = [number for number in allocations if number in self._own and number not in self._gone]
        self._gone.update(found)
        return found

    def _without_slots(self, desired: DesiredState | None) -> DesiredState:
        return DesiredState(self._spec.fence, ())

    def _advance(self, now: float) -> None:
        self._oom_counter.look(now)
        if self._end is not None:
            if now >= self._end_deadline:
                self._kill_all()
            return
        if self._suspects and now >= self._suspects_until:
            self._fail(self._suspects[0])
        elif self._desired is not None:
            self._apply_desired_state(self._desired)

    def _apply_desired_state(self, desired: DesiredState) -> None:
        held = {slot.allocation: slot for slot in desired.slots}
        if self._layout is None:
            if not held.keys() >= set(self._own):
                self._finish(ExitKind.LEFT, "its slots were taken back before it started", 0)
            elif len(desired.ports) == len(self._gang.nodes):
                self._start(held, desired.ports)
            return
        needed = {slot.allocation for process in self._living.values() for slot in process.slots}
        if not needed <= held.keys():
            self._end_all(ExitKind.LEFT, "its slots were taken back", 0)

    def _start(self, held: Mapping[int, DesiredSlot], ports: tuple[tuple[int, ...], ...]) -> None:
        try:
            layout = self._layout = lay_out(self._gang, ports)
        except ValueError as error:
            self._finish(ExitKind.LOST, f"the gang cannot be laid out: {error}", 0)
            return
        try:
            if Rendezvous.MPI in self._gang.command.rendezvous:
                gang_mpi.write_host_file(self._spec, layout)
            self._start_members(layout, held)
        except OSError as error:
            self._end_all(ExitKind.LOST, f"the gang's processes cannot be started: {error}", 0)

    def _start_members(self, layout: Layout, held: Mapping[int, DesiredSlot]) -> None:
        for member in layout.on(self._spec.node):
            devices = [held[allocation].device for allocation in member.worker.allocations]
            process = self._start_member(member, tuple(held[each] for each in member.allocations), devices, layout)
            crash_point(CrashPoint.SUPERVISOR_FORK)
            self._living[process.pid] = process
            _log.info("%s starts (pid %d)", member.words, process.pid)
            for slot in process.slots:
                body = {"allocation": slot.allocation, "slot": slot.slot, "pid": process.pid}
                self._spool.append(ReportKind.ENGINE_STARTED, body)

    def _start_member(
        self, member: Member, slots: tuple[DesiredSlot, ...], devices: list[str], layout: Layout
    ) -> GangProcess:
        found = gang_environment.of(member, layout, self._spec, devices=devices, inherited=os.environ)
        environ = {**os.environ, **found}
        if not member.runs_command:
            listener = gang_mpi.listen(self._spec.host, member.worker.ports[0])
            key, folder, grace = key_of(self._spec.token), self._spec.work_dir, self._spec.grace_seconds
            with listener:
                return gang_processes.start_server(
                    member, slots, lambda: serve(listener, key, environ, folder, grace), [listener.fileno()]
                )
        words = gang_environment.command(self._gang, self._spec)
        return gang_processes.start_command(member, slots, self._spec, words, environ, self._selector)

    # ── processes that have ended ─────────────────────────────────────────────────────────────────────────────
    def _child_ended(self, pid: int, status: int) -> None:
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        for_memory = killed and self._oom_counter.explains(time.monotonic())
        process = self._living.pop(pid, None)
        if process is None:  # a process that user code has started
            return
        crash_point(CrashPoint.SUPERVISOR_REAP)
        not_run, left = process.collect(self._selector)
        self._left_pipes += left
        end = GangEnd.of(process, status, not_run, oom=for_memory and self._end is None)
        _log.info("%s is gone: %s", process.member.words, end.message or "finished")
        self._gone.update(process.member.allocations)
        if self._end is not None:
            self._ended_late.append(end)
        elif not process.member.runs_command:
            self._report(end, ExitKind.LOST)
            self._end_all(ExitKind.LOST, f"{process.member.words} ended", 0)
        elif end.failed and gang_failures.may_follow(end.message):
            self._suspects_until = self._suspects_until or time.monotonic() + _SETTLE_SECONDS
            self._suspects.append(end)
        elif end.failed:
            self._fail(end)
        else:
            self._report(end, ExitKind.FINISHED)
            if self._is_all_done():
                self._end_all(ExitKind.FINISHED, "", 0)

    def _is_all_done(self) -> bool:
        return not self._suspects and not any(process.member.runs_command for process in self._living.values())

    @staticmethod
    def _kind_after(kind: ExitKind, end: GangEnd) -> ExitKind:
        """The kind of the end of a process that ended because the attempt ends by ``kind``."""
        if kind in (ExitKind.STOPPED, ExitKind.LEFT, ExitKind.LOST):
            return kind
        by_itself = not end.failed and end.process.member.runs_command
        return ExitKind.FINISHED if by_itself or kind is ExitKind.FINISHED else ExitKind.LEFT

    def _fail(self, first: GangEnd) -> None:
        """End the attempt because of the failure ``first``. Failures that may follow from it are reported after it."""
        others = [end for end in self._suspects if end is not first]
        self._suspects = []
        self._oom = first.oom
        for end in (first, *others):
            self._report(end, ExitKind.SCRIPT_ERROR)
        self._end_all(ExitKind.SCRIPT_ERROR, first.message, first.code or 128 + (first.signal or 0))

    def _report(self, end: GangEnd, kind: ExitKind) -> None:
        for body in end.report_bodies(kind):
            self._spool.append(ReportKind.ENGINE_GONE, body)

    # ── the end of the attempt ────────────────────────────────────────────────────────────────────────────────
    def _end_all(self, kind: ExitKind, message: str, code: int) -> None:
        """End the attempt on this node: its processes get SIGTERM, and SIGKILL after the grace. If the commands have
        finished, the edt-rsh servers have less time."""
        self._finish(kind, message, code)
        if kind is not ExitKind.FINISHED:
            self._end_deadline = time.monotonic() + self._spec.grace_seconds
        self._terminate()

    def _terminate(self) -> None:
        """Send SIGTERM to all processes that run user code.

        Under mpirun that is the ranks, and the shell or program that has started mpirun, which must not go on with its
        next command when mpirun ends. mpirun ends by itself after its ranks.
        """
        uses_mpi = Rendezvous.MPI in self._gang.command.rendezvous
        mpi = MpiProcesses.below(os.getpid()) if uses_mpi else MpiProcesses((), {})
        self._mpi_launchers = tuple(mpi.launchers)
        for process in self._living.values():
            launchers = [pid for pid, above in mpi.launchers.items() if process.pid in (pid, *above)]
            if not (launchers and process.member.runs_command):
                self._termination.ask_group(process.pid)
                continue
            for pid in launchers:
                for each in reversed(mpi.launchers[pid]):  # from the top: one may go on when the one below it ends
                    self._termination.ask(each)
        for pid in mpi.ranks:
            self._termination.ask(pid)

    def _is_empty(self) -> bool:
        assert self._end is not None
        for end in self._suspects:
            self._report(end, self._kind_after(self._end[0], end))
        self._suspects = []
        orphans = self._ended_late and set(processes.children(os.getpid())) - self._living.keys()
        if not orphans:
            self._report_ended_late()
        if self._living:
            return False
        if self._end[0] is ExitKind.FINISHED or time.monotonic() >= self._end_deadline:
            return super()._is_empty()
        if any(processes.start_time(pid) is not None for pid in self._mpi_launchers):
            return False  # what the ended shell has left may take the output of the ranks
        self._termination.ask_orphans()
        return not processes.descendants(os.getpid())

    def _report_ended_late(self) -> None:
        assert self._end is not None
        for end in self._ended_late:
            self._report(end, self._kind_after(self._end[0], end))
        self._ended_late = []

    def _close(self) -> int:
        assert self._end is not None
        logs.end(self._left_pipes, self._selector)
        self._report_ended_late()
        self._report_never_started(self._own, self._end[0])
        for sock in self._ports:
            sock.close()
        return super()._close()

    def _end_body(self, kind: ExitKind) -> Mapping[str, Any]:
        is_head = self._gang.nodes[0].node == self._spec.node
        return {
            "whole": kind is not ExitKind.FINISHED or (is_head and self._gang.command.processes is Processes.JOB),
            "oom": self._oom,
        }

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────
    def _measured(self) -> Mapping[int, DesiredSlot]:
        return {pid: process.slots[0] for pid, process in self._living.items()}

    def _logs(self) -> Iterable[PatientLog]:
        self._left_pipes = [pipe for pipe in self._left_pipes if not pipe.closed]
        living = [pipe for process in self._living.values() for pipe in process.outputs]
        return [pipe.log for pipe in (*living, *self._left_pipes)]


def _reserve(host: str) -> socket.socket:
    """Bind a socket to a free port of all addresses of this machine, without listening. Another socket with
    SO_REUSEADDR, which servers usually set, can listen on the port meanwhile.

    Raises:
        OSError: no port is free.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", 0))
    except OSError:
        sock.close()
        raise
    return sock
