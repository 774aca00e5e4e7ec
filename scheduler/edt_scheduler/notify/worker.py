"""The scheduler's listener process: a Celery worker whose only task writes one byte to its parent's pipe.

The worker also writes a byte when it begins to listen, because the broker kept nothing that was sent before.

``listener`` alone starts it, as ``python -m edt_scheduler.notify.worker PARENT FD`` with EDT_BROKER_URL in its
environment. The worker is a separate process, so that a worker that has lost its broker, or hangs on it, never delays a
decision. It dies with its parent.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from celery.signals import worker_ready

from edt_contract.broker import begin_worker
from edt_contract.processes import wake
from edt_scheduler.notify.broker import celery_app, worker
from edt_scheduler.store.outbox import LOOK_TASK, SCHEDULER_QUEUE


def main(arguments: list[str]) -> int:
    """Listen until the parent stops this process, or until the parent itself ends.

    Args:
        arguments: the parent's process id and the descriptor to write to.

    Returns:
        The exit status.
    """
    parent, descriptor = int(arguments[0]), int(arguments[1])
    begin_worker(parent)
    app = celery_app(os.environ["EDT_BROKER_URL"], sends=False)

    @app.task(name=LOOK_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def look(*_: Any) -> None:
        wake(descriptor, b"d")

    @worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def ready(**_: Any) -> None:
        wake(descriptor, b"d")

    listener = worker(app, SCHEDULER_QUEUE, f"scheduler-{parent}")
    listener.start()
    return int(listener.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
