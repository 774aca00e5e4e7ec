"""What is lost unasked while its attempt goes on: engines, memory, weights that did not come.

Called inside the transaction that takes a report. A loss is a resize like any other, so that its cost is seen; the
slot is asked for again after a wait that follows from the losses on record.
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


def note(
    tx: Connection,
    gone: Sequence[Row[Any]],
    detail: str,
    now: float,
    data: Mapping[str, Any] | None = None,
    *,
    kind: ExitKind = ExitKind.LOST,
) -> None:
    """Record that these engines of one attempt, none of them asked back, are gone. Each is recorded once, whoever
    tells first: its supervisor, which sees the process, or the coordinator, which sees the group. Where they have left
    in order (``kind``), nothing was lost with them."""
    gone = [row for row in gone if row.shrunk_by is None and row.release_asked_at is None]
    if not gone:
        return
    job_id, fence = gone[0].job_id, gone[0].fence
    held = sum(row.release_asked_at is None and row.shrunk_by is None for row in allocations.open_of(tx, job_id, fence))
    sizes = (held, held - len(gone))
    concerned = {row.node_id for row in gone}
    cause = ResizeCause.LEFT if kind is ExitKind.LEFT else ResizeCause.ENGINE_LOST
    details = {**(data or {}), "allocations": [row.id for row in gone]}
    resize_id = resizes.add(tx, job_id, fence, cause, detail, sizes, concerned, now, details)
    for row in gone:
        allocations.mark(tx, row.id, shrunk_by=resize_id)


def hold_back(tx: Connection, job_id: int, now: float) -> None:
    """No new slot for a while, by how many of its engines were lost lately; a longer wait that is on stays."""
    since = now - len(BACKOFF_SECONDS) * LOSSES_APART_SECONDS
    times = allocations.unasked_ends(tx, job_id, since)
    wait = backoff_seconds(ExitKind.LOST, losses_in_a_row(times))
    job = jobs.get(tx, job_id)
    jobs.change(tx, job_id, not_before=max(job.not_before or 0.0, now + wait))


def count_oom(tx: Connection, job_id: int, fence: int) -> int:
    """Something of the attempt was killed for memory; how often that has happened to the job."""
    number = int(jobs.get(tx, job_id).ooms) + 1
    jobs.change(tx, job_id, ooms=number)
    attempts.change(tx, job_id, fence, oom=True)
    return number


def cap(tx: Connection, job_id: int, fence: int, now: float) -> None:
    """A joining engine could not get the weights: for a while the job stays as large as it is."""
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
    """A joining engine got them: the next failure is the first again. A cap that is on runs out by itself."""
    if job.pull_failures:
        jobs.change(tx, job.id, pull_failures=0)
