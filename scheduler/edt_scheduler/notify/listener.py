"""Wakes the scheduler's loop: at its timer, at a signal or at a notification. Owns the notification's worker process.

Each of these three ends a ``wait``. The Celery worker, which this module keeps running, passes notifications on through
a pipe. Without a broker there is no worker, and only the timer and signals wake the loop.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType

from edt_scheduler.notify.child import Child


class Listener:
    """Waits for the timer, a signal or a notification. SIGTERM and SIGINT set ``stopped``.

    Use it in the main thread only, since Python handles signals there.

    Args:
        broker_url: URL of the broker; empty: there is none.
    """

    def __init__(self, broker_url: str) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._worker: Child | None = None
        if broker_url:
            environ = {"EDT_BROKER_URL": broker_url}
            self._worker = Child("edt_scheduler.notify.worker", "the notification's worker", self._writing, environ)
        self.stopped = False

    def open(self) -> None:
        """Take over the signals and start the worker."""
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._keep_worker()

    def wait(self, seconds: float) -> None:
        """Return when something arrives, or after ``seconds``. Many notifications at once end one wait."""
        if not self.stopped:
            ready, _, _ = select.select([self._reading], [], [], seconds)
            if ready:
                os.read(self._reading, 1 << 16)
        self._keep_worker()

    def rest(self, seconds: float) -> None:
        """Return after ``seconds``, even if something arrives before; return sooner only when ``stopped`` is set."""
        ends = time.monotonic() + seconds
        while not self.stopped and (left := ends - time.monotonic()) > 0:
            self.wait(left)

    def close(self) -> None:
        """End the worker and stop passing signals to the pipe."""
        signal.set_wakeup_fd(-1)
        if self._worker is not None:
            self._worker.kill()  # it has nothing to save: after a lost notification the loop looks at its next tick
        os.close(self._reading)
        os.close(self._writing)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True

    def _keep_worker(self) -> None:
        if self._worker is not None and not self.stopped:
            self._worker.keep()
