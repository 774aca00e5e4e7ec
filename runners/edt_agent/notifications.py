"""The notification listener: a Celery worker that receives the node's notifications and wakes the agent through a pipe.

The listener is a child process (``python -m edt_agent.notifications``), because Celery takes over signals and logging,
and may hang when it loses its broker. The Celery task only writes a byte into the pipe. It does not read the arguments
of the message, because the agent asks the API for its assignments anyway. The listener dies with the agent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from edt_agent.errors import StartFailed, backoff_seconds, wait_until_set
from edt_agent.processes import Child, Children
from edt_contract.broker import CELERY_SETTINGS, NOTIFICATION_TASK, TRANSPORT_OPTIONS, WORKER_OPTIONS, begin_worker
from edt_contract.processes import TAG_VARIABLE, wake

log = logging.getLogger(__name__)

_PIPE = 3
_CONNECTED, _NOTIFIED = b"c", b"n"
"""Bytes that the worker writes: it is connected; a notification has arrived."""


class NotificationListener:
    """The agent's side: it keeps the worker running. Use it inside a running event loop only.

    Args:
        children: starts the worker's process.
        broker_url: URL of the broker.
        queue: the Celery queue of this node.
        tag: value of EDT_TAG for the worker's process.
        notified: called after each notification.
    """

    def __init__(self, children: Children, broker_url: str, queue: str, tag: str, notified: Callable[[], None]) -> None:
        self._children = children
        self._broker_url, self._queue, self._tag = broker_url, queue, tag
        self._notified = notified
        self._connected = asyncio.Event()
        self._child: Child | None = None

    async def connected(self, seconds: float) -> bool:
        """Wait until the worker has been connected once, at most ``seconds``; returns whether it has."""
        return await wait_until_set(self._connected, seconds=seconds)

    def restart(self) -> None:
        """Restart the worker. A worker that has lost its broker may not notice this itself."""
        if self._child is not None and self._child.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.id.pid, signal.SIGKILL)

    async def run(self) -> None:
        """Keep the worker running, for ever."""
        failed = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._run_once()
            except StartFailed as error:
                log.warning("the notification listener does not start: %s", error)
            lived = asyncio.get_running_loop().time() - started
            failed = 1 if lived > 60 else failed + 1
            log.warning("the notification listener ended and is started again; meanwhile the agent asks by timer")
            await asyncio.sleep(backoff_seconds(failed))

    async def _run_once(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ended = asyncio.Event()

        def read() -> None:
            data = os.read(reading, 1 << 16)
            if not data:
                loop.remove_reader(reading)
            if _CONNECTED in data:
                self._connected.set()
            if _NOTIFIED in data:
                self._notified()

        try:
            arguments = ["--queue", self._queue, "--parent", str(os.getpid())]
            command = [sys.executable, "-P", "-m", "edt_agent.notifications", *arguments]
            environ = {**os.environ, TAG_VARIABLE: self._tag, "EDT_BROKER_URL": self._broker_url}
            self._child = self._children.start(command, environ, keep={writing: _PIPE}, own_session=False)
            self._child.on_exit.append(ended.set)
            os.close(writing)
            writing = -1
            loop.add_reader(reading, read)
            await ended.wait()
        finally:
            self.restart()
            loop.remove_reader(reading)
            os.close(reading)
            if writing >= 0:
                os.close(writing)


def main() -> None:
    """The child's side: run a Celery worker that writes a byte into the pipe for each notification."""
    parser = argparse.ArgumentParser(prog="edt_agent.notifications")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    begin_worker(arguments.parent, "notifications")
    worker = _worker(os.environ["EDT_BROKER_URL"], arguments.queue)
    worker.start()
    sys.exit(worker.exitcode)


def _worker(broker_url: str, queue: str) -> Any:
    from celery import Celery
    from celery.signals import worker_ready

    app = Celery("edt_agent", broker=broker_url)
    app.conf.update(
        CELERY_SETTINGS,
        task_store_errors_even_if_ignored=False,
        broker_connection_max_retries=None,
        broker_transport_options=dict(TRANSPORT_OPTIONS),
    )

    @app.task(name=NOTIFICATION_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def notify(*_: Any, **__: Any) -> None:
        wake(_PIPE, _NOTIFIED)

    @worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def connected(**_: Any) -> None:
        os.write(_PIPE, _CONNECTED)

    return app.Worker(pool="solo", queues=[queue], hostname=f"agent@{queue}", **WORKER_OPTIONS)


if __name__ == "__main__":
    main()
