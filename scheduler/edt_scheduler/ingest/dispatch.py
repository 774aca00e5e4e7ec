"""What each kind of report changes in the database. Call it inside the transaction that takes the report.

Reports have two kinds of effects, and the fence separates them. What a report says about processes (an engine that is
gone, a supervisor that has ended) is true for every fence, and frees the slots that were held. What a report says about
the job (its state, E, progress) counts only while its attempt is the job's live one. A late report about the job
changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from edt_contract.reports import BODIES, Report, ReportKind, fit, fit_time
from edt_scheduler.ingest import processes, progress
from edt_scheduler.ingest.context import Context
from edt_scheduler.store import attempts, jobs

log = logging.getLogger("edt.reports")

NEVER_SKIPPED = frozenset({ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED})
"""Kinds of reports that give slots back: without these reports a slot would stay booked for ever."""
_CLOCKS_APART_SECONDS = 86_400.0
"""A report's time that is more than this many seconds ahead of this machine's clock is replaced by the present time."""


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
    context = Context(tx, node, jobs.get(tx, job_id), attempts.get(tx, job_id, report.fence), report, now)
    if context.attempt.gang and BODIES[report.kind].of_training and report.kind is not ReportKind.STORAGE:
        log.info("%s/%d: %s ignored: the job is a gang", report.job, report.fence, report.kind)
    elif report.kind in _OF_PROCESSES:
        _OF_PROCESSES[report.kind](context)
    elif context.current:
        _OF_THE_JOB[report.kind](context)
    else:
        log.info("%s/%d: late %s ignored", report.job, report.fence, report.kind)


_OF_PROCESSES: Mapping[ReportKind, Callable[[Context], None]] = {
    ReportKind.ENGINE_STARTED: processes.engine_started,
    ReportKind.ENGINE_JOINED: processes.engine_joined,
    ReportKind.ENGINE_COUNTED: processes.engine_counted,
    ReportKind.ENGINE_GONE: processes.engine_gone,
    ReportKind.ATTEMPT_ENDED: processes.attempt_ended,
}
_OF_THE_JOB: Mapping[ReportKind, Callable[[Context], None]] = {
    ReportKind.ATTEMPT_STARTED: progress.attempt_started,
    ReportKind.COORDINATOR_AT: progress.coordinator_at,
    ReportKind.PORTS_RESERVED: progress.ports_reserved,
    ReportKind.ENGINES_KNOWN: progress.engines_known,
    ReportKind.PULL_FAILED: progress.pull_failed,
    ReportKind.RESIZED: progress.resized,
    ReportKind.PROGRESS: progress.progress,
    ReportKind.VALIDATED: progress.validated,
    ReportKind.BEST_KEPT: progress.best_kept,
    ReportKind.CHECKPOINTED: progress.checkpointed,
    ReportKind.GUARANTEE_ENDED: progress.guarantee_ended,
    ReportKind.REPLICAS_COMPARED: progress.replicas_compared,
    ReportKind.CORRUPTED: progress.corrupted,
    ReportKind.STORAGE: progress.storage,
    ReportKind.RESTARTED: progress.restarted,
    ReportKind.REPORTS_LEFT_OUT: progress.left_out,
}
