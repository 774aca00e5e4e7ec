"""What each kind of report does to the truth. Room: scheduler. Called inside the transaction that takes it.

Two kinds of effects, told apart by the fence. What a report says of processes (an engine that is gone, a
supervisor that has said its last word) is true whatever the fence, and frees what it held. What it says of the
job (its state, E, progress) counts only while its attempt is the job's live one; a late word changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_runner.contract import ExitKind, Report, ReportKind
from edt_scheduler import lifecycle
from edt_scheduler.jobs import PULL_FAILED_BACKOFF_SECONDS, JobState
from edt_scheduler.storable import storable
from edt_scheduler.store import allocations, attempts, jobs, outbox, resizes

log = logging.getLogger("edt.reports")

NEVER_SKIPPED = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED})
"""Reports that give slots back: without them a slot would stay booked for ever."""

UNASKED_PAUSE_SECONDS = 5
"""An engine that went unasked mostly announces the end of its attempt: so long its job gets no other slot."""


@dataclass(frozen=True)
class _Scene:
    """A report and what it is about."""

    tx: Connection
    node: Row[Any]
    job: Row[Any]
    attempt: Row[Any]
    report: Report
    now: float

    @property
    def body(self) -> Mapping[str, Any]:
        return self.report.body

    @property
    def current(self) -> bool:
        """Its attempt is the job's live one and nothing has ended it."""
        return self.attempt.ended_at is None and self.attempt.kind is None

    def allocation(self, number: Any) -> Row[Any] | None:
        """An allocation named in the body, if it is this supervisor's."""
        if not isinstance(number, int):
            return None
        return allocations.find(self.tx, number, self.job.id, self.report.fence, self.node.id)

    def record(self, message: str, data: Mapping[str, Any]) -> None:
        jobs.record(self.tx, self.job.id, self.report.kind, message, data, self.now)


def take(tx: Connection, node: Row[Any], job_id: int, report: Report, now: float) -> None:
    """Apply one report whose number is next. What it says may be odd; it is never refused for that."""
    attempt = attempts.find(tx, job_id, report.fence)
    if attempt is None:
        raise LookupError(f"a supervisor without its attempt: {report.job}/{report.fence}")
    report = replace(report, body=storable(dict(report.body)), time=storable(report.time) or now)
    scene = _Scene(tx, node, jobs.get(tx, job_id), attempt, report, now)
    if report.kind in _OF_PROCESSES:
        _OF_PROCESSES[report.kind](scene)
    elif scene.current:
        _OF_THE_JOB[report.kind](scene)
    else:
        log.info("%s/%d: late %s ignored", report.job, report.fence, report.kind)


# Of processes: true whatever the fence.


def _engine_started(scene: _Scene) -> None:
    allocation = scene.allocation(scene.body.get("allocation"))
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, started_at=scene.report.time)
        resizes.mark(scene.tx, allocation.grown_by, started_at=scene.report.time)


def _engine_joined(scene: _Scene) -> None:
    allocation = scene.allocation(scene.body.get("allocation"))
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, joined_at=scene.report.time)
        values = {"generation": _number(scene, "generation"), "step": _number(scene, "step")}
        resizes.mark(scene.tx, allocation.grown_by, joined_at=scene.report.time, **values)


def _engine_counted(scene: _Scene) -> None:
    allocation = scene.allocation(scene.body.get("allocation"))
    if allocation is not None:
        allocations.mark(scene.tx, allocation.id, counted_at=scene.report.time)
        resizes.mark(scene.tx, allocation.grown_by, first_step_at=scene.report.time)


def _engine_gone(scene: _Scene) -> None:
    allocation = scene.allocation(scene.body.get("allocation"))
    kind = _exit_kind(scene)
    if allocation is None or not allocations.close(scene.tx, allocation.id, kind, scene.now):
        return
    resizes.mark(scene.tx, allocation.shrunk_by, gone_at=scene.report.time)
    outbox.put_scheduler(scene.tx, scene.now)
    if not scene.current:
        return
    if kind is ExitKind.FINISHED:
        attempts.change(scene.tx, scene.job.id, scene.report.fence, trained_at=scene.now)
        return
    if kind is ExitKind.PULL_FAILED:
        _hold_back(scene, PULL_FAILED_BACKOFF_SECONDS)
        scene.record("an engine could not get the weights and gave its slot back", dict(scene.body))
    elif allocation.release_asked_at is None:
        _hold_back(scene, UNASKED_PAUSE_SECONDS)
        scene.record(f"an engine went unasked: {kind}", dict(scene.body))
    lifecycle.wake_nodes(scene.tx, [scene.node.id], scene.now)


def _hold_back(scene: _Scene, seconds: float) -> None:
    """No new slot for the job for so long; a longer wait that is on stays."""
    jobs.change(scene.tx, scene.job.id, not_before=max(scene.job.not_before or 0.0, scene.now + seconds))


def _attempt_ended(scene: _Scene) -> None:
    kind = _exit_kind(scene)
    tx, job_id, fence = scene.tx, scene.job.id, scene.report.fence
    for allocation in allocations.open_of(tx, job_id, fence, scene.node.id):
        # Its children die with a supervisor, and this is its last word: nothing of these can be left.
        allocations.close(tx, allocation.id, kind, scene.now)
        resizes.mark(tx, allocation.shrunk_by, gone_at=scene.report.time)
    attempts.end_supervisor(tx, job_id, fence, scene.node.id, kind, scene.now)
    lifecycle.wake_nodes(tx, [scene.node.id], scene.now)
    outbox.put_scheduler(tx, scene.now)
    home = scene.attempt.home_node_id == scene.node.id
    if scene.current and scene.body.get("digest"):
        jobs.change(tx, job_id, digest=str(scene.body["digest"]))
    if home or kind in {ExitKind.SCRIPT_ERROR, ExitKind.LOST}:
        message = str(scene.body.get("message") or "")
        lifecycle.end_attempt(tx, job_id, fence, kind, message, _number(scene, "code"), scene.now)
    if scene.attempt.ended_at is None:
        lifecycle.settle(tx, job_id, scene.now)


def _exit_kind(scene: _Scene) -> ExitKind:
    """What cannot be read counts as lost: the kind that only tries again."""
    try:
        return ExitKind(str(scene.body.get("kind")))
    except ValueError:
        return ExitKind.LOST


# Of the job: only from its live attempt.


def _attempt_started(scene: _Scene) -> None:
    if scene.attempt.home_node_id != scene.node.id:
        return
    attempts.change(scene.tx, scene.job.id, scene.report.fence, started_at=scene.now)
    if JobState(scene.job.state) is JobState.PENDING:
        message = f"attempt {scene.report.fence} runs on {scene.node.name}"
        jobs.move(scene.tx, scene.job.id, JobState.RUNNING, message, scene.now)


def _coordinator_at(scene: _Scene) -> None:
    address = scene.body.get("address")
    if not isinstance(address, str) or scene.attempt.home_node_id != scene.node.id:
        return
    attempts.change(scene.tx, scene.job.id, scene.report.fence, coordinator=address)
    others = attempts.supervisors_of(scene.tx, scene.job.id, scene.report.fence)
    lifecycle.wake_nodes(scene.tx, (row.node_id for row in others if row.node_id != scene.node.id), scene.now)


def _engines_known(scene: _Scene) -> None:
    engines = _number(scene, "engines")
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
    scene.record(f"one step has {engines} micro-batches: at most {engines} engines", told)
    outbox.put_scheduler(scene.tx, scene.now)


def _resized(scene: _Scene) -> None:
    workers = _number(scene, "workers")
    if workers is not None:
        jobs.change(scene.tx, scene.job.id, workers=workers)
    joined = [scene.allocation(number) for number in _numbers(scene.body.get("joined"))]
    left = [scene.allocation(number) for number in _numbers(scene.body.get("left"))]
    concerned = [row.grown_by for row in joined if row] + [row.shrunk_by for row in left if row and row.shrunk_by]
    pause = scene.body.get("pause_seconds")
    resizes.switched(
        scene.tx,
        concerned,
        generation=_number(scene, "generation"),
        step=_number(scene, "step"),
        workers=workers,
        pause=float(pause) if isinstance(pause, int | float) else None,
    )


def _number(scene: _Scene, key: str) -> int | None:
    value = scene.body.get(key)
    return value if isinstance(value, int) else None


def _numbers(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _progress(scene: _Scene) -> None:
    values: dict[str, Any] = {"progress": dict(scene.body)}
    if (workers := _number(scene, "workers")) is not None:
        values["workers"] = workers
    jobs.change(scene.tx, scene.job.id, **values)


def _checkpointed(scene: _Scene) -> None:
    """Steps that are safe are what ends a row of losses: from here the next attempt has something to gain."""
    step = _number(scene, "step")
    if step is None:
        return
    values: dict[str, Any] = {"checkpoint_step": step}
    if scene.job.checkpoint_step is None or step > scene.job.checkpoint_step:
        values["losses"] = 0
    jobs.change(scene.tx, scene.job.id, **values)
    scene.record(f"checkpoint at step {step}", {"step": step})


def _guarantee_ended(scene: _Scene) -> None:
    text = f"{scene.body.get('what', 'something')}: {scene.body.get('why', 'unknown')}"
    jobs.change(scene.tx, scene.job.id, inexact=text)
    scene.record(f"the result is no longer exact: {text}", dict(scene.body))


def _pull_failed(scene: _Scene) -> None:
    count, limit = scene.body.get("count"), scene.body.get("limit")
    scene.record(f"a newcomer did not get the weights in time ({count} of {limit})", dict(scene.body))


_OF_PROCESSES: Mapping[ReportKind, Callable[[_Scene], None]] = {
    ReportKind.ENGINE_STARTED: _engine_started,
    ReportKind.ENGINE_JOINED: _engine_joined,
    ReportKind.ENGINE_COUNTED: _engine_counted,
    ReportKind.ENGINE_GONE: _engine_gone,
    ReportKind.ATTEMPT_ENDED: _attempt_ended,
}
_OF_THE_JOB: Mapping[ReportKind, Callable[[_Scene], None]] = {
    ReportKind.ATTEMPT_STARTED: _attempt_started,
    ReportKind.COORDINATOR_AT: _coordinator_at,
    ReportKind.ENGINES_KNOWN: _engines_known,
    ReportKind.PULL_FAILED: _pull_failed,
    ReportKind.RESIZED: _resized,
    ReportKind.PROGRESS: _progress,
    ReportKind.CHECKPOINTED: _checkpointed,
    ReportKind.GUARANTEE_ENDED: _guarantee_ended,
}
