"""What reports about processes change: an engine has started or is gone, or a supervisor has ended.

What they say is true for every fence, and frees slots. Consequences for the job follow only from its live attempt.
"""

from __future__ import annotations

from dataclasses import asdict

from edt_contract.reports import ExitKind
from edt_scheduler.attempts import gangs, head_node, lifecycle, losses, supervisors
from edt_scheduler.attempts.lifecycle import End
from edt_scheduler.ingest.context import Context
from edt_scheduler.model.jobs import OOM_LIMIT, OUT_OF_MEMORY
from edt_scheduler.model.progress import PACE
from edt_scheduler.store import allocations, attempts, jobs, outbox, resizes


def engine_started(context: Context) -> None:
    """The process of an engine, or of a rank of a gang, was started."""
    allocation = context.own()
    if allocation is not None:
        if context.attempt.gang and context.current:
            gangs.process_started(context.tx, allocation)
        allocations.mark(context.tx, allocation.id, started_at=context.report.time)
        resizes.mark(context.tx, allocation.grown_by, started_at=context.report.time)


def engine_joined(context: Context) -> None:
    """An engine has the weights."""
    allocation = context.of_attempt(context.body["allocation"])
    if allocation is not None:
        allocations.mark(context.tx, allocation.id, joined_at=context.report.time)
        values = {"generation": context.body.get("generation"), "step": context.body.get("step")}
        resizes.mark(context.tx, allocation.grown_by, joined_at=context.report.time, **values)
        if context.current and resizes.get(context.tx, allocation.grown_by).from_slots:
            losses.weights_came(context.tx, context.job)
        if context.current and allocation.joined_at is None:
            _joined(context, allocation.id, values["step"])
        if allocations.any_until_joined(context.tx, context.job.id, context.report.fence):
            outbox.put_scheduler(context.tx, context.now)


def _joined(context: Context, allocation: int, step: int | None) -> None:
    """Note where an engine has its state from.

    The first engine of an attempt begins at ``step``, from a checkpoint. All others get their state from another
    engine.
    """
    known = jobs.compared(context.job)
    if allocations.others_joined(context.tx, context.job.id, context.report.fence, allocation):
        known = known.joined(step if step is not None else known.compared_step or 0)
    elif step is not None:
        known = known.resumed(step)
    jobs.change(context.tx, context.job.id, **asdict(known))


def engine_counted(context: Context) -> None:
    """An engine has taken part in its first step."""
    allocation = context.of_attempt(context.body["allocation"])
    if allocation is not None:
        allocations.mark(context.tx, allocation.id, counted_at=context.report.time)
        resizes.mark(context.tx, allocation.grown_by, first_step_at=context.report.time)


# Reports of ends: they free slots for every fence. Consequences for the job follow only from its live attempt.


def engine_gone(context: Context) -> None:
    """An engine's process was seen gone. If the engine was not asked back, an elastic attempt goes on without it."""
    tx, kind, row = context.tx, context.kind, context.own()
    if row is None or row.released_at is not None:
        return
    unasked = row.release_asked_at is None and kind is not ExitKind.FINISHED
    lost = context.current and unasked and not context.attempt.gang
    if lost:
        details = {key: context.body.get(key) for key in ("kind", "code", "signal", "oom", "message")}
        losses.note(tx, [row], _describe_end(context, row.id), context.now, details, kind=kind)
    allocations.close(tx, row.id, kind, context.now)
    closed = allocations.find(tx, row.id, context.job.id, context.report.fence)
    resizes.mark(tx, closed.shrunk_by if closed else None, gone_at=context.report.time)
    outbox.put_scheduler(tx, context.now)
    if not context.current:
        return
    if context.attempt.gang:
        gangs.process_gone(tx, context.attempt, row, context.end(), context.now)
        return
    if kind is ExitKind.FINISHED:
        attempts.change(tx, context.job.id, context.report.fence, trained_at=context.now)
        return
    if kind is ExitKind.PULL_FAILED:
        losses.cap(tx, context.job.id, context.report.fence, context.now)
    elif lost and kind is not ExitKind.LEFT:
        losses.hold_back(tx, context.job.id, context.now)
    if lost and _is_second_oom(context):
        lifecycle.end_attempt(tx, context.job.id, context.report.fence, _out_of_memory(context), context.now)
        return
    why = f"no engine is left on {context.node.name}"
    head_node.keep(tx, context.job.id, context.report.fence, why, context.now)
    outbox.put_nodes(tx, [context.node.id], context.now)


def attempt_ended(context: Context) -> None:
    """The last report of a supervisor, from itself or its agent. Its child processes died with it, so none are left."""
    tx, job_id = context.tx, context.job.id
    whole = _is_whole(context)
    end = context.end()
    supervisors.close(tx, context.attempt, context.node, end, context.now, context.report.time, whole)
    supervisors.complete_reports_of(tx, context.attempt, context.node, context.now)
    outbox.put_nodes(tx, [context.node.id], context.now)
    outbox.put_scheduler(tx, context.now)
    if context.current and context.attempt.gang:
        gangs.part_ended(tx, context.attempt, end, context.now, whole)
    elif context.current:
        _elastic_part_ended(context, end, whole)
    elif context.attempt.gang:
        gangs.tell_why(tx, context.attempt, end)
    if context.attempt.ended_at is None:
        lifecycle.settle(tx, job_id, context.now)


def _elastic_part_ended(context: Context, end: End, whole: bool) -> None:
    """A part of an elastic job's live attempt has ended: the attempt ends with it, or goes on without it."""
    tx, job_id, fence = context.tx, context.job.id, context.report.fence
    if context.body.get("digest"):
        jobs.change(tx, job_id, digest=context.text("digest"))
    if (step := _last_step(context)) is not None:
        jobs.change(tx, job_id, progress={**context.job.progress, "step": step})
    if not context.attempt.oom and _is_second_oom(context):
        end, whole = _out_of_memory(context), True
    if whole:
        lifecycle.end_attempt(tx, job_id, fence, end, context.now)
    else:
        why = f"its supervisor on {context.node.name} is gone"
        supervisors.carry_on(tx, context.attempt, context.node, end, why, context.now)


def _last_step(context: Context) -> int | None:
    """The number of training steps with which the attempt ended; None: its reports of progress say it.

    These come twice a second, and on a full disk they may be dropped, but the report of the end never is.
    """
    named = {ExitKind.FINISHED: "step", ExitKind.SCRIPT_ERROR: "failed_step"}.get(context.kind)
    step = context.body.get(named) if named is not None else None
    if step is None:
        return None
    progress = context.job.progress
    told = (progress.get(PACE) or {}).get("fence") == context.report.fence  # by this attempt, not by one before
    return max(step, progress.get("step") or 0) if told else int(step)


def _is_whole(context: Context) -> bool:
    """Whether this report means the end of the whole attempt, not only of its part on this node.

    Only the node that hosts the coordinator decides this. But a report that the script came to its end counts from any
    node. If the body has no field ``whole``, the supervisor wrote the report and not the agent, since an agent cannot
    know how a script ended.
    """
    hosts = context.node.id in {context.attempt.head_node_id, context.attempt.coordinator_node_id}
    if "whole" not in context.body:
        return hosts and context.kind in {ExitKind.FINISHED, ExitKind.SCRIPT_ERROR}
    return context.body["whole"] is True and (hosts or context.kind is ExitKind.FINISHED)


def _is_second_oom(context: Context) -> bool:
    """Count a kill for memory; return whether it counts as the script's fault.

    The first kill may be the fault of another process, the second (OOM_LIMIT) counts as the script's fault.
    """
    if not context.body.get("oom"):
        return False
    return losses.count_oom(context.tx, context.job.id, context.report.fence) >= OOM_LIMIT


def _out_of_memory(context: Context) -> End:
    return End(ExitKind.SCRIPT_ERROR, OUT_OF_MEMORY, context.body.get("code"))


def _describe_end(context: Context, engine: int) -> str:
    """What became of an engine, in words."""
    who = f"engine {engine} on {context.node.name}"
    message, number = context.text("message"), context.body.get("signal")
    match context.kind:
        case ExitKind.PULL_FAILED:
            return f"{who} could not get the weights"
        case ExitKind.SCRIPT_ERROR:
            return f"{who} raised" + (f": {message}" if message else "")
        case ExitKind.LEFT:
            return f"{who} left: its node let it go"
    if context.body.get("oom"):
        return f"{who} was killed for memory"
    return f"{who} was lost" + (f" by signal {number}" if number else "") + (f": {message}" if message else "")
