"""What each kind of report does to the truth. Room: scheduler. Called inside the transaction that takes it.

Two kinds of effects, told apart by the fence. What a report says of processes (an engine that is gone, a
supervisor that has said its last word) is true whatever the fence, and frees what it held. What it says of the
job (its state, E, progress) counts only while its attempt is the job's live one; a late word changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.contract import ExitKind, Report, ReportKind
from edt_runner.report_bodies import fit, fit_time
from edt_scheduler import departures, homes, losses
from edt_scheduler.exactness import cut, why_not_exact, why_they_differ
from edt_scheduler.jobs import JobState
from edt_scheduler.pace import PACE, observe
from edt_scheduler.scene import Scene
from edt_scheduler.store import allocations, attempts, jobs, metrics, outbox, resizes

log = logging.getLogger("edt.reports")

NEVER_SKIPPED = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED})
"""Reports that give slots back: without them a slot would stay booked for ever."""
CHECKPOINTS_APART_SECONDS = 600.0
"""Of checkpoints that nothing else comes between, one in this time stands in the job's history."""
_CLOCKS_APART_SECONDS = 86_400.0
"""A time that lies further ahead of ours is no time."""


def take(tx: Connection, node: Row[Any], job_id: int, report: Report, now: float) -> None:
    """Apply one report whose number is next. What it says may be odd; it is never refused for that: of its body only
    what ``report_bodies`` knows is looked at, and a report that lacks what its kind needs says nothing."""
    attempt = attempts.find(tx, job_id, report.fence)
    if attempt is None:
        raise LookupError(f"a supervisor without its attempt: {report.job}/{report.fence}")
    fitted = fit(report.kind, report.body)
    if fitted.faults:
        log.debug("%s/%d: report %d: %s", report.job, report.fence, report.seq, "; ".join(fitted.faults))
    if fitted.body is None:
        return
    when = fit_time(report.time, now)
    report = replace(report, body=fitted.body, time=when if when < now + _CLOCKS_APART_SECONDS else now)
    scene = Scene(tx, node, jobs.get(tx, job_id), attempt, report, now)
    if report.kind in _OF_PROCESSES:
        _OF_PROCESSES[report.kind](scene)
    elif scene.current:
        _OF_THE_JOB[report.kind](scene)
    else:
        log.info("%s/%d: late %s ignored", report.job, report.fence, report.kind)


# Of processes: true whatever the fence.


def _engine_started(scene: Scene) -> None:
    allocation = scene.own()
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, started_at=scene.report.time)
        resizes.mark(scene.tx, allocation.grown_by, started_at=scene.report.time)


def _engine_joined(scene: Scene) -> None:
    allocation = scene.of_attempt(scene.body.get("allocation"))
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, joined_at=scene.report.time)
        values = {"generation": scene.number("generation"), "step": scene.number("step")}
        resizes.mark(scene.tx, allocation.grown_by, joined_at=scene.report.time, **values)
        if scene.current and resizes.get(scene.tx, allocation.grown_by).from_slots:
            losses.weights_came(scene.tx, scene.job)
        if scene.current and allocation.joined_at is None:
            _joined(scene, allocation.id, values["step"])


def _joined(scene: Scene, allocation: int, step: int | None) -> None:
    """An attempt's first engine tells where the attempt begins; all others have their state from another engine."""
    known = jobs.compared(scene.job)
    if allocations.others_joined(scene.tx, scene.job.id, scene.report.fence, allocation):
        known = known.joined(step if step is not None else known.compared_step or 0)
    elif step is not None:
        known = known.resumed(step)
    jobs.change(scene.tx, scene.job.id, **asdict(known))


def _engine_counted(scene: Scene) -> None:
    allocation = scene.of_attempt(scene.body.get("allocation"))
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, counted_at=scene.report.time)
        resizes.mark(scene.tx, allocation.grown_by, first_step_at=scene.report.time)


# Of the job: only from its live attempt.


def _attempt_started(scene: Scene) -> None:
    """Its first supervisor has started. Of the others, and of one that becomes home later, this says nothing new."""
    if scene.attempt.started_at is None:
        attempts.change(scene.tx, scene.job.id, scene.report.fence, started_at=scene.now)
    if JobState(scene.job.state) is JobState.PENDING:
        message = f"attempt {scene.report.fence} runs on {scene.node.name}"
        jobs.change(scene.tx, scene.job.id, message=None)  # what became of the attempt before is history
        jobs.move(scene.tx, scene.job.id, JobState.RUNNING, message, scene.now)


def _coordinator_at(scene: Scene) -> None:
    address = scene.body.get("address")
    if isinstance(address, str):
        homes.listens(scene.tx, scene.job.id, scene.report.fence, scene.node.id, address, scene.now)


def _restarted(scene: Scene) -> None:
    what, why, count = scene.text("what") or "a part", scene.text("why"), scene.number("count")
    times = f", time {count}" if count is not None and count > 1 else ""
    scene.record(f"the {what} was started again{times}" + (f": {why}" if why else ""), dict(scene.body))


def _engines_known(scene: Scene) -> None:
    engines = scene.number("engines")
    if engines is None or engines < 1:
        return
    told = {
        "engines": engines,
        "steps_total": scene.body.get("steps_total"),
        "epochs": scene.body.get("epochs"),
    }
    if (scene.job.engines, scene.job.steps_total, scene.job.epochs) == tuple(told.values()):
        return
    jobs.change(scene.tx, scene.job.id, engines_at=scene.now, **told)
    if scene.body.get("follows_engines"):
        scene.record(f"its batch follows its engines, of which an epoch can use {engines}", told)
    else:
        scene.record(f"one step has {engines} micro-batches: at most {engines} engines", told)
    outbox.put_scheduler(scene.tx, scene.now)


def _resized(scene: Scene) -> None:
    """The engines work in another group. Which of them left or died the coordinator may know before their supervisor
    says so."""
    workers = scene.number("workers")
    if workers is not None:
        jobs.change(scene.tx, scene.job.id, workers=workers)
    for key, how, kind in (("left", "left unasked", ExitKind.LEFT), ("lost", "was lost", ExitKind.LOST)):
        for row in scene.named(key):
            if row.released_at is None:
                losses.note(scene.tx, [row], f"engine {row.id} {how}", scene.now, kind=kind)
    shrunk = [row.shrunk_by for key in ("left", "lost") for row in scene.named(key) if row.shrunk_by is not None]
    pause = scene.body.get("pause_seconds")
    resizes.switched(
        scene.tx,
        [*(row.grown_by for row in scene.named("joined")), *shrunk],
        generation=scene.number("generation"),
        step=scene.number("step"),
        workers=workers,
        pause=float(pause) if isinstance(pause, int | float) else None,
        recomputed=scene.number("recomputed"),
    )


def _progress(scene: Scene) -> None:
    fence, time, body = scene.report.fence, scene.report.time, dict(scene.body)
    pace = observe(scene.job.progress.get(PACE), body, fence, time)
    values: dict[str, Any] = {"progress": {**body, PACE: pace}}
    metrics.add(scene.tx, scene.job.id, fence, time, body)
    if (workers := scene.number("workers")) is not None:
        values["workers"] = workers
    jobs.change(scene.tx, scene.job.id, **values)


def _checkpointed(scene: Scene) -> None:
    """Steps that are safe are what ends a row of losses: from here the next attempt has something to gain."""
    step = scene.number("step")
    if step is None:
        return
    values: dict[str, Any] = {"checkpoint_step": step}
    if scene.job.checkpoint_step is None or step > scene.job.checkpoint_step:
        values["losses"] = 0
    jobs.change(scene.tx, scene.job.id, **values)
    before = jobs.newest_event(scene.tx, scene.job.id)
    same = before is not None and (before.kind, before.fence) == (scene.report.kind, scene.report.fence)
    if before is None or not same or scene.now > before.time + CHECKPOINTS_APART_SECONDS:
        scene.record(f"checkpoint at step {step}", {"step": step})


def _guarantee_ended(scene: Scene) -> None:
    """The first reason stands, unless it said no more than that the engines differ. A reason known is no event."""
    engine, step = scene.number("engine"), scene.number("step")
    told = {key: cut(scene.text(key)) for key in ("what", "why", "difference")}
    reason = why_not_exact(told["what"], told["why"], engine, step, told["difference"])
    known = scene.job.inexact
    if known == reason:
        return
    if known is None or (step is not None and known == why_they_differ(step)):
        jobs.change(scene.tx, scene.job.id, inexact=reason)
    scene.record(f"the result is no longer exact: {reason}", {**told, "engine": engine, "step": step})


def _replicas_compared(scene: Scene) -> None:
    """All equal: the row says so, and no event, since there are many. Not equal: an event, where it is news."""
    step, engines = scene.number("step"), scene.number("engines")
    if step is None or step < 0 or engines is None or engines < 2:
        return
    if scene.body.get("equal") is True:
        of_join = scene.body.get("reason") == "join"
        jobs.change(scene.tx, scene.job.id, **asdict(jobs.compared(scene.job).equal(step, of_join=of_join)))
    elif scene.body.get("equal") is False and scene.job.inexact is None:
        reason = why_they_differ(step)
        jobs.change(scene.tx, scene.job.id, inexact=reason)
        data = {"step": step, "engines": engines, "reason": cut(scene.text("reason"))}
        scene.record(f"{engines} engines were compared: {reason}", data)


def _storage(scene: Scene) -> None:
    """A place of the job on some disk cannot be written, or can be again. Its training goes on."""
    place, error, seconds = scene.text("place") or "a place", scene.text("error"), scene.body.get("seconds")
    if error:
        scene.record(
            f"{place}: cannot be written on {scene.node.name} ({error}); the training goes on", dict(scene.body)
        )
        return
    after = f", after {seconds:.0f} s" if isinstance(seconds, int | float) else ""
    given_up = scene.number("given_up")
    missing = f"; {given_up} reports of progress are missing" if given_up else ""
    scene.record(f"{place}: can be written again on {scene.node.name}{after}{missing}", dict(scene.body))


def _pull_failed(scene: Scene) -> None:
    count, limit = scene.body.get("count"), scene.body.get("limit")
    scene.record(f"a newcomer did not get the weights in time ({count} of {limit})", dict(scene.body))


def _left_out(scene: Scene) -> None:
    """Its agent did not carry some reports of the job, which came too often or could not be so."""
    counts = scene.body.get("counts") or {}
    told = ", ".join(f"{number:.0f} of kind {kind}" for kind, number in counts.items() if number)
    if told:
        scene.record(f"reports were left out, {told}: {scene.text('why')}", dict(scene.body))


_OF_PROCESSES: Mapping[ReportKind, Callable[[Scene], None]] = {
    ReportKind.ENGINE_STARTED: _engine_started,
    ReportKind.ENGINE_JOINED: _engine_joined,
    ReportKind.ENGINE_COUNTED: _engine_counted,
    ReportKind.ENGINE_GONE: departures.engine_gone,
    ReportKind.ATTEMPT_ENDED: departures.attempt_ended,
}
_OF_THE_JOB: Mapping[ReportKind, Callable[[Scene], None]] = {
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
