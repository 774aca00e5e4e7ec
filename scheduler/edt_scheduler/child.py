"""A child process that is kept running: started again when it ends, later each time. Room: scheduler."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

log = logging.getLogger("edt.scheduler")

RESTART_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""What a child that ended waits before it starts again, by how often in a row it ended soon."""
SOON_SECONDS = 60.0


class Child:
    """``python -m module PID FD``: told who its parent is, and where to write what it has to say.

    It is to die with the thread that calls ``keep``, which starts it (``edt_runner.processes.die_with``).
    """

    def __init__(self, module: str, what: str, descriptor: int, environ: Mapping[str, str]) -> None:
        self._module, self._what = module, what
        self._descriptor = descriptor
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._failed = 0

    def keep(self) -> None:
        """Start it where it does not run and its wait is over. To be called every second or so."""
        now = time.monotonic()
        if self._process is not None:
            if self._process.poll() is None:
                return
            wait = RESTART_SECONDS[min(self._failed, len(RESTART_SECONDS) - 1)]
            if now < self._started + wait:
                return
            self._failed = 0 if now > self._started + SOON_SECONDS else self._failed + 1
            log.warning("%s ended with %s; it starts again", self._what, self._process.returncode)
        self._started = now
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module, str(os.getpid()), str(self._descriptor)],
            env={**os.environ, **self._environ},
            stdin=subprocess.DEVNULL,
            pass_fds=(self._descriptor,),
            process_group=0,
        )

    def kill(self) -> None:
        """End it at once, if it runs, and what it has started with it: none of them sees the other one die."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
