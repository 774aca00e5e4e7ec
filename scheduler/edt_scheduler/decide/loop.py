"""One pass of the scheduler: it checks the nodes' leases, then looks. The caller hands in the clock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from edt_contract.crash_points import CrashPoint, crash_point
from edt_scheduler.decide.reconcile import Scheduler
from edt_scheduler.decide.silence import Silence
from edt_scheduler.errors import Unavailable
from edt_scheduler.platform import Platform

log = logging.getLogger("edt.scheduler")

PASS_SECONDS = 1.0
"""A pass that has lasted longer than this, in seconds, starts no further look. Leases are checked once per pass."""


class Loop:
    """The scheduler's loop body: the caller decides how often ``once`` runs.

    Args:
        platform: database, notifications and settings.
        monotonic: a monotonic clock in seconds. It measures leases and the length of a pass.
    """

    def __init__(self, platform: Platform, monotonic: Callable[[], float]) -> None:
        self._platform = platform
        self._monotonic = monotonic
        self._scheduler = Scheduler(platform)
        self._away = False
        self.silence = Silence(platform, monotonic)
        """Which nodes are silent. Each pass looks, and ``observed`` looks on between."""

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
            lost, begun = self.silence.observe(), self._monotonic()
            for _ in range(4):
                if not self._scheduler.look(lost) or self._monotonic() > begun + PASS_SECONDS:
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
