"""Taking reports: once each, in order, and what a late one may still say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edt_runner.contract import ExitKind, Report, ReportKind
from edt_scheduler import operations
from edt_scheduler.errors import NoSuchNode, ReportForeign
from edt_scheduler.fences import FENCE_SECONDS
from edt_scheduler.jobs import JobState
from edt_scheduler.reconcile import look
from support.puppets import Stage


def progress(job: str, fence: int, seq: int, step: int) -> Report:
    body = {"step": step, "steps_total": 100, "workers": 2, "loss": 0.5}
    return Report(job, fence, "n1", seq, ReportKind.PROGRESS, 5.0, body)


def test_each_number_is_taken_once_in_order_and_not_behind_a_gap(stage: Stage) -> None:
    stage.node()
    job = stage.submit()
    stage.settle()
    node = stage.puppets[0]
    last = node.told[-1].seq
    taken = operations.record_reports(
        stage.house, "n1", [progress(job, 1, last + 2, 2), progress(job, 1, last + 1, 1), progress(job, 1, last + 4, 4)]
    )
    assert taken == {f"{job}/1": last + 2}
    assert stage.job(job).progress["step"] == 2
    assert operations.record_reports(stage.house, "n1", [progress(job, 1, last + 1, 1)]) == {f"{job}/1": last + 2}
    assert stage.job(job).progress["step"] == 2


def test_all_reports_told_again_change_nothing(stage: Stage) -> None:
    node = stage.node()
    a = stage.submit()
    stage.settle()
    b = stage.submit()
    stage.settle()
    node.end((b, 1), ExitKind.FINISHED)
    stage.settle()
    before = (stage.job(a), stage.job(b), operations.timeline(stage.house, viewer=stage.admin))
    operations.record_reports(stage.house, "n1", node.told)
    after = (stage.job(a), stage.job(b), operations.timeline(stage.house, viewer=stage.admin))
    assert after == before


def test_a_late_word_of_an_old_attempt_frees_its_slot_and_says_nothing_of_the_job(stage: Stage) -> None:
    first, second = stage.node("n1", slots=2, engines=2), stage.node("n2", slots=2, engines=2)
    job = stage.submit(workers=2)
    stage.settle()
    assert set(first.running) == {(job, 1)}
    look(stage.house, stage.silence("n1"))
    look(stage.house)
    stage.clock.pass_(FENCE_SECONDS)
    look(stage.house)
    second.obey()
    first.report((job, 1), ReportKind.PROGRESS, step=99, workers=2)
    first.report((job, 1), ReportKind.ENGINES_KNOWN, engines=64)
    assert stage.job(job).progress == {}
    assert stage.job(job).engines == 2
    held = stage.holding()[job]
    first.end((job, 1), ExitKind.SCRIPT_ERROR, message="too late")
    assert stage.holding()[job] == held - 2
    view = stage.job(job)
    assert (view.state, view.fence, view.message) == (JobState.RUNNING, 2, "node n1 was not heard from")


def test_reports_of_an_unknown_attempt_are_waved_through(stage: Stage) -> None:
    stage.node()
    unknown = [progress("edt-77", 3, 5, 1), progress("wmla-1", 1, 9, 1)]
    assert operations.record_reports(stage.house, "n1", unknown) == {"edt-77/3": 5, "wmla-1/1": 9}


def test_a_node_speaks_for_itself_only(stage: Stage) -> None:
    stage.node()
    with pytest.raises(ReportForeign):
        operations.record_reports(stage.house, "n1", [replace(progress("edt-1", 1, 1, 1), node="n2")])
    with pytest.raises(NoSuchNode):
        operations.assignments(stage.house, "n9")


def test_an_odd_report_is_taken_and_does_no_harm(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    allocations = list(node.running[job, 1])
    for what in ReportKind:
        if what is not ReportKind.ATTEMPT_ENDED:
            node.report((job, 1), what)
            node.report(
                (job, 1), what, allocation="x", engines="many", workers=None, step="y", joined=3, pause_seconds="z"
            )
            node.report((job, 1), what, joined=allocations[:1], left=allocations[1:], pause_seconds=None)
            odd = {"loss": float("nan"), "what": "a\0b\udc80", "engines": 2**70, "step": -(2**70), "why": {1: (2,)}}
            node.report((job, 1), what, **odd)
    assert stage.job(job).state is JobState.RUNNING
    assert stage.holding() == {job: 4}


def test_a_report_we_stumble_over_stands_in_nobodys_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    node = stage.node()
    a, b = stage.submit(), stage.submit()
    stage.settle()

    def stumble(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.store.resizes.switched", stumble)
        node.report((a, 1), ReportKind.RESIZED, workers=2)
    node.report((a, 1), ReportKind.PROGRESS, step=7)
    assert stage.job(a).progress == {"step": 7}
    with monkeypatch.context() as patch:
        patch.setattr("edt_scheduler.store.attempts.end_supervisor", stumble)
        node.report((a, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED)
        node.report((b, 1), ReportKind.PROGRESS, step=8)
    assert stage.job(a).state is JobState.RUNNING
    assert stage.job(b).progress == {"step": 8}
    operations.record_reports(stage.house, "n1", node.told)
    assert stage.job(a).state is JobState.FINISHED, "what says that processes are gone is never skipped"


def test_an_end_that_cannot_be_read_counts_as_lost(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.ATTEMPT_ENDED, reason="?")
    assert stage.job(job).state is JobState.PENDING
    assert stage.holding() == {}


def test_a_supervisors_last_word_gives_back_what_it_did_not_name(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED, digest="d1")
    assert stage.holding() == {}
    assert (stage.job(job).state, stage.job(job).digest) == (JobState.FINISHED, "d1")


def test_the_end_of_a_guarantee_is_shown_with_its_reason(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit()
    stage.settle()
    node.report((job, 1), ReportKind.GUARANTEE_ENDED, what="cumsum", why="no deterministic kernel")
    assert stage.job(job).inexact == "cumsum: no deterministic kernel"
    kinds = [event.kind for event in operations.events(stage.house, job, viewer=stage.admin)]
    assert kinds[-1] == "guarantee-ended"
    assert kinds.count("state") == 3
