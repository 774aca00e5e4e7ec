"""Changes to a job outside of planning: attempts end, and slots are asked back.

Operations (a report, a stop) and ``reconcile`` (a lost node) call these functions inside a write transaction. Two rules
keep the functions safe:

* A slot is free again only when its process was seen gone, or when no agent can have heard of the slot.
* A job moves on from an attempt only when the whole attempt is gone on all nodes that can be asked. What the attempt
  had on a lost node stays booked there and is fenced (``home.fence_files``). It is released when the node reports that
  it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind
from edt_scheduler.model.jobs import (
    LOSSES_APART_SECONDS,
    Raised,
    backoff_seconds,
    exec_id,
    state_after,
    why_not_again,
)
from edt_scheduler.model.progress import mean_rate, usual_rate
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.store import allocations, attempts, environs, jobs, metrics, outbox, resizes


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    kind: ExitKind
    message: str = ""
    code: int | None = None
    failed_step: int | None = None
    """The step at which the script raised."""


_BY_ITSELF = frozenset({ExitKind.LEFT, ExitKind.PULL_FAILED})
"""Ends after which a job starts again, and which are no losses if the platform has asked for them."""
_NOT_ELASTIC = (
    "it used one slot, though it may have more: its script trained in a loop of its own. "
    "FabricModel.train or openedt.loader make a training elastic"
)


def take_back(
    tx: Connection,
    job_id: int,
    fence: int,
    asked: Sequence[Row[Any]],
    cause: ResizeCause,
    detail: str,
    now: float,
    numbers: Mapping[str, float] | None = None,
) -> None:
    """Ask for open allocations of a job. If no agent has heard of an allocation, its slot is free at once.

    Args:
        tx: the write transaction.
        job_id: number of the job.
        fence: number of the attempt.
        asked: rows of the allocations; those that were asked back before are skipped.
        cause: why the job shrinks.
        detail: the cause in words, for people.
        now: the current time, in seconds since the epoch.
        numbers: with what this was decided, for the event.
    """
    asked = [row for row in asked if row.release_asked_at is None]
    if not asked:
        return
    held = [row for row in allocations.open_of(tx, job_id, fence) if row.release_asked_at is None]
    sizes = (len(held), len(held) - len(asked))
    concerned = {row.node_id for row in asked}
    resize_id = resizes.add(tx, job_id, fence, cause, detail, sizes, concerned, now, numbers)
    allocations.ask_back(tx, [row.id for row in asked], resize_id, now)
    for row in asked:
        if row.handed_at is None and allocations.close(tx, row.id, ExitKind.LEFT, now):
            resizes.mark(tx, resize_id, gone_at=now)
    _end_unknown(tx, job_id, fence, now)
    outbox.put_nodes(tx, concerned, now, resize_id)


def stop(tx: Connection, job: Row[Any], now: float, why: str | None = None) -> None:
    """Stop a job: end every process of the job. The job becomes KILLED when the last process is gone.

    Does nothing if the job's stop was requested before, or if the job is over.

    Args:
        tx: the write transaction.
        job: the job's row.
        now: the current time, in seconds since the epoch.
        why: why the platform stops it, as its message from then on; None: its user has asked for it.
    """
    if job.stop_requested_at is not None or JobState(job.state).terminal:
        return
    jobs.change(tx, job.id, stop_requested_at=now, stopped_for=why)
    environs.erase(tx, job.id)
    jobs.record(tx, job.id, "stop-requested", why or "stop requested", {}, now)
    attempt = attempts.live(tx, job.id)
    if attempt is None:
        conclude(tx, job, JobState.KILLED, why, why or "stopped while nothing of it ran", now)
    else:
        held = allocations.open_of(tx, job.id, attempt.fence)
        take_back(tx, job.id, attempt.fence, held, ResizeCause.STOP, why or "stopped by its user", now)
        outbox.put_nodes_of_attempt(tx, job.id, attempt.fence, now)
        settle(tx, job.id, now)
    outbox.put_scheduler(tx, now)


def end_attempt(tx: Connection, job_id: int, fence: int, end: End, now: float) -> None:
    """Record how an attempt ended, and ask its nodes to end what is left of it.

    Only the first call for an attempt counts.
    """
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
    """Move the job on if its attempt has ended and nothing of the attempt is left on any node that can be asked."""
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
        if attempt.gang and end.kind is ExitKind.SCRIPT_ERROR:
            end = _cause(end, supervisors)
    else:
        # Every supervisor left, and no report says why the whole attempt ended.
        end = End(ExitKind.STOPPED if stop_requested else ExitKind.LEFT)
    attempts.change(tx, job_id, attempt.fence, kind=end.kind, message=end.message or attempt.message, ended_at=now)
    if attempt.started_at is not None:
        jobs.change(tx, job_id, ran_seconds=job.ran_seconds + max(0.0, now - attempt.started_at))
    if any(row.ended_at is None for row in supervisors):
        # Processes of the attempt may still live on a lost node. They are fenced before the job's next attempt starts.
        jobs.change(tx, job_id, fence_due=attempt.fence + 1)
    _move_on(tx, job, attempt, end, now)
    outbox.put_scheduler(tx, now)


def _cause(end: End, supervisors: Sequence[Row[Any]]) -> End:
    """Why a gang's attempt really ended that seemed to fail by its script.

    When a node is lost, or lets its part go, the processes on other nodes lose their connections. Often it is known
    first that they fail.
    """
    reset = f"; elsewhere: {end.message}" if end.message else ""
    for row in supervisors:
        if row.ended_at is None:
            return End(ExitKind.LOST, f"node {row.name} was lost{reset}")
        if row.kind == ExitKind.LOST:
            return End(ExitKind.LOST, f"its supervisor on {row.name} was lost{reset}")
    left = [row.name for row in supervisors if row.kind == ExitKind.LEFT and row.handed_at is not None]
    return End(ExitKind.LEFT, f"node {left[0]} let it go{reset}") if left else end


def _move_on(tx: Connection, job: Row[Any], attempt: Row[Any], end: End, now: float) -> None:
    """Move the job to the state that follows from how its attempt ended. Nothing of the attempt is left."""
    stop_requested, kind, message = job.stop_requested_at is not None, end.kind, end.message
    values: dict[str, Any] = {"workers": 0}
    again, times = False, 0
    # An elastic attempt goes on without a part that left by itself. Of a gang the whole attempt is lost with it.
    lost = kind is ExitKind.LOST or (attempt.gang and attempt.kind is not None and kind in _BY_ITSELF)
    if lost:
        # A gang tells of no checkpoint that ended a series of losses, so the time between them does.
        ran = now - (attempt.started_at or now)
        times = values["losses"] = 1 if attempt.gang and ran > LOSSES_APART_SECONDS else job.losses + 1
    elif kind is ExitKind.SCRIPT_ERROR and not stop_requested:
        raised = Raised(message, end.failed_step)
        before = Raised(job.raised, job.raised_step) if job.raised is not None and not attempt.gang else None
        refusal = why_not_again(raised, before, job.restarts, job.max_restarts)
        again = refusal is None
        values |= {"raised": message, "raised_step": end.failed_step}
        if again:
            times = values["restarts"] = job.restarts + 1
        elif refusal:
            message = f"{message or 'the script failed'} ({refusal})"
    after = state_after(kind, stop_requested=stop_requested, again=again)
    one_slot = job.engines is None and not attempt.gang
    if after is JobState.FINISHED and one_slot and jobs.most_slots(job) > 1:
        message = message or _NOT_ELASTIC
    if after is JobState.FINISHED and _wanted_more(job, attempt):
        message = message or _too_late(job)
    wait = backoff_seconds(ExitKind.LOST if lost else kind, times)
    values["not_before"] = now + wait if wait else None
    # The message is about the last attempt; earlier losses are in the history. A user who stopped the job knows why.
    # So does one whose job the platform has stopped: it reads why.
    values["message"] = None if after is JobState.KILLED and kind is ExitKind.LEFT else message or None
    if after is JobState.KILLED and job.stopped_for is not None:
        values["message"] = job.stopped_for
    jobs.change(tx, job.id, **values)
    sentence, data = _sentence(after, kind, message), {"kind": kind, "wait_seconds": wait}
    if again:
        sentence = f"is started again ({times} of {job.max_restarts} restarts)" + (f": {message}" if message else "")
    if after.terminal:
        conclude(tx, job, after, values["message"], sentence, now, data)
    elif after is not JobState(job.state):
        jobs.move(tx, job.id, after, sentence, now, data)


def _wanted_more(job: Row[Any], attempt: Row[Any]) -> bool:
    """Whether the job was given more epochs than those with which its last attempt trained."""
    trained = attempt.wanted_epochs or job.epochs
    return trained is not None and job.wanted_epochs is not None and job.wanted_epochs > trained


def _too_late(job: Row[Any]) -> str:
    """About a job that was given epochs while its training ended."""
    more = f"`edt extend {exec_id(job.id)} --epochs {job.wanted_epochs}` goes on in a new job"
    return f"its training had ended before it could have {job.wanted_epochs} epochs: {more}"


def conclude(
    tx: Connection,
    job: Row[Any],
    after: JobState,
    message: str | None,
    sentence: str,
    now: float,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Move a job to a terminal state. No process of the job runs any more.

    The stored progress then shows the mean of the job's samples per second, not those of its last moment.

    Args:
        tx: the write transaction.
        job: the job's row.
        after: the terminal state.
        message: what people need to know of the end; None: nothing.
        sentence: the text of the event in the job's history.
        now: the current time, in seconds since the epoch.
        data: data of the event.
    """
    values: dict[str, Any] = {"message": message}
    job = jobs.get(tx, job.id)  # the caller may have read only a few of its columns
    rate = mean_rate(job.trained_samples, job.trained_seconds)
    if rate is None:
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
    """End supervisors that keep no slot and that no agent has heard of."""
    held = {row.node_id for row in allocations.open_of(tx, job_id, fence) if row.release_asked_at is None}
    for row in attempts.supervisors_of(tx, job_id, fence):
        if row.ended_at is None and row.handed_at is None and row.node_id not in held:
            for allocation in allocations.open_of(tx, job_id, fence, row.node_id):
                allocations.close(tx, allocation.id, ExitKind.LEFT, now)
            attempts.end_supervisor(tx, job_id, fence, row.node_id, ExitKind.LEFT, now)
