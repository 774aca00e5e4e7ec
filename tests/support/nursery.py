"""Supervisors that start in milliseconds: one process a framework imports it once and forks them.

Run as ``python -m support.nursery FRAMEWORK`` it reads specs from standard input, a line each, and answers with pids.
What it forks runs the product's own ``live(spec)``; only the import is shared.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from edt_contract.attempt import AttemptSpec
from edt_contract.encoding import dumps, load_object
from edt_contract.frameworks import supervisor_environ
from support import partition

TESTS = Path(__file__).resolve().parents[1]
RUNNERS = TESTS.parent / "runners"
REAPS_LATE = "TEST_REAPS_LATE"
"""In a spec's environment: seconds."""


class Forked:
    """A supervisor that is not our child: watched by its pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._ended = False

    def poll(self) -> int | None:
        if not self._ended and select.select([self._pidfd], [], [], 0)[0]:
            os.close(self._pidfd)
            self._ended = True
        return 0 if self._ended else None

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 60)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("supervisor", timeout or 60)
            select.select([self._pidfd], [], [], 0.1)
        return 0

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """The processes that fork, one a framework, each begun when it is first wanted. ``start`` starts a supervisor for a
    ``SupervisorClient``."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, spec: AttemptSpec) -> Forked:
        process = self._processes.get(spec.framework)
        if process is None:
            process = self._processes[spec.framework] = _begin(spec.framework)
        assert process.stdin and process.stdout
        process.stdin.write(dumps(spec) + "\n")
        process.stdin.flush()
        return Forked(int(process.stdout.readline()))

    def close(self) -> None:
        for process in self._processes.values():
            assert process.stdin and process.stdout
            process.stdin.close()
            process.wait(60)
            process.stdout.close()


def _begin(framework: str) -> subprocess.Popen[str]:
    environ = supervisor_environ(framework, chosen=os.environ)
    return subprocess.Popen(
        [sys.executable, "-m", "support.nursery", framework],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ, "PYTHONPATH": f"{TESTS}:{RUNNERS}", "GLOO_SOCKET_IFNAME": "lo"},
    )


def main() -> None:
    from edt_runner import frameworks
    from edt_runner.supervisor.__main__ import live

    frameworks.by_name(sys.argv[1]).warm()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    while line := sys.stdin.readline():
        spec = AttemptSpec.from_json_object(load_object(line))
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        partition.enter(spec.environ)
        log = os.open(Path(spec.spool_dir) / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        import logging

        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        if late := spec.environ.get(REAPS_LATE):
            _reap_late(float(late))
        os._exit(live(spec))


def _reap_late(seconds: float) -> None:
    """As on a machine that lets the supervisor stand before it looks who has ended."""
    from edt_runner.supervisor.supervisor import Supervisor

    reap = Supervisor._reap

    def late(supervisor: Supervisor) -> None:
        time.sleep(seconds)
        reap(supervisor)

    Supervisor._reap = late  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
