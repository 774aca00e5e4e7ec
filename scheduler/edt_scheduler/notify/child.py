"""A child process that is kept running: started again when it ends, later each time."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

log = logging.getLogger("edt.scheduler")

RESTART_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""From one start to the next, by how often in a row the child ended soon or could not be started."""
SOON_SECONDS = 60.0


class Child:
    """``python -m module PID FD``: told who its parent is, and where to write what it has to say.

    It is to die with the thread that calls ``keep``, which starts it (``edt_contract.processes.die_with``).
    """

    def __init__(
        self,
        module: str,
        what: str,
        descriptor: int,
        environ: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._module, self._what = module, what
        self._descriptor = descriptor
        self._environ = environ
        self._monotonic = monotonic
        self._process: subprocess.Popen[bytes] | None = None
        self._tried = 0.0
        self._failed = 0
        """How often in a row it ended soon, or could not be started."""

    @property
    def pid(self) -> int | None:
        """Of the one that ran when ``keep`` was last called, if one did."""
        return self._process.pid if self._process is not None else None

    def keep(self) -> None:
        """Start it where it does not run and its wait is over. To be called every second or so.

        Raises nothing: where this machine has no process or memory to spare the start is tried again, as after an end.
        """
        now = self._monotonic()
        if self._process is not None:
            if self._process.poll() is None:
                return
            log.warning("%s ended with %s; it starts again", self._what, self._process.returncode)
            self._process = None
            self._failed = 0 if now > self._tried + SOON_SECONDS else self._failed + 1
        if self._failed and now < self._tried + RESTART_SECONDS[min(self._failed, len(RESTART_SECONDS)) - 1]:
            return
        self._tried = now
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, str(os.getpid()), str(self._descriptor)],
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                pass_fds=(self._descriptor,),
                process_group=0,
            )
        except OSError as error:
            self._failed += 1
            log.warning("%s cannot be started: %s; it is tried again", self._what, error)

    def kill(self) -> None:
        """End it at once, if it runs, and what it has started with it: none of them sees the other one die."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
