"""The scheduler's ear: a Celery worker whose only task writes one byte to its parent. Room: scheduler.

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

from edt_runner.processes import die_with
from edt_scheduler.doorbell import celery_app
from edt_scheduler.store.outbox import SCHEDULER_QUEUE, TICK_TASK


def main(arguments: list[str]) -> int:
    """Listen until the parent ends this process, or ends."""
    parent, descriptor = int(arguments[0]), int(arguments[1])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of a terminal; when to go is the parent's word
    warnings.filterwarnings("ignore", module=r"celery\.")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    app = celery_app(os.environ["EDT_BROKER_URL"], sends=False)

    @app.task(name=TICK_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def tick(*_: Any) -> None:
        """Wake the scheduler. A full pipe means that it is being woken anyway."""
        with contextlib.suppress(BlockingIOError):
            os.write(descriptor, b"d")

    worker = app.Worker(
        pool="solo",
        concurrency=1,
        queues=[SCHEDULER_QUEUE],
        hostname=f"scheduler-{parent}@edt",
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
