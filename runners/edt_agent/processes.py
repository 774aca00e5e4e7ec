"""The processes of this machine, read from /proc, signals to them, and those that this agent starts.

A process is named by pid and start time, because another process may get its pid. A zombie counts as dead: on some
machines orphans are not reaped for minutes, and ``kill(pid, 0)`` still finds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edt_agent.errors import StartFailed
from edt_contract.processes import ended_children, start_time, stat_fields

log = logging.getLogger(__name__)

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZX")
_EXEC_SECONDS = 5.0
"""Longer than an exec takes between the old environment and the new one, also where it has to read the program from a
slow disk or the host has paused the virtual machine. Only a process in the middle of an exec is waited for."""
_MOST_ENVIRON_BYTES = 8 * 1024 * 1024
"""Linux gives arguments and environment a quarter of the stack's limit, and 6 MiB at most."""


@dataclass(frozen=True)
class ProcessId:
    """A process, told apart from every other that had or will have its pid."""

    pid: int
    starttime: int
    """Clock ticks between boot and its start: field 22 of /proc/<pid>/stat."""


@dataclass(frozen=True)
class Process:
    """One process as /proc showed it at one instant."""

    id: ProcessId
    state: str
    session: int
    parent: int
    """Its pid."""

    @property
    def alive(self) -> bool:
        return self.state not in _DEAD_STATES


def look(pid: int) -> Process | None:
    """The process that has this pid now, dead or alive; None where nobody has it."""
    fields = stat_fields(pid)
    if fields is None:
        return None
    return Process(ProcessId(pid, int(fields[19])), fields[0], int(fields[3]), int(fields[1]))


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still lives."""
    return start_time(process.pid) == process.starttime


def environment(pid: int) -> Mapping[str, str]:
    """The environment that a process was started with; empty where it may not be read or the process is gone.

    During an exec a process shows none for a moment; this waits for the end of it.
    """
    until = time.monotonic() + _EXEC_SECONDS
    try:
        while not (raw := _environ(pid)) and _has_one(pid) and time.monotonic() < until:
            time.sleep(0)
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _environ(pid: int) -> bytes:
    """The environment as /proc gives it, in a single read: after an exec a second read of the same file would return
    nothing, and the result would be cut short."""
    handle = os.open(_PROC / str(pid) / "environ", os.O_RDONLY)
    try:
        return os.read(handle, _MOST_ENVIRON_BYTES)
    finally:
        os.close(handle)


def _has_one(pid: int) -> bool:
    """Whether a process that shows no environment has one, or may have one when its exec is done."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in _DEAD_STATES or fields[20] == "0":  # vsize: the kernel's own threads have none
        return False
    start_code, start, end = fields[23], *fields[47:49]
    # An exec sets env_start and env_end to one address, then env_end to the real end, and start_code after both.
    return start_code == "0" or start != end


def bearers(marks: Mapping[str, str]) -> list[Process]:
    """Every living process, except this one, that was started with all these environment variables."""
    found = []
    for entry in os.scandir(_PROC):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        environ = environment(int(entry.name))
        if all(environ.get(name) == value for name, value in marks.items()):
            process = look(int(entry.name))
            if process is not None and process.alive:
                found.append(process)
    return found


def kill(processes: Iterable[ProcessId]) -> None:
    """Send SIGKILL to each process that still lives, by pidfd, so that no other process with its pid gets it."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            try:
                if alive(process):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


@dataclass
class Child:
    """A process that this agent started."""

    id: ProcessId
    status: int | None = None
    """None while it runs; then its exit code, or minus the signal that ended it."""
    on_exit: list[Callable[[], None]] = field(default_factory=list)


class Children:
    """All child processes of this agent: it starts and reaps them. Call ``watch`` inside a running event loop before
    the first ``start``.

    A supervisor gets a session of its own and outlives the agent; the notification listener ends with the agent. An
    adopted supervisor is no child: ``launchers.process.ProcessHandle`` watches it.
    """

    def __init__(self) -> None:
        self._by_pid: dict[int, Child] = {}

    def watch(self) -> None:
        """Reap whenever a child ends, and also orphans that came to this process as PID 1 of a container."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        stdin: int | None = None,
        output: int | None = None,
        keep: Mapping[int, int] | None = None,
        own_session: bool = True,
    ) -> Child:
        """Start a process.

        Args:
            command: absolute path of the program, and its arguments.
            environ: its whole environment.
            stdin: descriptor of its standard input; None: /dev/null.
            output: descriptor of its standard output and error; None: as this process's.
            keep: this process's descriptors that it inherits, and their numbers there; all others are closed.
            own_session: it gets a session of its own, so that signals of a terminal do not reach it.

        Raises:
            StartFailed: the program cannot be started.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        wanted = {0: null if stdin is None else stdin}
        if output is not None:
            wanted |= {1: output, 2: output}
        wanted |= {there: here for here, there in (keep or {}).items()}
        # posix_spawn, not fork: the event loop's threads and locks never exist in the child.
        actions = [(os.POSIX_SPAWN_DUP2, here, there) for there, here in wanted.items()]
        try:
            pid = os.posix_spawn(
                command[0],
                list(command),
                dict(environ),
                file_actions=actions,
                setsid=own_session,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
            )
        except OSError as error:
            raise StartFailed(f"{command[0]} could not be started: {error.strerror}") from error
        finally:
            os.close(null)
        # A child that ended at once is a zombie until we reap it, so it can be named all the same.
        process = look(pid)
        child = self._by_pid[pid] = Child(ProcessId(pid, 0) if process is None else process.id)
        return child

    def reap(self) -> None:
        """Take the exit status of every child that has ended."""
        for pid, status in ended_children():
            child = self._by_pid.pop(pid, None)
            if child is not None:
                child.status = os.waitstatus_to_exitcode(status)
                log.debug("process %d ended with %d", pid, child.status)
                for call in child.on_exit:
                    call()
