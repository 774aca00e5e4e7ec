"""Room: runners, agent. The doorbell: a Celery worker on the node's own queue, which wakes the agent through a pipe.

Run as a child of its own (``python -m edt_agent.doorbell``): Celery takes over signals and logging and may hang on a
broker that went away, none of which may touch the agent. The task does nothing but write a byte to the pipe. It dies
with the agent. Messages are JSON, and the ids in them are not even read: the agent asks the API what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from edt_agent.children import Child, Children
from edt_agent.decide import backoff_seconds
from edt_agent.errors import StartFailed
from edt_runner.contract import BROKER_KEY_PREFIX, DOORBELL_TASK, TAG_VARIABLE
from edt_runner.processes import die_with

log = logging.getLogger(__name__)

_PIPE = 3
_HEARS, _RING = b"h", b"r"
"""What the worker says: it is connected; somebody rang."""

CELERY_SETTINGS: Mapping[str, Any] = {
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    "worker_prefetch_multiplier": 1,
    "worker_enable_remote_control": False,  # a message must not be able to shut a worker down
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "worker_cancel_long_running_tasks_on_connection_loss": True,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_transport_options": {
        "visibility_timeout": 600,
        "unacked_restore_throttle": 1,
        "health_check_interval": 10,
        "socket_keepalive": True,
        "global_keyprefix": BROKER_KEY_PREFIX,
    },
}


class Doorbell:
    """The agent's end: keeps the worker running and passes the ring on. Legal only inside a running event loop."""

    def __init__(self, children: Children, broker_url: str, queue: str, tag: str, rang: Callable[[], None]) -> None:
        self._children = children
        self._broker_url, self._queue, self._tag = broker_url, queue, tag
        self._rang = rang
        self._hears = asyncio.Event()
        self._child: Child | None = None

    async def hears(self, seconds: float) -> bool:
        """Wait until the worker has been connected once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hears.wait()
        return self._hears.is_set()

    def restart(self) -> None:
        """Start the worker anew: one that has lost its broker may think it is well."""
        if self._child is not None and self._child.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.id.pid, signal.SIGKILL)

    async def keep(self) -> None:
        """Keep the worker running, for ever."""
        failed = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._live_once()
            except StartFailed as error:
                log.warning("no doorbell: %s", error)
            lived = asyncio.get_running_loop().time() - started
            failed = 1 if lived > 60 else failed + 1
            log.warning("the doorbell's worker ended; it starts again, meanwhile the timer serves")
            await asyncio.sleep(backoff_seconds(failed))

    async def _live_once(self) -> None:
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ended = asyncio.Event()

        def read() -> None:
            data = os.read(reading, 1 << 16)
            if not data:
                loop.remove_reader(reading)
            if _HEARS in data:
                self._hears.set()
            if _RING in data:
                self._rang()

        try:
            command = [
                sys.executable,
                "-P",
                "-m",
                "edt_agent.doorbell",
                "--queue",
                self._queue,
                "--parent",
                str(os.getpid()),
            ]
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
    """The child's end: a Celery worker that takes what is rung and passes it on."""
    parser = argparse.ArgumentParser(prog="edt_agent.doorbell")
    parser.add_argument("--queue", required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    die_with(arguments.parent)
    # Ctrl-C in a terminal reaches the whole foreground group; when to go is the agent's word.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", module=r"celery\.")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s doorbell: %(message)s")
    worker = _worker(os.environ["EDT_BROKER_URL"], arguments.queue)
    worker.start()
    sys.exit(worker.exitcode)


def _worker(broker_url: str, queue: str) -> Any:
    from celery import Celery
    from celery.signals import worker_ready

    app = Celery("edt_agent", broker=broker_url)
    app.conf.update(CELERY_SETTINGS)

    @app.task(name=DOORBELL_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # Celery has no types
    def look(*_: Any, **__: Any) -> None:
        """Wake the agent. A full pipe means that it is being woken anyway."""
        with contextlib.suppress(BlockingIOError):
            os.write(_PIPE, _RING)

    @worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def hears(**_: Any) -> None:
        os.write(_PIPE, _HEARS)

    return app.Worker(
        pool="solo",
        concurrency=1,
        queues=[queue],
        hostname=f"doorbell@{queue}",
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )


if __name__ == "__main__":
    main()
