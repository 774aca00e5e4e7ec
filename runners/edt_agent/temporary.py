"""``python -m edt_agent.temporary [arguments of edt_agent]``: the first process of a node that another cluster manager
gives for a while: process 1 of a pod, or the process of a Slurm step.

It starts the agent and starts it again if it dies, so that an agent's death costs no training: supervisors outlive the
agent, become children of this process, and the next agent adopts them. It reaps all orphans. SIGTERM and SIGINT mean
that the node leaves: this process tells the agent once, and tells it again if it has to start another one. When the
agent has ended for good, this process kills what is left and ends. It imports the standard library alone, and has one
thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from edt_contract.processes import adopt_orphans, descendants, die_with, ended_children

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_LEAVE_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_CANNOT_WORK = 2
"""Exit status of an agent that another start would not help, for example because a setting is wrong."""
_GOOD_SECONDS = 60.0
"""An agent that has run for so long counts as one that works, so the next start comes without a long pause."""
_MOST_PAUSE_SECONDS = 30.0
_LEAVING_PAUSE_SECONDS = 0.2
"""Pause before a start while the node leaves, because its time is short."""
_KILL_SECONDS = 10.0
"""Seconds that killed processes have to end. A process that the kernel does not end is left to it."""


class Init:
    """Runs one agent after another until one of them ends for good.

    Args:
        command: absolute path of the agent's program, and its arguments.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._agent: int | None = None
        """The agent's pid; None: none runs."""
        self._started = 0.0
        self._start_at = 0.0
        self._failed = 0
        self._leave_by: float | None = None
        """Monotonic seconds at which what is left is killed; None: nobody has asked the node to leave."""
        self._grace = _seconds(os.environ.get("EDT_LEAVE_SECONDS", ""))

    def run(self) -> int:
        """Run until the node is over; returns the exit status: 0, or 2 if the agent cannot work."""
        while True:
            now = time.monotonic()
            if self._agent is None and now >= self._start_at:
                self._start(now)
            caught = _wait_for_signal(self._wait_seconds(now))
            if caught in _LEAVE_SIGNALS and self._leave_by is None:
                self._leave()
            for pid, status in ended_children():
                if pid == self._agent:
                    self._agent = None
                    code = os.waitstatus_to_exitcode(status)
                    if code == _CANNOT_WORK and self._leave_by is None:
                        return code
                    if code in {0, _CANNOT_WORK}:
                        return 0  # a leaving node that the API does not want any more has left, too
                    self._died(code)
            if self._leave_by is not None and time.monotonic() >= self._leave_by:
                _say("the time is over in which this node had to leave: what is left is killed")
                return 0

    def _start(self, now: float) -> None:
        environ = dict(os.environ)
        if self._leave_by is not None and self._grace > 0:
            environ["EDT_LEAVE_SECONDS"] = f"{max(0.1, self._leave_by - now):.1f}"
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(self._command, environ, parent)
        self._agent, self._started = pid, now
        if self._leave_by is not None:
            self._tell()

    def _leave(self) -> None:
        self._leave_by = time.monotonic() + self._grace if self._grace > 0 else float("inf")
        self._start_at = 0.0
        self._tell()

    def _tell(self) -> None:
        """Tell the agent that the node leaves. The signal waits until the agent can take it (``_become``)."""
        if self._agent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._agent, signal.SIGTERM)

    def _died(self, code: int) -> None:
        now = time.monotonic()
        self._failed = 1 if now > self._started + _GOOD_SECONDS else self._failed + 1
        pause = min(_MOST_PAUSE_SECONDS, 0.5 * 2.0 ** min(self._failed - 1, 10))
        if self._leave_by is not None:
            pause = _LEAVING_PAUSE_SECONDS
        self._start_at = now + pause
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        _say(f"the agent ended {how}; another one starts in {pause:g} s")

    def _wait_seconds(self, now: float) -> float | None:
        """Seconds until there is something to do without a signal; None: never."""
        times = [self._start_at] if self._agent is None else []
        times += [self._leave_by] if self._leave_by is not None and self._leave_by < float("inf") else []
        return max(0.0, min(times) - now) if times else None


def main() -> int:
    return run_node([sys.executable, "-P", "-m", "edt_agent", *sys.argv[1:]])


def run_node(command: Sequence[str]) -> int:
    """Run the node until it is over. Then no process is left that descends from this one.

    Args:
        command: absolute path of the agent's program, and its arguments.

    Returns:
        The exit status: 0 when the node has left, 2 if the agent cannot work.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it were ignored, Linux would reap the children itself
    # A blocked signal waits for sigwait even if nothing handles it, also in process 1.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    adopt_orphans()
    try:
        return Init(command).run()
    finally:
        _kill_all()


def _wait_for_signal(seconds: float | None) -> int | None:
    """Wait for a signal of ``_SIGNALS``; None: none came within so many seconds."""
    if seconds is None:
        return signal.sigwaitinfo(_SIGNALS).si_signo
    caught = signal.sigtimedwait(_SIGNALS, seconds)
    return None if caught is None else caught.si_signo


def _become(command: Sequence[str], environ: dict[str, str], parent: int) -> None:
    """In the forked child: become the agent, in a session of its own, so that signals to this process's group reach it
    once. SIGTERM and SIGINT stay blocked until the agent handles them. If this process is killed, so is the agent."""
    try:
        os.setsid()
        die_with(parent)
        for number in _LEAVE_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, _LEAVE_SIGNALS)
        os.execve(command[0], list(command), environ)  # noqa: S606 - an absolute path
    except BaseException as error:
        _say(f"the agent cannot be started: {error}")
    finally:
        os._exit(1)


def _kill_all() -> None:
    """Kill all that descends from this process, again until nothing is left."""
    until = time.monotonic() + _KILL_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait_for_signal(0.05)
        for _ in ended_children():
            pass


def _seconds(text: str) -> float:
    """A number of seconds; 0 if it is none, because the agent says what is wrong with it."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def _say(text: str) -> None:
    print(f"edt agent: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a person reads it


if __name__ == "__main__":
    sys.exit(main())
