"""What each kind of report does to the truth. Called inside the transaction that takes it.

Two kinds of effects, told apart by the fence. What a report says of processes (an engine that is gone, a
supervisor that has ended) is true whatever the fence, and frees what it held. What it says of the job (its state, E,
progress) counts only while its attempt is the job's live one; a late report changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import ExitKind, Report, ReportKind, fit, fit_time
from edt_scheduler.attempts import head_node, lifecycle, losses, supervisors
from edt_scheduler.attempts.lifecycle import End
from edt_scheduler.model.exactness import cut, why_not_exact, why_they_differ
from edt_scheduler.model.jobs import OOM_LIMIT, OUT_OF_MEMORY
from edt_scheduler.model.progress import PACE, with_report
from edt_scheduler.model.states import JobState
from edt_scheduler.store import allocations, attempts, jobs, metrics, outbox, resizes

log = logging.getLogger("edt.reports")

NEVER_SKIPPED = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED})
"""Reports that give slots back: without them a slot would stay booked for ever."""
CHECKPOINTS_APART_SECONDS = 600.0
"""Of checkpoints that nothing else comes between, one in this time stands in the job's history."""
_CLOCKS_APART_SECONDS = 86_400.0
"""A time that lies further ahead of ours is no time."""


@dataclass(frozen=True)
class _Context:
    """One report, in the transaction that takes it, with the rows that it is about."""

    tx: Connection
    node: Row[Any]
    job: Row[Any]
    attempt: Row[Any]
    report: Report
    now: float

    @property
    def body(self) -> Mapping[str, Any]:
        """As it fits the report's kind: fields that it needs are there, each has its type, others may be None."""
        return self.report.body

    @property
    def current(self) -> bool:
        """Its attempt is the job's live one and nothing has ended it."""
        return self.attempt.ended_at is None and self.attempt.kind is None

    @property
    def kind(self) -> ExitKind:
        """How something ended. Unknown counts as lost: the kind that only tries again."""
        return ExitKind(self.body.get("kind", ExitKind.LOST))

    def text(self, key: str) -> str:
        return self.body.get(key) or ""

    def own(self) -> Row[Any] | None:
        """The allocation that the body names, if it is this supervisor's."""
        return allocations.find(self.tx, self.body["allocation"], self.job.id, self.report.fence, self.node.id)

    def of_attempt(self, number: int) -> Row[Any] | None:
        """An allocation of the attempt, on whatever node: the coordinator speaks of all engines."""
        return allocations.find(self.tx, number, self.job.id, self.report.fence)

    def named(self, key: str) -> list[Row[Any]]:
        """The allocations of the attempt in a list of the body."""
        found = [self.of_attempt(number) for number in self.body.get(key) or ()]
        return [row for row in found if row is not None]

    def record(self, message: str, data: Mapping[str, Any]) -> None:
        jobs.record(self.tx, self.job.id, self.report.kind, message, data, self.now)


def take(tx: Connection, node: Row[Any], job_id: int, report: Report, now: float) -> None:
    """Apply one report whose number is next. What it says may be odd; it is never refused for that: of its body only
    what ``reports.BODIES`` knows is looked at, and a report that lacks what its kind needs says nothing."""
    fitted = fit(report.kind, report.body)
    if fitted.faults:
        log.debug("%s/%d: report %d: %s", report.job, report.fence, report.seq, "; ".join(fitted.faults))
    if fitted.body is None:
        return
    when = fit_time(report.time, now)
    report = replace(report, body=fitted.body, time=when if when < now + _CLOCKS_APART_SECONDS else now)
    context = _Context(tx, node, jobs.get(tx, job_id), attempts.get(tx, job_id, report.fence), report, now)
    if report.kind in _OF_PROCESSES:
        _OF_PROCESSES[report.kind](context)
    elif context.current:
        _OF_THE_JOB[report.kind](context)
    else:
        log.info("%s/%d: late %s ignored", report.job, report.fence, report.kind)


# Of processes: true whatever the fence.


def _engine_started(context: _Context) -> None:
    allocation = context.own()
    if allocation is not None:
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
    """An attempt's first engine tells where the attempt begins; all others have their state from another engine."""
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


# Of what is gone: that frees what was held. What follows for the job is asked only of its live attempt.


def _engine_gone(context: _Context) -> None:
    """An engine's process was seen gone. Where nobody had asked for that, the attempt goes on without it."""
    tx, kind, row = context.tx, context.kind, context.own()
    if row is None or row.released_at is not None:
        return
    lost = context.current and row.release_asked_at is None and kind is not ExitKind.FINISHED
    if lost:
        details = {key: context.body.get(key) for key in ("kind", "code", "signal", "oom", "message")}
        losses.note(tx, [row], _describe_end(context, row.id), context.now, details, kind=kind)
    allocations.close(tx, row.id, kind, context.now)
    closed = allocations.find(tx, row.id, context.job.id, context.report.fence)
    resizes.mark(tx, closed.shrunk_by if closed else None, gone_at=context.report.time)
    outbox.put_scheduler(tx, context.now)
    if not context.current:
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
    """A supervisor's last report, its own or its agent's: its children died with it, nothing of them can be left."""
    tx, job_id, fence = context.tx, context.job.id, context.report.fence
    whole = _is_whole(context)
    end = End(context.kind, context.text("message"), context.body.get("code"), context.body.get("failed_step"))
    supervisors.close(tx, context.attempt, context.node, end, context.now, context.report.time, whole)
    supervisors.complete_reports_of(tx, context.attempt, context.node, context.now)
    outbox.put_nodes(tx, [context.node.id], context.now)
    outbox.put_scheduler(tx, context.now)
    if context.current:
        if context.body.get("digest"):
            jobs.change(tx, job_id, digest=context.text("digest"))
        if context.kind is ExitKind.FINISHED and (step := context.body.get("step")) is not None:
            # Reports of progress may have been given up on a full disk; this one never is.
            known = context.job.progress.get("step") or 0
            jobs.change(tx, job_id, progress={**context.job.progress, "step": max(known, step)})
        if not context.attempt.oom and _is_second_oom(context):
            end, whole = _out_of_memory(context), True
        if whole:
            lifecycle.end_attempt(tx, job_id, fence, end, context.now)
        else:
            why = f"its supervisor on {context.node.name} is gone"
            supervisors.carry_on(tx, context.attempt, context.node, end, why, context.now)
    if context.attempt.ended_at is None:
        lifecycle.settle(tx, job_id, context.now)


def _is_whole(context: _Context) -> bool:
    """Whether this is the end of the attempt, not only of its part on this node.

    That is for whom to say who hosts the coordinator. That the script came to its end is true whoever says it.
    How a script ends is nothing that an agent could know: without a word on it, it is the supervisor that speaks.
    """
    hosts = context.node.id in {context.attempt.head_node_id, context.attempt.coordinator_node_id}
    if "whole" not in context.body:
        return hosts and context.kind in {ExitKind.FINISHED, ExitKind.SCRIPT_ERROR}
    return context.body["whole"] is True and (hosts or context.kind is ExitKind.FINISHED)


def _is_second_oom(context: _Context) -> bool:
    """Counts a kill for memory. The first may be a neighbour's fault, the second is the script's."""
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


# Of the job: only from its live attempt.


def _attempt_started(context: _Context) -> None:
    """Its first supervisor has started. The start of others, and of a later head node's, changes nothing here."""
    if context.attempt.started_at is None:
        attempts.change(context.tx, context.job.id, context.report.fence, started_at=context.now)
    if JobState(context.job.state) is JobState.PENDING:
        message = f"attempt {context.report.fence} runs on {context.node.name}"
        jobs.change(context.tx, context.job.id, message=None)  # what became of the attempt before is history
        jobs.move(context.tx, context.job.id, JobState.RUNNING, message, context.now)


def _coordinator_at(context: _Context) -> None:
    address = context.body["address"]
    head_node.listens(context.tx, context.job.id, context.report.fence, context.node.id, address, context.now)


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
    """The engines work in another group. Which of them left or died the coordinator may know before their supervisor
    says so."""
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
    """Steps that are safe are what ends a row of losses: from here the next attempt has something to gain."""
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
    """The first reason stands, unless it said no more than that the engines differ. A reason known is no event."""
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
    """All equal: the row says so, and no event, since there are many. Not equal: an event, where it is news."""
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
    """A place of the job on some disk cannot be written, or can be again. Its training goes on."""
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
    """Its agent did not carry some reports of the job, which came too often or could not be so."""
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
