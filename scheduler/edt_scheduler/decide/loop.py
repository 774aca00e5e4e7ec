"""One pass of the scheduler: it checks the nodes' leases, then looks. The caller hands in the clock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from edt_contract.crash_points import CrashPoint, crash_point
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import Unavailable
from edt_scheduler.model.nodes import Leases
from edt_scheduler.platform import Platform
from edt_scheduler.store import nodes

log = logging.getLogger("edt.scheduler")

PASS_SECONDS = 1.0
"""A pass that has lasted longer than this, in seconds, starts no further look. Leases are checked once per pass."""
API_SILENT_SECONDS = 10.0
"""If no API has served for this many seconds, no node is declared lost, because nodes report through an API."""


class Loop:
    """The scheduler's loop body: the caller decides how often ``once`` runs.

    Args:
        platform: database, notifications and settings.
        monotonic: a monotonic clock in seconds. It measures leases and the length of a pass.
    """

    def __init__(self, platform: Platform, monotonic: Callable[[], float]) -> None:
        self._platform = platform
        self._monotonic = monotonic
        self._leases = Leases(platform.settings.lease_seconds)
        self._observed = monotonic()
        self._away = False
        self._apis = Leases(API_SILENT_SECONDS)
        self._unreachable = False

    def once(self) -> bool:
        """Look until nothing is left to do, at most four times. Logs database errors and does not raise them.

        One decision can make the next one possible at once: a slot that no agent had heard of is free again
        immediately. So a pass that has written something looks again. What is left after the last look waits for the
        timer.

        Returns:
            Whether the database answered.
        """
        crash_point(CrashPoint.SCHEDULER_PASS)
        try:
            lost, begun = self._silent(), self._monotonic()
            for _ in range(4):
                if not look(self._platform, lost) or self._monotonic() > begun + PASS_SECONDS:
                    break
                lost = {}
            self._platform.notifier.notify()
        except Unavailable as error:
            if not self._away:
                log.warning("%s; trying again", error)
            self._away = True
            return False
        except SQLAlchemyError:
            log.exception("the database could not be asked; trying again")
            return False
        if self._away:
            log.info("the database answers again")
        self._away = False
        return True

    def _silent(self) -> dict[int, int]:
        """Nodes whose lease has run out, with the counter at which each was last heard from.

        All leases begin again if this scheduler did not look for more than half a lease, because the database was away
        or the process was stopped. The scheduler cannot know which nodes were silent in that time. All leases also
        begin again while no API serves, since nodes report only through an API.
        """
        with self._platform.database.snapshot() as tx:
            counters = {row.id: row.counter for row in nodes.every(tx) if row.lost_at is None}
            heartbeat = nodes.api_counter(tx)
        now = self._monotonic()
        unreachable = bool(self._apis.observe({0: heartbeat} if heartbeat is not None else {}, now))
        if unreachable != self._unreachable:
            log.warning("no API serves: no node is taken for lost" if unreachable else "an API serves again")
        self._unreachable = unreachable
        if unreachable or self._away or now > self._observed + self._platform.settings.lease_seconds / 2:
            self._leases = Leases(self._platform.settings.lease_seconds)
        self._observed = now
        return {node: counters[node] for node in self._leases.observe(counters, now)}
