"""What wakes the scheduler's loop: its timer, a signal, a doorbell. Room: scheduler. Owns the worker process.

All three end a ``wait``. The doorbell arrives through a pipe from the Celery worker, which is kept running here;
without a broker there is none and the timer does all.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

log = logging.getLogger("edt.scheduler")

RESTART_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""What a worker that ended waits before it starts again, by how often in a row it ended soon."""
SOON_SECONDS = 60.0


class Ear:
    """Legal in the main thread only, since signals arrive there. ``stopped`` is set by SIGTERM and SIGINT."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._worker: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._failed = 0
        self.stopped = False

    def open(self) -> None:
        """Take over the signals and start the worker."""
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._keep_worker()

    def wait(self, seconds: float) -> None:
        """Return when something rings, at the latest after ``seconds``. Many rings are one."""
        if not self.stopped:
            ready, _, _ = select.select([self._reading], [], [], seconds)
            if ready:
                os.read(self._reading, 1 << 16)
        self._keep_worker()

    def close(self) -> None:
        """End the worker and give the signals back."""
        signal.set_wakeup_fd(-1)
        if self._worker is not None:
            self._worker.kill()  # nothing of it is worth a farewell: a ring that is lost costs a tick
            self._worker.wait()
        os.close(self._reading)
        os.close(self._writing)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True

    def _keep_worker(self) -> None:
        if not self._broker_url or self.stopped:
            return
        now = time.monotonic()
        if self._worker is not None:
            if self._worker.poll() is None:
                return
            wait = RESTART_SECONDS[min(self._failed, len(RESTART_SECONDS) - 1)]
            if now < self._started + wait:
                return
            self._failed = 0 if now > self._started + SOON_SECONDS else self._failed + 1
            log.warning("the doorbell's worker ended with %s; it starts again", self._worker.returncode)
        self._started = now
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "edt_scheduler.worker", str(os.getpid()), str(self._writing)],
            env={**os.environ, "EDT_BROKER_URL": self._broker_url},
            stdin=subprocess.DEVNULL,
            pass_fds=(self._writing,),
        )
