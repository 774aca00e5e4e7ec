"""One process of the platform as a child: starts it, reads and prints its output, restarts it when it dies.

Children die with this process (PR_SET_PDEATHSIG). A terminal's Ctrl-C does not reach them, because each has a session
of its own. ``platform.py`` decides in which order they end.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from edt_contract.processes import die_with

_LONGEST_LINE = 1 << 16
_STEADY_SECONDS = 10.0
_EXEC_SECONDS = 1.0
"""Longer than the moment of an exec at which a process has no environment."""
_RESET = "\033[0m"
_COLOURS = {"up": "1", "api": "36", "scheduler": "35", "agent": "32", "broker": "33"}
_WIDTH = max(len(name) for name in _COLOURS)


@dataclass
class Output:
    """The output of one process of a service and of its children: lines from a pipe."""

    name: str
    descriptor: int
    _rest: bytes = b""

    def lines(self) -> list[str] | None:
        """Return the lines since the last call; None if no more will come and the pipe is closed.

        Call it only when the pipe can be read.
        """
        data = os.read(self.descriptor, _LONGEST_LINE)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data and not self._rest:
            os.close(self.descriptor)
            return None
        if not data or len(self._rest) > _LONGEST_LINE:
            whole, self._rest = [*whole, self._rest], b""
        lines = [line.decode(errors="replace").rstrip() for line in whole]
        return [line for line in lines if line]


class Console:
    """Standard output of `edt up`: each line begins with the name of its service.

    Names are coloured only on a terminal, and not if NO_COLOR is set.
    """

    def __init__(self) -> None:
        self._lost = 0
        """How many lines were lost because the disk was full."""
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def say(self, service: str, line: str) -> None:
        """Write one line. Neither a missing terminal nor a full disk for the output stops the platform."""
        name = f"{service:<{_WIDTH}}"
        prefix = f"\033[{_COLOURS[service]}m{name}{_RESET}" if self._colour else name
        missing = f"[{self._lost} lines are missing: the disk was full]\n" if self._lost else ""
        try:
            sys.stdout.write(f"{missing}{prefix} | {line}\n")
            sys.stdout.flush()
            self._lost = 0
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                self._lost += 1
                return
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  open until this process ends


@dataclass
class Service:
    """A child process, and how often it died. ``start`` may be called again after ``ended``."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    due: float | None = 0.0
    """When to start the process, on the monotonic clock; None if it runs or is not wanted any more."""
    _failed: int = 0
    _started: float = 0.0

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def start(self, now: float) -> Output:
        """Start the process and return its output.

        Raises:
            OSError: the program is missing.
        """
        parent = os.getpid()
        reading, writing = os.pipe2(os.O_CLOEXEC)

        try:
            self.process = subprocess.Popen(
                list(self.command),
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
                # This process has one thread, so no lock can be held at the fork.
                preexec_fn=lambda: die_with(parent),  # noqa: PLW1509
            )
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.due = None
        self._started = now
        return Output(self.name, reading)

    def ended(self, status: int, now: float) -> float:
        """Note that the process has ended.

        Returns:
            Seconds until the next start, at most 30. They grow with each end, unless the process had run for more than
                _STEADY_SECONDS.
        """
        assert self.process is not None
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self._failed = 1 if now - self._started > _STEADY_SECONDS else self._failed + 1
        pause = min(30.0, 0.5 * 2.0 ** (self._failed - 1))
        self.due = now + pause
        return pause

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        if self.process is not None and self.runs:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


def kill_all(variable: str, tag: str) -> int:
    """Kill (SIGKILL) all descendants of this process and all processes with this home's mark in their environment.

    The mark finds supervisors that have outlived an earlier platform. Descendants are killed even without an
    environment. Other processes that show no environment are checked again for a moment, because such a process may be
    in the middle of an exec.

    Args:
        variable: name of the environment variable with the mark.
        tag: the mark of the home.

    Returns:
        How many living processes were killed.
    """
    killed = _kill(psutil.Process().children(recursive=True))
    unsure = [process for process in psutil.process_iter() if process.pid != os.getpid()]
    until = None
    while True:
        shown = {process: _environment(process) for process in unsure}
        for process, environ in shown.items():
            if environ and environ.get(variable) == tag:
                with suppress(psutil.NoSuchProcess):
                    killed += _kill([process, *process.children(recursive=True)])
        unsure = [process for process, environ in shown.items() if environ == {}]
        until = until or time.monotonic() + _EXEC_SECONDS  # counted from the end of the first look, which may be slow
        if not unsure or time.monotonic() > until:
            return killed
        time.sleep(0.001)


def _kill(processes: Iterable[psutil.Process]) -> int:
    killed = 0
    for process in processes:
        with suppress(psutil.Error):  # the process may end between two calls
            if process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                killed += 1
    return killed


def _environment(process: psutil.Process) -> Mapping[str, str] | None:
    """Return the environment of a process; None if the process has none that we may read, as kernel threads and dead
    processes.
    """
    with suppress(psutil.Error):
        return process.environ() or ({} if process.memory_info().vms else None)
    return None
