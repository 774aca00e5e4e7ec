"""Stores with each job why it waits. What changes for all jobs at each start, such as ranks, is not stored: readers
compute it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row

from edt_scheduler.decide.snapshot import Snapshot
from edt_scheduler.model.texts import parsed
from edt_scheduler.plan.state import Blocking, Explanation, Plan
from edt_scheduler.platform import Platform
from edt_scheduler.store import jobs
from edt_scheduler.store.database import in_batches

REASONS_SECONDS = 1.0
"""How many seconds one look may store reasons for waiting. The next look does the rest."""
AT_ONCE, TEXTS_AT_ONCE = 10, 200
"""The most jobs that one transaction writes, if it writes an event for each job, and if it writes none."""
MOST_TEXTS = 100
"""So many reasons of the same kind as before, in other words, one look writes at most: those of the next jobs first."""


@dataclass(frozen=True)
class Reason:
    """Why a job waits, as it is stored."""

    blocking: str
    reason: str
    need: int

    def is_of(self, explained: Explanation) -> bool:
        """Whether an explanation says the same."""
        return self.reason == explained.reason and self.blocking == explained.blocking and self.need == explained.need


@lru_cache(maxsize=20_000)
def stored(text: str | None) -> Reason | None:
    """The reason in the JSON text of a job's row; None: there is none."""
    told = parsed(text)
    return Reason(told["blocking"], told["reason"], told["need"]) if told else None


_News = tuple[Row[Any], Reason | None]
"""A job's row, and why the job waits; None: it does not wait."""


def reason_of(explanation: Explanation) -> Reason | None:
    """The reason in an explanation; None: the job does not wait."""
    if explanation.blocking is None:
        return None
    return Reason(explanation.blocking, explanation.reason, explanation.need)


def store_reasons(platform: Platform, snapshot: Snapshot, plan: Plan, done: Collection[str]) -> bool:
    """Store with each job why it waits, if the stored reason is another one; return whether anything was stored.

    Jobs with a new kind of obstacle come first. After REASONS_SECONDS the next look does the rest.

    Args:
        platform: database, notifications and settings.
        snapshot: what was planned.
        plan: the plan.
        done: jobs whose reason is stored already.
    """
    obstacles: list[_News] = []
    texts: list[tuple[int, _News]] = []
    for name, explained in plan.explain.items():
        row = snapshot.jobs[name]
        before = stored(row.waiting)
        said = explained.blocking is None if before is None else before.is_of(explained)
        if said or name in done:
            continue
        after = reason_of(explained)
        if before is not None and after is not None and before.blocking == after.blocking:
            texts.append((explained.rank, (row, after)))
        else:
            obstacles.append((row, after))
    texts.sort(key=lambda each: each[0])
    ends = time.monotonic() + REASONS_SECONDS
    written = _written(platform, obstacles, AT_ONCE, ends)
    return written + _written(platform, [news for _, news in texts[:MOST_TEXTS]], TEXTS_AT_ONCE, ends) > 0


def _written(platform: Platform, news: Sequence[_News], most: int, ends: float) -> int:
    """Store some reasons in each transaction, until the time is over; return how many."""
    left: Iterator[_News] = iter(news)

    def some() -> int:
        found = list(islice(left, most))
        if found:
            with platform.database.transaction(durable=False) as tx:
                explain(tx, found, platform.clock())
        return len(found)

    return in_batches(some, ends - time.monotonic()) if news else 0


def explain(tx: Connection, news: Sequence[_News], now: float) -> None:
    """Store why jobs wait, if they still wait. A new kind of obstacle becomes an event of the job's history. That a job
    is paused is in its history already.
    """
    told = {row.id: (parsed(row.waiting), vars(reason) if reason is not None else None) for row, reason in news}
    explained = jobs.explain(tx, told)
    for row, reason in news:
        before = stored(row.waiting)
        known = {Blocking.PAUSED, before.blocking if before is not None else None}
        if reason is not None and reason.blocking not in known and row.id in explained:
            jobs.record(tx, row.id, "waiting", reason.reason, vars(reason), now)
