"""Which of the job's places cannot be written, as its supervisor hears and sees it. Room: runners; pure.

Engines come and go, and each knows only of its own failures: here they are put together, so that the platform hears of
an outage once and of its end once, whoever found the one and the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edt_runner.contract import ReportKind
from edt_runner.storage import News, Outage, PatientLog, reason
from edt_runner.supervisor.children import Child

_log = logging.getLogger(__name__)
CHECKPOINTS, LOGS = "checkpoints", "logs"
_MOST_PLACES = 8
_MOST_LOGS = 64
"""Of ended processes, that wait for room."""


class Storage:
    """``report`` tells the platform."""

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._outages: dict[str, Outage] = {}
        self._live: list[PatientLog] = []
        self._ended: list[PatientLog] = []
        """Of processes that are gone, and whose last text waits for room."""

    def hear(self, body: Mapping[str, Any]) -> None:
        """An engine could not write a place, or could."""
        place, error = str(body.get("place", ""))[:64], str(body.get("error") or "")[:400]
        if place not in self._outages and (not error or len(self._outages) >= _MOST_PLACES):
            return
        outage = self._outages.setdefault(place, Outage(place, self._tell))
        if error:
            outage.failed(error)
        else:
            outage.worked()

    def look_at_logs(self, children: Iterable[Child]) -> None:
        """Whether what drivers and engines print can be written; tries again what could not, also of those that were
        looked at before and are gone. Whoever asks does so between a process's start and its end."""
        logs = [pipe.log for child in children for pipe in child.outputs]
        gone = [*self._ended, *(log for log in self._live if log not in logs)]
        failing = [log for log in (*gone, *logs) if log.holds and not log.flush()]
        for log in gone:
            log.close()  # a flush has opened it again
        self._live, self._ended = logs, [log for log in gone if log.holds][-_MOST_LOGS:]
        error = next((log.error for log in failing if log.error is not None), None)
        self.hear({"place": LOGS, "error": reason(error) if error is not None else ""})

    def _tell(self, news: News) -> None:
        _log.warning("%s", news)
        self._report(ReportKind.STORAGE, place=news.place, error=news.error, seconds=round(news.seconds, 1))
