"""What only the home of an attempt has: the coordinator and the driver, started again when they die. Room: runners.

The listening socket is this process's, so that a coordinator that is started again is found where the one before it
was. Deaths that are not the script's have no limit, only growing pauses.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from edt_runner import exits, processes
from edt_runner.channel import Channel
from edt_runner.context import Context
from edt_runner.contract import Letter
from edt_runner.supervisor import children, zygote
from edt_runner.supervisor.children import Child

_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
_CALM_SECONDS = 60.0
"""Whoever has lived so long begins anew with the shortest pause."""


@dataclass
class Restarts:
    """Back-off of one part."""

    count: int = 0
    _row: int = 0
    _started: float = 0.0
    not_before: float = 0.0

    def started(self, now: float) -> None:
        self._started = now

    def died(self, now: float) -> None:
        self.count += 1
        self._row = 0 if now - self._started > _CALM_SECONDS else self._row + 1
        self.not_before = now + _PAUSES[min(max(0, self._row - 1), len(_PAUSES) - 1)]


class Home:
    """Coordinator and driver of the attempt.

    Args:
        letter: of the attempt.
        selector: where outputs are read.
        descriptors: what children must not hold.
        recovering: another node was the home before.
    """

    def __init__(
        self,
        letter: Letter,
        selector: selectors.BaseSelector,
        descriptors: Callable[[], list[int]],
        *,
        recovering: bool,
    ) -> None:
        self._letter, self._selector, self._others = letter, selector, descriptors
        self._listener = socket.create_server((letter.host, 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"{letter.host}:{self._listener.getsockname()[1]}"
        self.recovering = recovering
        """Somebody trains: a coordinator that begins now is not the training's first."""
        self.coordinator: int | None = None
        """pid"""
        self.driver: Child | None = None
        self.driver_wanted = letter.driver == "fork"
        self.coordinator_restarts, self.driver_restarts = Restarts(), Restarts()

    def start_coordinator(self) -> socket.socket:
        """Fork it; returns the line to it."""
        ours, theirs = socket.socketpair()
        letter, listener, recovering = self._letter, self._listener, self.recovering

        def run() -> int:
            from edt_runner.coordinator import Coordinator

            processes.set_name("edt-coordinator")
            coordinator = Coordinator(listener, letter.token, recovering=recovering)
            Channel(theirs).send({"kind": "listening"})
            coordinator.serve(theirs)
            return 0

        keep = [theirs.fileno(), listener.fileno()]
        self.coordinator = zygote.fork(run, keep=keep, close=[*self._others(), ours.fileno()])
        theirs.close()
        self.coordinator_restarts.started(time.monotonic())
        return ours

    def start_driver(self) -> None:
        """Fork it."""
        role = Context("driver", self._letter, self.address)
        self.driver = children.start(role, "driver", self._selector, self._others())
        self.driver_restarts.started(time.monotonic())

    def descriptors(self) -> list[int]:
        return [self._listener.fileno(), *(self.driver.descriptors() if self.driver else [])]

    def kill_if_stopped(self) -> None:
        """A part that is stopped (state T) is of no use; another takes its place."""
        for pid in (self.coordinator, self.driver.pid if self.driver else None):
            if pid is not None and processes.is_stopped(pid):
                children.kill(pid)

    def close(self) -> None:
        """Another node is the home from now on, or none."""
        self.driver_wanted = False
        if self.coordinator is not None:
            children.kill(self.coordinator)
        if self.driver is not None:
            self.driver.signal(signal.SIGKILL)
        self._listener.close()


def how_it_ended(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    if os.WEXITSTATUS(status) == exits.TERMINATED:
        return f"signal {signal.SIGTERM}"
    return f"exit status {os.WEXITSTATUS(status)}"
