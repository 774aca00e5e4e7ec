"""What happens to a job between its decisions: attempts that end, slots that are asked back.

Called inside somebody's write transaction, by operations (a report, a stop) and by ``reconcile`` (a lost node).
Two rules keep it safe. A slot is given back only when its process was seen gone, or when no agent can ever
have heard of it. And a job moves on from an attempt only when all of that attempt is gone, as far as its nodes
can be asked: a lost node's part stays booked there, fenced (``fences``), until the node comes back and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.model.jobs import Raised, backoff_seconds, state_after, why_not_again
from edt_scheduler.model.progress import usual_rate
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.store import allocations, attempts, environs, jobs, metrics, outbox, resizes


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    kind: ExitKind
    message: str = ""
    code: int | None = None
    failed_step: int | None = None
    """At which the script raised."""


_NOT_ELASTIC = (
    "it used one slot, though it may have more: its script trained in a loop of its own. "
    "FabricModel.train or runai.elastic make a training elastic"
)


def take_back(
    tx: Connection,
    job_id: int,
    fence: int,
    asked: Sequence[Row[Any]],
    cause: ResizeCause,
    detail: str,
    now: float,
) -> None:
    """Ask for these open allocations of a job. What no agent has heard of is free at once."""
    asked = [row for row in asked if row.release_asked_at is None]
    if not asked:
        return
    held = [row for row in allocations.open_of(tx, job_id, fence) if row.release_asked_at is None]
    sizes = (len(held), len(held) - len(asked))
    concerned = {row.node_id for row in asked}
    resize_id = resizes.add(tx, job_id, fence, cause, detail, sizes, concerned, now)
    allocations.ask_back(tx, [row.id for row in asked], resize_id, now)
    for row in asked:
        if row.handed_at is None and allocations.close(tx, row.id, ExitKind.LEFT, now):
            resizes.mark(tx, resize_id, gone_at=now)
    _end_unknown(tx, job_id, fence, now)
    outbox.put_nodes(tx, concerned, now, resize_id)


def stop(tx: Connection, job: Row[Any], now: float) -> None:
    """Its user wants it gone. Whatever runs is killed; KILLED follows when the last process is gone."""
    if job.stop_requested_at is not None or JobState(job.state).terminal:
        return
    jobs.change(tx, job.id, stop_requested_at=now)
    environs.erase(tx, job.id)
    jobs.record(tx, job.id, "stop-requested", "stop requested", {}, now)
    attempt = attempts.live(tx, job.id)
    if attempt is None:
        conclude(tx, job, JobState.KILLED, None, "stopped while nothing of it ran", now)
    else:
        held = allocations.open_of(tx, job.id, attempt.fence)
        take_back(tx, job.id, attempt.fence, held, ResizeCause.STOP, "stopped by its user", now)
        outbox.put_nodes_of_attempt(tx, job.id, attempt.fence, now)
        settle(tx, job.id, now)
    outbox.put_scheduler(tx, now)


def end_attempt(tx: Connection, job_id: int, fence: int, end: End, now: float) -> None:
    """It is known how the attempt ended; what is left of it anywhere is to go. The first word stands."""
    attempt = attempts.get(tx, job_id, fence)
    if attempt.kind is not None:
        return
    values = {"kind": end.kind, "message": end.message, "code": end.code, "failed_step": end.failed_step}
    attempts.change(tx, job_id, fence, **values)
    message = f"attempt {fence} ended: {end.kind}" + (f", {end.message}" if end.message else "")
    jobs.record(tx, job_id, "attempt", message, {"kind": end.kind, "code": end.code}, now)
    allocations.ask_back(tx, [row.id for row in allocations.open_of(tx, job_id, fence)], None, now)
    outbox.put_nodes_of_attempt(tx, job_id, fence, now)
    settle(tx, job_id, now)


def settle(tx: Connection, job_id: int, now: float) -> None:
    """Move the job on if its attempt has ended and nothing of it is left on any node that can be asked."""
    attempt = attempts.live(tx, job_id)
    if attempt is None:
        return
    job = jobs.get(tx, job_id)
    stop_requested = job.stop_requested_at is not None
    if attempt.kind is not None or stop_requested:
        _end_unknown(tx, job_id, attempt.fence, now)
    supervisors = attempts.supervisors_of(tx, job_id, attempt.fence)
    if any(row.ended_at is None and row.lost_at is None for row in supervisors):
        return
    if attempt.kind is not None:
        end = End(ExitKind(attempt.kind), attempt.message or "", attempt.code, attempt.failed_step)
    else:
        # Every supervisor left and none of them said why the attempt as a whole ended.
        end = End(ExitKind.STOPPED if stop_requested else ExitKind.LEFT)
    attempts.change(tx, job_id, attempt.fence, kind=end.kind, ended_at=now)
    if any(row.ended_at is None for row in supervisors):
        # On a lost node something of it may still live: it is shut out before anything else of the job starts.
        jobs.change(tx, job_id, fence_due=attempt.fence + 1)
    _move_on(tx, job, end, now)
    outbox.put_scheduler(tx, now)


def _move_on(tx: Connection, job: Row[Any], end: End, now: float) -> None:
    """The attempt is over and gone; the exit's own rule says where the job goes."""
    stop_requested, kind, message = job.stop_requested_at is not None, end.kind, end.message
    values: dict[str, Any] = {"workers": 0}
    again, times = False, 0
    if kind is ExitKind.LOST:
        times = values["losses"] = job.losses + 1
    elif kind is ExitKind.SCRIPT_ERROR and not stop_requested:
        raised = Raised(message, end.failed_step)
        before = Raised(job.raised, job.raised_step) if job.raised is not None else None
        refusal = why_not_again(raised, before, job.restarts, job.max_restarts)
        again = refusal is None
        values |= {"raised": message, "raised_step": end.failed_step}
        if again:
            times = values["restarts"] = job.restarts + 1
        elif refusal:
            message = f"{message or 'the script failed'} ({refusal})"
    after = state_after(kind, stop_requested=stop_requested, again=again)
    if after is JobState.FINISHED and job.engines is None and job.num_worker * job.worker_device_num > 1:
        message = message or _NOT_ELASTIC
    wait = backoff_seconds(kind, times)
    values["not_before"] = now + wait if wait else None
    # Of the last attempt: what was lost before it is history. Who asked for the end knows why it came.
    values["message"] = None if after is JobState.KILLED and kind is ExitKind.LEFT else message or None
    jobs.change(tx, job.id, **values)
    sentence, data = _sentence(after, kind, message), {"kind": kind, "wait_seconds": wait}
    if after.terminal:
        conclude(tx, job, after, values["message"], sentence, now, data)
    elif after is not JobState(job.state):
        jobs.move(tx, job.id, after, sentence, now, data)


def conclude(
    tx: Connection,
    job: Row[Any],
    after: JobState,
    message: str | None,
    sentence: str,
    now: float,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Move a job of which nothing runs to a terminal state. ``message``: what people need to know of its end;
    ``sentence``: what its history says. In place of the rate of its last moment it tells its usual one."""
    values: dict[str, Any] = {"message": message}
    rate = usual_rate(metrics.rates(tx, job.id))
    if rate is not None:
        values["progress"] = {**job.progress, "samples_per_second": rate}
    jobs.change(tx, job.id, **values)
    jobs.move(tx, job.id, after, sentence, now, data)


def _sentence(after: JobState, kind: ExitKind, message: str) -> str:
    if after is JobState.FINISHED:
        return "finished"
    if after is JobState.KILLED:
        return "stopped, its last process is gone"
    if after is JobState.ERROR:
        return message or "the script failed"
    return f"attempt ended ({kind}), another follows" + (f": {message}" if message else "")


def _end_unknown(tx: Connection, job_id: int, fence: int, now: float) -> None:
    """End the supervisors that hold nothing any more, or never should have, and that no agent has heard of."""
    held = {row.node_id for row in allocations.open_of(tx, job_id, fence) if row.release_asked_at is None}
    for row in attempts.supervisors_of(tx, job_id, fence):
        if row.ended_at is None and row.handed_at is None and row.node_id not in held:
            for allocation in allocations.open_of(tx, job_id, fence, row.node_id):
                allocations.close(tx, allocation.id, ExitKind.LEFT, now)
            attempts.end_supervisor(tx, job_id, fence, row.node_id, ExitKind.LEFT, now)
