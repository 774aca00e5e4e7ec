"""Room: runners, agent. What runs on this machine, as /proc tells it. Touches /proc and signals; starts nothing.

A process is named by (pid, start time): a pid alone may be somebody else's by now. A zombie is dead: on some machines
nobody reaps orphans for minutes, and ``kill(pid, 0)`` still says yes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    fields = _stat(pid)
    return (
        None if fields is None else Process(ProcessId(pid, int(fields[19])), fields[0], int(fields[3]), int(fields[1]))
    )


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third, the state, on."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold spaces and parentheses itself, so count from the last one.
    return text[text.rindex(")") + 2 :].split()


def identify(pid: int) -> ProcessId | None:
    """Name a process that is alive now."""
    process = look(pid)
    return process.id if process is not None and process.alive else None


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still lives."""
    now = look(process.pid)
    return now is not None and now.id == process and now.alive


def environment(pid: int) -> Mapping[str, str]:
    """The environment that a process was started with; empty where it may not be read or is gone. One that is just
    becoming another program shows none for a moment, which is waited for: it would seem to be nobody's."""
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
    """Whether a process that has shown no environment has one all the same, or may have when its exec is done."""
    fields = _stat(pid)
    if fields is None or fields[0] in _DEAD_STATES or fields[20] == "0":  # vsize: the kernel's own threads have none
        return False
    start_code, start, end = fields[23], *fields[47:49]
    # An exec sets env_start and env_end to one address, then env_end to the real end, and start_code after both.
    return start_code == "0" or start != end


def bearers(marks: Mapping[str, str]) -> list[Process]:
    """Every living process whose environment at its start held all these marks, this one left out."""
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


def kill(processes: Iterable[ProcessId], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to each that still lives. By pidfd: between the look and the signal no other can take its pid."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            try:
                if alive(process):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
