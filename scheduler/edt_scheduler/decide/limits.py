"""Jobs that end by a rule: their time limit is over, or a job that had to come before them has failed.

Only jobs that wait for their first start depend on others. What a time limit counts is ``jobs.ran_seconds``, the time
of all attempts that have ended, and the time since the present one has started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection

from edt_scheduler.attempts import lifecycle
from edt_scheduler.decide.reading import Rows
from edt_scheduler.decide.snapshot import Snapshot
from edt_scheduler.model.jobs import exec_id
from edt_scheduler.model.states import JobState
from edt_scheduler.model.texts import parsed
from edt_scheduler.plan.state import Phase
from edt_scheduler.store import attempts, jobs

AT_ONCE = 10
"""So many jobs end in one transaction; the next look ends others."""


@dataclass(frozen=True)
class Due:
    """A job that has to end."""

    number: int
    why: str
    failed: bool
    """Whether it ends as ERROR, since it can never start; else it is stopped."""


def due(snapshot: Snapshot, rows: Rows, now: float) -> list[Due]:
    """The jobs that have to end now, at most AT_ONCE."""
    return list(islice(_due(snapshot, rows, now), AT_ONCE))


def _due(snapshot: Snapshot, rows: Rows, now: float) -> Iterator[Due]:
    for job in snapshot.state.jobs:
        if job.time_limit is not None and job.time_limit <= 0 and job.phase is not Phase.ENDING:
            row = snapshot.jobs[job.id]
            yield Due(row.id, f"stopped after its time limit of {row.time_limit:g} s", failed=False)
    if not rows.others:
        return
    bad = {number: state for number, state in rows.others.items() if state in {JobState.ERROR, JobState.KILLED}}
    for number, row in rows.jobs.items():
        if bad and row.after != "[]" and not row.fence:
            ended = next((before for before in parsed(row.after) if before in bad), None)
            if ended is not None:
                yield Due(number, f"{exec_id(ended)}, after which it had to start, is {bad[ended]}", failed=True)


def end(tx: Connection, each: Due, now: float) -> None:
    """Stop a job that has to end, or end one that has not started. One that is over or being stopped stays as it is."""
    job = jobs.get(tx, each.number)
    if JobState(job.state).terminal or job.stop_requested_at is not None:
        return
    if not each.failed:
        lifecycle.stop(tx, job, now, each.why)
    elif attempts.live(tx, job.id) is None:
        lifecycle.conclude(tx, job, JobState.ERROR, each.why, each.why, now)
