"""Finds the nodes that are silent for longer than their lease. Owns a thread, if it is asked to.

A lease is measured by the observer's own clock between two looks at the nodes' counters. How long a decision takes says
nothing about the nodes: so while the scheduler decides, the thread goes on observing. If nobody has observed for more
than half a lease all the same, the process was stopped or the database was away, and it is unknown which nodes were
silent meanwhile: each then gets a whole lease again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from edt_scheduler.errors import Unavailable
from edt_scheduler.model.nodes import Leases
from edt_scheduler.platform import Platform
from edt_scheduler.store import nodes

log = logging.getLogger("edt.scheduler")

API_SILENT_SECONDS = 10.0
"""If no API has served for this many seconds, no node is declared lost, because nodes report through an API."""
OBSERVE_SECONDS = 1.0
_END_SECONDS = 1.0


class Silence:
    """Which nodes are silent.

    Args:
        platform: database and settings.
        monotonic: a monotonic clock in seconds.
    """

    def __init__(self, platform: Platform, monotonic: Callable[[], float]) -> None:
        self._platform = platform
        self._monotonic = monotonic
        self._leases = Leases(platform.settings.lease_seconds)
        self._observed = monotonic()
        self._away = False
        self._apis = Leases(API_SILENT_SECONDS)
        self._unreachable = False
        self._guard = threading.Lock()

    def observe(self) -> dict[int, int]:
        """Look at the nodes' counters.

        Returns:
            The nodes whose lease has run out, with the counter at which each was last heard from.

        Raises:
            Unavailable: if the database cannot be used now.
        """
        with self._guard:
            try:
                with self._platform.database.snapshot() as tx:
                    counters = {row.id: row.counter for row in nodes.counters(tx)}
                    heartbeat = nodes.api_counter(tx)
            except (Unavailable, SQLAlchemyError):
                self._away = True
                raise
            return self._silent(counters, heartbeat, self._monotonic())

    def _silent(self, counters: dict[int, int], heartbeat: int | None, now: float) -> dict[int, int]:
        unreachable = bool(self._apis.observe({0: heartbeat} if heartbeat is not None else {}, now))
        if unreachable != self._unreachable:
            log.warning("no API serves: no node is taken for lost" if unreachable else "an API serves again")
        self._unreachable = unreachable
        if unreachable or self._away or now > self._observed + self._platform.settings.lease_seconds / 2:
            self._leases = Leases(self._platform.settings.lease_seconds)
        self._observed, self._away = now, False
        return {node: counters[node] for node in self._leases.observe(counters, now)}

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Observe every OBSERVE_SECONDS in a thread for the length of the block."""
        ended = threading.Event()
        seconds = min(OBSERVE_SECONDS, self._platform.settings.lease_seconds / 4)

        def run() -> None:
            while not ended.wait(seconds):
                try:
                    self.observe()
                except Unavailable:
                    continue  # the loop logs it
                except SQLAlchemyError:
                    log.exception("the nodes' counters could not be read; trying again")

        thread = threading.Thread(target=run, name="leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_END_SECONDS)
