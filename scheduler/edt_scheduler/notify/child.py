"""A child process that is kept running: when it ends, it is started again, each time after a longer wait."""

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
"""Seconds from one start to the next, by how often in a row the child ended soon or could not be started."""
SOON_SECONDS = 60.0
"""A child that ends within this many seconds of its start has ended soon."""


class Child:
    """``python -m module PID FD``: a child process that gets its parent's process id and a descriptor to write to.

    The child should die with the thread that calls ``keep``, because this thread starts it
    (``edt_contract.processes.die_with``).

    Args:
        module: the Python module to run.
        what: the child's name in the log.
        descriptor: file descriptor to which the child writes.
        environ: environment variables to add to this process's own.
        monotonic: a monotonic clock in seconds.
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
        """How often in a row the child ended soon or could not be started."""

    @property
    def pid(self) -> int | None:
        """Process id of the child that ran when ``keep`` was last called; None: no child ran."""
        return self._process.pid if self._process is not None else None

    def keep(self) -> None:
        """Start the child if it does not run and its wait is over. Call this every second or so.

        Raises nothing. If this machine has no process or memory to spare, the start is tried again later, as after an
        end.
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
        """Kill the child at once, if it runs.

        Every process of its group is killed too, because those processes would not notice its death.
        """
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
