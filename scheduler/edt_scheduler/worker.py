"""The scheduler's ear: a Celery worker whose only task writes one byte to its parent. Room: scheduler.

It writes one when it begins to listen, too: nobody has kept what was said before.

``python -m edt_scheduler.worker PARENT FD``, started by ``ear`` and by nothing else, with EDT_BROKER_URL in its
environment. A process of its own, since a worker that has lost its broker, or hangs on it, must never hold up a
decision. It dies with its parent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import warnings
from typing import Any

from celery.signals import worker_ready

from edt_runner.processes import die_with
from edt_scheduler.broker import celery_app, worker
from edt_scheduler.store.outbox import SCHEDULER_QUEUE, TICK_TASK


def main(arguments: list[str]) -> int:
    """Listen until the parent ends this process, or ends."""
    parent, descriptor = int(arguments[0]), int(arguments[1])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal; when to go is the parent's word
    warnings.filterwarnings("ignore", module=r"celery\.")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    app = celery_app(os.environ["EDT_BROKER_URL"], sends=False)

    def wake(**_: Any) -> None:
        """Wake the scheduler. A full pipe means that it is being woken anyway."""
        with contextlib.suppress(BlockingIOError):
            os.write(descriptor, b"d")

    @app.task(name=TICK_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def tick(*_: Any) -> None:
        wake()

    worker_ready.connect(wake, weak=False)
    listener = worker(app, SCHEDULER_QUEUE, f"scheduler-{parent}")
    listener.start()
    return int(listener.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
