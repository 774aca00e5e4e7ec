"""What each kind of report changes in the database. Call it inside the transaction that takes the report.

Reports have two kinds of effects, and the fence separates them. What a report says about processes (an engine that is
gone, a supervisor that has ended) is true for every fence, and frees the slots that were held. What a report says about
the job (its state, E, progress) counts only while its attempt is the job's live one. A late report about the job
changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import BODIES, ExitKind, Report, ReportKind, fit, fit_time
from edt_scheduler.attempts import gangs, head_node, lifecycle, losses, supervisors
from edt_scheduler.attempts.lifecycle import End
from edt_scheduler.model.exactness import cut, why_not_exact, why_they_differ
from edt_scheduler.model.jobs import OOM_LIMIT, OUT_OF_MEMORY
from edt_scheduler.model.progress import PACE, with_report
from edt_scheduler.model.states import JobState
from edt_scheduler.store import allocations, attempts, jobs, metrics, outbox, resizes

log = logging.getLogger("edt.reports")

NEVER_SKIPPED = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED})
"""Kinds of reports that give slots back: without these reports a slot would stay booked for ever."""
CHECKPOINTS_APART_SECONDS = 600.0
"""If no other event comes between checkpoints, the job's history gets one checkpoint event in this many seconds."""
_CLOCKS_APART_SECONDS = 86_400.0
"""A report's time that is more than this many seconds ahead of this machine's clock is replaced by the present time."""


@dataclass(frozen=True)
class _Context:
    """One report and the rows that it is about, inside the transaction that takes it."""

    tx: Connection
    node: Row[Any]
    job: Row[Any]
    attempt: Row[Any]
    report: Report
    now: float

    @property
    def body(self) -> Mapping[str, Any]:
        """The report's body, fitted to its kind. Required fields have their type, and other fields may be None."""
        return self.report.body

    @property
    def current(self) -> bool:
        """Whether the report's attempt is the job's live one and has not ended."""
        return self.attempt.ended_at is None and self.attempt.kind is None

    @property
    def kind(self) -> ExitKind:
        """How the engine or the attempt ended. A missing or unknown kind counts as LOST: the job then tries again."""
        return ExitKind(self.body.get("kind", ExitKind.LOST))

    def end(self) -> End:
        """How the engine or the part of the attempt ended."""
        end = End(self.kind, self.text("message"), self.body.get("code"), self.body.get("failed_step"))
        return gangs.blamed(end) if self.attempt.gang and self.body.get("oom") else end

    def text(self, key: str) -> str:
        """The body's text under ``key``; empty: there is none."""
        return self.body.get(key) or ""

    def own(self) -> Row[Any] | None:
        """The allocation that the body names, if it belongs to this supervisor."""
        return allocations.find(self.tx, self.body["allocation"], self.job.id, self.report.fence, self.node.id)

    def of_attempt(self, number: int) -> Row[Any] | None:
        """An allocation of the attempt, on any node, because a coordinator reports about all engines."""
        return allocations.find(self.tx, number, self.job.id, self.report.fence)

    def named(self, key: str) -> list[Row[Any]]:
        """The allocations of the attempt that the body lists under ``key``."""
        found = [self.of_attempt(number) for number in self.body.get(key) or ()]
        return [row for row in found if row is not None]

    def record(self, message: str, data: Mapping[str, Any]) -> None:
        """Add an event of the report's kind to the job's history."""
        jobs.record(self.tx, self.job.id, self.report.kind, message, data, self.now)


def take(tx: Connection, node: Row[Any], job_id: int, report: Report, now: float) -> None:
    """Apply one report.

    A report is never refused for odd content. Only the fields that ``edt_contract.reports.BODIES`` knows count, and a
    report that lacks a field that its kind needs changes nothing.

    Args:
        tx: the transaction that takes the report.
        node: row of the node whose supervisor wrote the report.
        job_id: number of the job.
        report: the report; its number must be the next of its supervisor.
        now: the current time, in seconds since the epoch.
    """
    fitted = fit(report.kind, report.body)
    if fitted.faults:
        log.debug("%s/%d: report %d: %s", report.job, report.fence, report.seq, "; ".join(fitted.faults))
    if fitted.body is None:
        return
    when = fit_time(report.time, now)
    report = replace(report, body=fitted.body, time=when if when < now + _CLOCKS_APART_SECONDS else now)
    context = _Context(tx, node, jobs.get(tx, job_id), attempts.get(tx, job_id, report.fence), report, now)
    if context.attempt.gang and BODIES[report.kind].of_training:
        log.info("%s/%d: %s ignored: the job is a gang", report.job, report.fence, report.kind)
    elif report.kind in _OF_PROCESSES:
        _OF_PROCESSES[report.kind](context)
    elif context.current:
        _OF_THE_JOB[report.kind](context)
    else:
        log.info("%s/%d: late %s ignored", report.job, report.fence, report.kind)


# Reports about processes: true for every fence.


def _engine_started(context: _Context) -> None:
    allocation = context.own()
    if allocation is not None:
        if context.attempt.gang and context.current:
            gangs.process_started(context.tx, allocation)
        allocations.mark(context.tx, allocation.id, started_at=context.report.time)
        resizes.mark(context.tx, allocation.grown_by, started_at=context.report.time)


def _engine_joined(context: _Context) -> None:
    allocation = context.of_attempt(context.body["allocation"])
    if allocation is not None:
        allocations.mark(context.tx, allocation.id, joined_at=context.report.time)
        values = {"generation": context.body.get("generation"), "step": context.body.get("step")}
        resizes.mark(context.tx, allocation.grown_by, joined_at=context.report.time, **values)
        if context.current and resizes.get(context.tx, allocation.grown_by).from_slots:
            losses.weights_came(context.tx, context.job)
        if context.current and allocation.joined_at is None:
            _joined(context, allocation.id, values["step"])


def _joined(context: _Context, allocation: int, step: int | None) -> None:
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


def _engine_counted(context: _Context) -> None:
    allocation = context.of_attempt(context.body["allocation"])
    if allocation is not None:
        allocations.mark(context.tx, allocation.id, counted_at=context.report.time)
        resizes.mark(context.tx, allocation.grown_by, first_step_at=context.report.time)


# Reports of ends: they free slots for every fence. Consequences for the job follow only from its live attempt.


def _engine_gone(context: _Context) -> None:
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


def _attempt_ended(context: _Context) -> None:
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
    if context.attempt.ended_at is None:
        lifecycle.settle(tx, job_id, context.now)


def _elastic_part_ended(context: _Context, end: End, whole: bool) -> None:
    """A part of an elastic job's live attempt has ended: the attempt ends with it, or goes on without it."""
    tx, job_id, fence = context.tx, context.job.id, context.report.fence
    if context.body.get("digest"):
        jobs.change(tx, job_id, digest=context.text("digest"))
    if context.kind is ExitKind.FINISHED and (step := context.body.get("step")) is not None:
        # On a full disk reports of progress may be dropped, but this report never is.
        known = context.job.progress.get("step") or 0
        jobs.change(tx, job_id, progress={**context.job.progress, "step": max(known, step)})
    if not context.attempt.oom and _is_second_oom(context):
        end, whole = _out_of_memory(context), True
    if whole:
        lifecycle.end_attempt(tx, job_id, fence, end, context.now)
    else:
        why = f"its supervisor on {context.node.name} is gone"
        supervisors.carry_on(tx, context.attempt, context.node, end, why, context.now)


def _is_whole(context: _Context) -> bool:
    """Whether this report means the end of the whole attempt, not only of its part on this node.

    Only the node that hosts the coordinator decides this. But a report that the script came to its end counts from any
    node. If the body has no field ``whole``, the supervisor wrote the report and not the agent, since an agent cannot
    know how a script ended.
    """
    hosts = context.node.id in {context.attempt.head_node_id, context.attempt.coordinator_node_id}
    if "whole" not in context.body:
        return hosts and context.kind in {ExitKind.FINISHED, ExitKind.SCRIPT_ERROR}
    return context.body["whole"] is True and (hosts or context.kind is ExitKind.FINISHED)


def _is_second_oom(context: _Context) -> bool:
    """Count a kill for memory; return whether it counts as the script's fault.

    The first kill may be the fault of another process, the second (OOM_LIMIT) counts as the script's fault.
    """
    if not context.body.get("oom"):
        return False
    return losses.count_oom(context.tx, context.job.id, context.report.fence) >= OOM_LIMIT


def _out_of_memory(context: _Context) -> End:
    return End(ExitKind.SCRIPT_ERROR, OUT_OF_MEMORY, context.body.get("code"))


def _describe_end(context: _Context, engine: int) -> str:
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


# Reports about the job: they count only from its live attempt.


def _attempt_started(context: _Context) -> None:
    """The attempt's first supervisor has started. Later starts, on other nodes or a new head node, change nothing."""
    if context.attempt.started_at is None:
        attempts.change(context.tx, context.job.id, context.report.fence, started_at=context.now)
    if JobState(context.job.state) is JobState.PENDING:
        fence = context.report.fence
        gang = context.attempt.gang
        where = gangs.runs_on(context.tx, context.job.id, fence) if gang else context.node.name
        message = f"attempt {fence} runs on {where}"
        jobs.change(context.tx, context.job.id, message=None)  # the end of the attempt before is in the history
        jobs.move(context.tx, context.job.id, JobState.RUNNING, message, context.now)


def _coordinator_at(context: _Context) -> None:
    address = context.body["address"]
    head_node.listens(context.tx, context.job.id, context.report.fence, context.node.id, address, context.now)


def _ports_reserved(context: _Context) -> None:
    if context.attempt.gang:
        gangs.reserve(context.tx, context.attempt, context.node, context.body["ports"], context.now)


def _restarted(context: _Context) -> None:
    what, why, count = context.text("what") or "a part", context.text("why"), context.body.get("count")
    times = f", time {count}" if count is not None and count > 1 else ""
    context.record(f"the {what} was started again{times}" + (f": {why}" if why else ""), dict(context.body))


def _engines_known(context: _Context) -> None:
    engines = context.body["engines"]
    values = {key: context.body.get(key) for key in ("engines", "steps_total", "epochs")}
    if (context.job.engines, context.job.steps_total, context.job.epochs) == tuple(values.values()):
        return
    jobs.change(context.tx, context.job.id, engines_at=context.now, **values)
    if context.body.get("follows_engines"):
        context.record(f"its batch follows its engines, of which an epoch can use {engines}", values)
    else:
        context.record(f"one step has {engines} micro-batches: at most {engines} engines", values)
    outbox.put_scheduler(context.tx, context.now)


def _resized(context: _Context) -> None:
    """The engines form another membership.

    The coordinator may report engines that left or died before their supervisor does.
    """
    workers = context.body.get("workers")
    if workers is not None:
        jobs.change(context.tx, context.job.id, workers=workers)
    for key, how, kind in (("left", "left unasked", ExitKind.LEFT), ("lost", "was lost", ExitKind.LOST)):
        for row in context.named(key):
            if row.released_at is None:
                losses.note(context.tx, [row], f"engine {row.id} {how}", context.now, kind=kind)
    shrunk = [row.shrunk_by for key in ("left", "lost") for row in context.named(key) if row.shrunk_by is not None]
    resizes.switched(
        context.tx,
        [*(row.grown_by for row in context.named("joined")), *shrunk],
        generation=context.body.get("generation"),
        step=context.body.get("step"),
        workers=workers,
        pause=context.body.get("pause_seconds"),
        recomputed=context.body.get("recomputed"),
    )


def _progress(context: _Context) -> None:
    fence, time, body = context.report.fence, context.report.time, dict(context.body)
    pace = with_report(context.job.progress.get(PACE), body, fence, time)
    values: dict[str, Any] = {"progress": {**body, PACE: pace}}
    metrics.add(context.tx, context.job.id, fence, time, body)
    if (workers := context.body.get("workers")) is not None:
        values["workers"] = workers
    jobs.change(context.tx, context.job.id, **values)


def _checkpointed(context: _Context) -> None:
    """A new checkpoint ends a series of losses, because the next attempt can go on from this checkpoint."""
    step = context.body.get("step")
    if step is None:
        return
    values: dict[str, Any] = {"checkpoint_step": step}
    if context.job.checkpoint_step is None or step > context.job.checkpoint_step:
        values["losses"] = 0
    jobs.change(context.tx, context.job.id, **values)
    before = jobs.newest_event(context.tx, context.job.id)
    same = before is not None and (before.kind, before.fence) == (context.report.kind, context.report.fence)
    if before is None or not same or context.now > before.time + CHECKPOINTS_APART_SECONDS:
        context.record(f"checkpoint at step {step}", {"step": step})


def _guarantee_ended(context: _Context) -> None:
    """Store why the result is no longer exact, and record an event.

    The first reason stays, unless it says only that the engines differ. A reason that is stored already is not recorded
    again.
    """
    engine, step = context.body.get("engine"), context.body.get("step")
    texts = {key: cut(context.text(key)) for key in ("what", "why", "difference")}
    reason = why_not_exact(texts["what"], texts["why"], engine, step, texts["difference"])
    known = context.job.inexact
    if known == reason:
        return
    if known is None or (step is not None and known == why_they_differ(step)):
        jobs.change(context.tx, context.job.id, inexact=reason)
    context.record(f"the result is no longer exact: {reason}", {**texts, "engine": engine, "step": step})


def _replicas_compared(context: _Context) -> None:
    """Engines were compared.

    If all are equal, only the job's row is changed: an event for each comparison would be too many. If they differ, the
    first such report is an event.
    """
    step, engines = context.body["step"], context.body["engines"]
    if context.body["equal"]:
        of_join = context.body.get("reason") == "join"
        jobs.change(context.tx, context.job.id, **asdict(jobs.compared(context.job).equal(step, of_join=of_join)))
    elif context.job.inexact is None:
        reason = why_they_differ(step)
        jobs.change(context.tx, context.job.id, inexact=reason)
        data = {"step": step, "engines": engines, "reason": cut(context.text("reason"))}
        context.record(f"{engines} engines were compared: {reason}", data)


def _storage(context: _Context) -> None:
    """A folder of the job cannot be written, or can be written again. The training goes on."""
    place, error, seconds = context.text("place") or "a place", context.text("error"), context.body.get("seconds")
    if error:
        context.record(
            f"{place}: cannot be written on {context.node.name} ({error}); the training goes on", dict(context.body)
        )
        return
    after = f", after {seconds:.0f} s" if seconds is not None else ""
    given_up = context.body.get("given_up")
    missing = f"; {given_up} reports of progress are missing" if given_up else ""
    context.record(f"{place}: can be written again on {context.node.name}{after}{missing}", dict(context.body))


def _pull_failed(context: _Context) -> None:
    count, limit = context.body.get("count"), context.body.get("limit")
    context.record(f"a joining engine did not get the weights in time ({count} of {limit})", dict(context.body))


def _left_out(context: _Context) -> None:
    """The agent left out some reports of the job, because they came too often or had bad content."""
    counts = context.body.get("counts") or {}
    kinds = ", ".join(f"{number:.0f} of kind {kind}" for kind, number in counts.items() if number)
    if kinds:
        context.record(f"reports were left out, {kinds}: {context.text('why')}", dict(context.body))


_OF_PROCESSES: Mapping[ReportKind, Callable[[_Context], None]] = {
    ReportKind.ENGINE_STARTED: _engine_started,
    ReportKind.ENGINE_JOINED: _engine_joined,
    ReportKind.ENGINE_COUNTED: _engine_counted,
    ReportKind.ENGINE_GONE: _engine_gone,
    ReportKind.ATTEMPT_ENDED: _attempt_ended,
}
_OF_THE_JOB: Mapping[ReportKind, Callable[[_Context], None]] = {
    ReportKind.ATTEMPT_STARTED: _attempt_started,
    ReportKind.COORDINATOR_AT: _coordinator_at,
    ReportKind.PORTS_RESERVED: _ports_reserved,
    ReportKind.ENGINES_KNOWN: _engines_known,
    ReportKind.PULL_FAILED: _pull_failed,
    ReportKind.RESIZED: _resized,
    ReportKind.PROGRESS: _progress,
    ReportKind.CHECKPOINTED: _checkpointed,
    ReportKind.GUARANTEE_ENDED: _guarantee_ended,
    ReportKind.REPLICAS_COMPARED: _replicas_compared,
    ReportKind.STORAGE: _storage,
    ReportKind.RESTARTED: _restarted,
    ReportKind.REPORTS_LEFT_OUT: _left_out,
}
