"""Losses of an attempt that goes on: engines that end, kills for memory, weights that do not reach a joining engine.

Call these functions inside the transaction that takes a report. A loss is recorded as a resize, so that people see its
cost. The slot is asked for again after a wait, which depends on the losses on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.model.jobs import (
    BACKOFF_SECONDS,
    LOSSES_APART_SECONDS,
    backoff_seconds,
    cap_seconds,
    losses_in_a_row,
)
from edt_scheduler.model.states import ResizeCause
from edt_scheduler.store import allocations, attempts, jobs, resizes

_PLANNED = frozenset({ExitKind.LEFT, ExitKind.STOPPED, ExitKind.FINISHED})
"""Ends that somebody wanted, though the scheduler did not ask for them: they are no losses."""


def note(
    tx: Connection,
    gone: Sequence[Row[Any]],
    detail: str,
    now: float,
    data: Mapping[str, Any] | None = None,
    *,
    kind: ExitKind = ExitKind.LOST,
) -> None:
    """Record engines of one attempt that are gone although they were not asked back.

    A supervisor reports the end of a process, and the coordinator reports the change of the membership. The first of
    the two reports records the engine, the second changes nothing.

    Args:
        tx: the write transaction.
        gone: allocations of the engines, all of the same attempt.
        detail: what happened, in words.
        now: the current time, in seconds since the epoch.
        data: further data of the event.
        kind: how the engines ended. If they left in order, were stopped or had finished, nothing was lost with them.
    """
    gone = [row for row in gone if row.shrunk_by is None and row.release_asked_at is None]
    if not gone:
        return
    job_id, fence = gone[0].job_id, gone[0].fence
    held = sum(row.release_asked_at is None and row.shrunk_by is None for row in allocations.open_of(tx, job_id, fence))
    sizes = (held, held - len(gone))
    concerned = {row.node_id for row in gone}
    cause = ResizeCause.LEFT if kind in _PLANNED else ResizeCause.ENGINE_LOST
    details = {**(data or {}), "allocations": [row.id for row in gone]}
    resize_id = resizes.add(tx, job_id, fence, cause, detail, sizes, concerned, now, details)
    for row in gone:
        allocations.mark(tx, row.id, shrunk_by=resize_id)


def hold_back(tx: Connection, job_id: int, now: float) -> None:
    """Give the job no new slot before a back-off is over.

    The back-off grows with the number of losses in a row, and never shortens one that has begun.
    """
    since = now - len(BACKOFF_SECONDS) * LOSSES_APART_SECONDS
    times = allocations.unasked_ends(tx, job_id, since)
    wait = backoff_seconds(ExitKind.LOST, losses_in_a_row(times))
    job = jobs.get(tx, job_id)
    jobs.change(tx, job_id, not_before=max(job.not_before or 0.0, now + wait))


def count_oom(tx: Connection, job_id: int, fence: int) -> int:
    """Count a kill for memory; return how many kills for memory the job has had."""
    number = int(jobs.get(tx, job_id).ooms) + 1
    jobs.change(tx, job_id, ooms=number)
    attempts.change(tx, job_id, fence, oom=True)
    return number


def cap(tx: Connection, job_id: int, fence: int, now: float) -> None:
    """Limit the job to its present size for some time, because a joining engine could not get the weights."""
    held = sum(row.release_asked_at is None for row in allocations.open_of(tx, job_id, fence))
    failures = int(jobs.get(tx, job_id).pull_failures) + 1
    size, seconds = max(1, held), cap_seconds(failures)
    jobs.change(tx, job_id, pull_failures=failures, cap=size, cap_until=now + seconds)
    message = (
        f"a joining engine could not get the weights and gave its slot back: at most {size} "
        f"slot{'s' if size > 1 else ''} for the next {seconds} s"
    )
    jobs.record(tx, job_id, "capped", message, {"slots": size, "seconds": seconds, "failures": failures}, now)


def weights_came(tx: Connection, job: Row[Any]) -> None:
    """Forget the job's earlier pull failures, because a joining engine got the weights.

    A cap stays until its time is over.
    """
    if job.pull_failures:
        jobs.change(tx, job.id, pull_failures=0)
