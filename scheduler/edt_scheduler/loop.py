"""One pass of the scheduler: count leases, look, sweep now and then. Room: scheduler. The clock is handed in."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from edt_scheduler.house import House
from edt_scheduler.nodes import Leases
from edt_scheduler.operations.sweeping import sweep_deleted
from edt_scheduler.reconcile import look
from edt_scheduler.store import nodes

log = logging.getLogger("edt.scheduler")

SWEEP_SECONDS = 30.0


class Loop:
    """``once`` may be called at any time; how often is the caller's. ``monotonic`` counts leases, nothing else."""

    def __init__(self, house: House, monotonic: Callable[[], float]) -> None:
        self._house = house
        self._monotonic = monotonic
        self._leases = Leases(house.settings.lease_seconds)
        self._swept = monotonic()

    def once(self) -> bool:
        """Look until there is nothing more to do; False where the database could not be asked.

        A decision may make the next one possible at once (a slot that no agent had heard of is free again), so a
        pass that wrote something looks again, a few times at most: the timer does the rest.
        """
        try:
            lost = self._silent()
            for _ in range(4):
                if not look(self._house, lost):
                    break
                lost = {}
            self._house.doorbells.ring()
            if self._monotonic() > self._swept + SWEEP_SECONDS:
                self._swept = self._monotonic()
                sweep_deleted(self._house)
        except SQLAlchemyError:
            log.exception("the database could not be asked; trying again")
            return False
        return True

    def _silent(self) -> dict[int, int]:
        """Nodes whose lease has run out, with the counter at which they were last heard from."""
        with self._house.database.snapshot() as tx:
            counters = {row.id: row.counter for row in nodes.every(tx) if row.lost_at is None}
        return {node: counters[node] for node in self._leases.observe(counters, self._monotonic())}
