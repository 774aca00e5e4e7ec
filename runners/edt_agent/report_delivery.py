"""Sends reports from the spools to the API: in order, in batches, and again until the API acknowledges them.

The agent writes the acknowledged numbers into the supervisor records, so that the next agent continues after them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edt_agent.api import Api
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable, NotKnownHere, retry_seconds
from edt_agent.supervisor_records import Key, SupervisorRecords
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import Outage
from edt_contract.reports import BATCH_REPORTS, ReportKind

log = logging.getLogger(__name__)

_CAN_WAIT = frozenset({ReportKind.PROGRESS, ReportKind.VALIDATED, ReportKind.BEST_KEPT})
_PROGRESS_SECONDS = 0.25
"""Least seconds between two batches that hold only reports of ``_CAN_WAIT``. All other batches are sent at once."""


class ReportDelivery:
    """Sends reports, in ``run``. Call ``wake`` when there may be new reports.

    Args:
        api: the API.
        records: the supervisor records.
        attempts: the attempts whose reports are sent. The agent adds and removes attempts.
        on_end_taken: called when the API has taken a batch of an attempt whose last report is on disk.
    """

    def __init__(
        self, api: Api, records: SupervisorRecords, attempts: Mapping[Key, Attempt], on_end_taken: Callable[[], None]
    ) -> None:
        self._api = api
        self._records = records
        self._attempts = attempts
        self._on_end_taken = on_end_taken
        self._wake = asyncio.Event()
        self._delivered_at: dict[Key, float] = {}
        self._logged: dict[Key, str] = {}
        self._outage = Outage("the agent's records", lambda news: log.warning("%s", news))

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Send all reports, then wait for more, for ever."""
        failed = 0
        while True:
            self._wake.clear()
            more = False
            try:
                for attempt in list(self._attempts.values()):
                    more |= await self._deliver(attempt)
            except (ApiUnreachable, NotKnownHere) as error:
                failed += 1
                if failed == 3:  # not earlier, because at the start the node is not registered yet
                    log.warning("reports wait: %s", error)
                await asyncio.sleep(retry_seconds(failed))
                continue
            failed = 0
            if not more:
                await self._wake.wait()

    async def _deliver(self, attempt: Attempt) -> bool:
        """Send one batch of one attempt; returns whether there may be more."""
        spool = attempt.spool
        spool.scan()
        # The last report frees slots and ends jobs, so it is sent only when no process of the attempt is left.
        batch = spool.batch(BATCH_REPORTS, withhold_end=not attempt.ended)
        if not batch or self._can_wait(attempt.key, batch):
            return False
        crash_point(CrashPoint.AGENT_REPORT)
        try:
            answer = await self._api.report(batch)
        except NotKnownHere:
            raise
        except ApiRefused as error:
            self._log_once(attempt.key, f"{attempt.key}: its reports from {batch[0]['seq']} on stay on disk: {error}")
            return False
        crash_point(CrashPoint.AGENT_REPORTED)
        acked = answer.get(str(attempt.key))
        if acked is None or acked == spool.acked:
            self._log_once(attempt.key, f"{attempt.key}: its reports from {batch[0]['seq']} on were not taken")
            return False
        spool.ack(acked)
        attempt.record = dataclasses.replace(attempt.record, acked=acked)
        if attempt.key in self._attempts:
            # On a full disk the record keeps the old number. Then the next agent sends some reports a second time.
            with self._outage.watching():
                self._records.write(attempt.record)
        if spool.facts.ended:
            self._delivered_at.pop(attempt.key, None)
            self._logged.pop(attempt.key, None)
            self._on_end_taken()
        return True

    def _log_once(self, key: Key, text: str) -> None:
        """Log a sentence about an attempt, but not the same one twice in a row: the delivery is tried many times."""
        if text != self._logged.get(key):
            log.error("%s", text)
            self._logged[key] = text

    def _can_wait(self, key: Key, batch: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a batch holds only reports of how the training goes, and comes too soon after the last batch. If so,
        ``run`` is woken when the batch is due."""
        loop = asyncio.get_running_loop()
        wait = self._delivered_at.get(key, 0.0) + _PROGRESS_SECONDS - loop.time()
        if wait > 0 and all(report.get("kind") in _CAN_WAIT for report in batch):
            loop.call_later(wait, self._wake.set)
            return True
        self._delivered_at[key] = loop.time()
        return False
