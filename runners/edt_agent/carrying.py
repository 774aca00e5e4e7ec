"""Room: runners, agent. How reports get from the spools to the API: in order, in batches, again until acknowledged.

Reads spools, writes acknowledged numbers into the ledger, talks HTTP through ``api.py``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edt_agent.api import Api
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable, NotKnownHere
from edt_agent.ledger import Entry, Key, Ledger
from edt_runner.contract import ReportKind
from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.report_bodies import BATCH_REPORTS
from edt_runner.storage import Outage

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.25
"""Reports of progress alone go so often at most; all others go at once, and take them along."""
_RETRY_SECONDS = 0.2
_RETRY_MOST_SECONDS = 5.0


class Carrying:
    """``go_on`` runs for ever; ``look`` says that there may be something new."""

    def __init__(
        self, api: Api, ledger: Ledger, attempts: Mapping[Key, Attempt], on_end_taken: Callable[[], None]
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._attempts = attempts
        self._on_end_taken = on_end_taken
        self._news = asyncio.Event()
        self._carried_at: dict[Key, float] = {}
        self._complained = ""
        self._outage = Outage("the agent's ledger", lambda news: log.warning("%s", news))

    def look(self) -> None:
        self._news.set()

    async def go_on(self) -> None:
        """Carry what there is, then wait for more."""
        failed = 0
        while True:
            self._news.clear()
            more = False
            try:
                for attempt in list(self._attempts.values()):
                    more |= await self._carry(attempt)
            except (ApiUnreachable, NotKnownHere) as error:
                failed += 1
                if failed == 3:  # at the start a node is not registered yet
                    log.warning("reports wait: %s", error)
                await asyncio.sleep(min(_RETRY_MOST_SECONDS, _RETRY_SECONDS * failed))
                continue
            failed = 0
            if not more:
                await self._news.wait()

    async def _carry(self, attempt: Attempt) -> bool:
        """One batch of one attempt. True: there may be more already."""
        spool = attempt.spool
        spool.scan()
        # The last word frees slots and ends jobs, so it waits until no process of the attempt is left.
        batch = spool.batch(BATCH_REPORTS, hold_the_end=not attempt.ended)
        if not batch or self._can_wait(attempt.key, batch):
            return False
        crash_point(CrashPoint.AGENT_CARRY)
        try:
            answer = await self._api.report(batch)
        except NotKnownHere:
            raise
        except ApiRefused as error:
            self._complain(f"{attempt.key}: its reports from {batch[0]['seq']} on stay on disk: {error}")
            return False
        crash_point(CrashPoint.AGENT_CARRIED)
        acked = answer.get(str(attempt.key))
        if acked is None or acked == spool.acked:
            self._complain(f"{attempt.key}: its reports from {batch[0]['seq']} on were not taken")
            return False
        spool.ack(acked)
        attempt.entry = dataclasses.replace(attempt.entry, acked=acked)
        if attempt.key in self._attempts:
            self._note(attempt.entry)
        if spool.facts.ended:
            self._carried_at.pop(attempt.key, None)
            self._on_end_taken()
        return True

    def _complain(self, text: str) -> None:
        """Once, however often it is tried again."""
        if text != self._complained:
            log.error("%s", text)
            self._complained = text

    def _note(self, entry: Entry) -> None:
        """The ledger may be behind, so a full disk holds nothing up: the next agent sends again what the API knows."""
        try:
            self._ledger.write(entry)
            self._outage.worked()
        except OSError as error:
            self._outage.failed(error)

    def _can_wait(self, key: Key, batch: Sequence[Mapping[str, Any]]) -> bool:
        """Whether it is progress alone, and told a moment ago; then the next look is arranged for."""
        loop = asyncio.get_running_loop()
        wait = self._carried_at.get(key, 0.0) + _PROGRESS_SECONDS - loop.time()
        if wait > 0 and all(report.get("kind") == ReportKind.PROGRESS for report in batch):
            loop.call_later(wait, self._news.set)
            return True
        self._carried_at[key] = loop.time()
        return False
