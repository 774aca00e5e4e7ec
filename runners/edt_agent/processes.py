"""Finds and kills processes of this machine through /proc, and starts and reaps the agent's children.

A process is identified by pid and start time, because another process may get its pid later. A zombie counts as dead:
on some machines orphans are not reaped for minutes, and ``kill(pid, 0)`` still finds them.
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
"""Most seconds for which ``environment`` waits for a process that is in the middle of an exec. An exec takes less time,
even if it reads the program from a slow disk or the host pauses the virtual machine."""
_MOST_ENVIRON_BYTES = 8 * 1024 * 1024
"""More than the largest environment. For arguments and environment together Linux allows a quarter of the stack's
limit, but at most 6 MiB."""


@dataclass(frozen=True)
class ProcessId:
    """Identifies one process, also if other processes had or will have its pid."""

    pid: int
    starttime: int
    """Clock ticks from boot to the process's start: field 22 of /proc/<pid>/stat."""


@dataclass(frozen=True)
class Process:
    """One process as /proc showed it at one instant."""

    id: ProcessId
    state: str
    """State letter of /proc/<pid>/stat, for example ``R``, ``S``, ``T`` or ``Z``."""
    session: int
    parent: int
    """Pid of its parent."""

    @property
    def alive(self) -> bool:
        return self.state not in _DEAD_STATES


def look(pid: int) -> Process | None:
    """The process that has this pid now, dead or alive; None: no process has this pid."""
    fields = stat_fields(pid)
    if fields is None:
        return None
    return Process(ProcessId(pid, int(fields[19])), fields[0], int(fields[3]), int(fields[1]))


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still lives."""
    return start_time(process.pid) == process.starttime


def environment(pid: int) -> Mapping[str, str]:
    """The environment with which a process was started. It is empty if it may not be read or the process is gone.

    During an exec /proc shows no environment for a short time. This function waits for the end of the exec.
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
    """The contents of /proc/<pid>/environ, in a single read. If the process makes an exec between two reads, the second
    read returns nothing, and the result would be cut short."""
    handle = os.open(_PROC / str(pid) / "environ", os.O_RDONLY)
    try:
        return os.read(handle, _MOST_ENVIRON_BYTES)
    finally:
        os.close(handle)


def _has_one(pid: int) -> bool:
    """Whether a process for which /proc shows no environment has one, or may have one after its exec."""
    fields = stat_fields(pid)
    if fields is None or fields[0] in _DEAD_STATES or fields[20] == "0":  # vsize: the kernel's own threads have none
        return False
    start_code, start, end = fields[23], *fields[47:49]
    # An exec first sets env_start and env_end to the same address, then env_end to the real end, and then start_code.
    return start_code == "0" or start != end


def bearers(marks: Mapping[str, str]) -> list[Process]:
    """All living processes, except this one, that were started with all these environment variables."""
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
    """Send SIGKILL to each process that still lives. This uses a pidfd, so that no later process with the same pid gets
    the signal."""
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
    """None while it runs; later its exit code, or minus the signal that ended it."""
    on_exit: list[Callable[[], None]] = field(default_factory=list)
    """Functions that are called when it has ended."""


class Children:
    """Starts and reaps the child processes of this agent. Call ``watch`` inside a running event loop before the first
    ``start``.

    A supervisor gets a session of its own and outlives the agent. The notification listener ends with the agent. An
    adopted supervisor is not a child of this agent: ``launchers.process.ProcessHandle`` watches it.
    """

    def __init__(self) -> None:
        self._by_pid: dict[int, Child] = {}

    def watch(self) -> None:
        """Call ``reap`` whenever a child ends. If the agent is process 1 of a container, orphans are children too."""
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
            output: descriptor of its standard output and error; None: the same as this process's.
            keep: descriptors of this process that the child inherits, with their numbers in the child; all others are
                closed.
            own_session: whether it gets a session of its own, so that signals of a terminal do not reach it.

        Raises:
            StartFailed: the program cannot be started.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        wanted = {0: null if stdin is None else stdin}
        if output is not None:
            wanted |= {1: output, 2: output}
        wanted |= {there: here for here, there in (keep or {}).items()}
        # posix_spawn, not fork: the child does not get copies of this process's threads and locks.
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
        # A child that has ended at once is a zombie until this process reaps it, so its start time can still be read.
        process = look(pid)
        child = self._by_pid[pid] = Child(ProcessId(pid, 0) if process is None else process.id)
        return child

    def reap(self) -> None:
        """Reap all children that have ended: store their exit statuses and call their ``on_exit`` functions."""
        for pid, status in ended_children():
            child = self._by_pid.pop(pid, None)
            if child is not None:
                child.status = os.waitstatus_to_exitcode(status)
                log.debug("process %d ended with %d", pid, child.status)
                for call in child.on_exit:
                    call()
