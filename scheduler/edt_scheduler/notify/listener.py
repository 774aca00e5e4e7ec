"""What wakes the scheduler's loop: its timer, a signal, a notification. Owns the worker process.

All three end a ``wait``. The notification arrives through a pipe from the Celery worker, which is kept running here;
without a broker there is none and the timer does all.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType

from edt_scheduler.notify.child import Child


class Listener:
    """Legal in the main thread only, since signals arrive there. ``stopped`` is set by SIGTERM and SIGINT."""

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
        """Return when something arrives, at the latest after ``seconds``. Many notifications are one."""
        if not self.stopped:
            ready, _, _ = select.select([self._reading], [], [], seconds)
            if ready:
                os.read(self._reading, 1 << 16)
        self._keep_worker()

    def rest(self, seconds: float) -> None:
        """Return after ``seconds``, whatever arrives; sooner only when it is ``stopped``."""
        ends = time.monotonic() + seconds
        while not self.stopped and (left := ends - time.monotonic()) > 0:
            self.wait(left)

    def close(self) -> None:
        """End the worker and give the signals back."""
        signal.set_wakeup_fd(-1)
        if self._worker is not None:
            self._worker.kill()  # it holds nothing to save: a lost notification costs one period of the timer
        os.close(self._reading)
        os.close(self._writing)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True

    def _keep_worker(self) -> None:
        if self._worker is not None and not self.stopped:
            self._worker.keep()
