"""Jobs that end by a rule: a time limit that is over, or a job before them that has failed."""

from __future__ import annotations

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs, history
from edt_scheduler.plan.state import Blocking
from support.puppets import Stage


def test_a_job_waits_for_those_that_must_come_before_it_and_starts_when_they_have_finished(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    node = stage.node(slots=4)
    first = stage.submit(1)
    second = stage.submit(1, after=(first,))
    stage.settle()
    waiting = stage.job(second).waiting
    assert stage.job(first).state is JobState.RUNNING
    assert waiting is not None
    assert waiting.blocking == Blocking.DEPENDENCY
    assert first in waiting.reason
    node.end((first, 1), ExitKind.FINISHED)
    stage.settle()
    assert (stage.job(first).state, stage.job(second).state) == (JobState.FINISHED, JobState.RUNNING)


def test_a_job_after_one_that_failed_or_was_stopped_ends_and_says_so(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    node = stage.node(slots=4)
    first, second = stage.submit(1), stage.submit(1)
    after_first, after_second = stage.submit(1, after=(first,)), stage.submit(1, after=(second,))
    last = stage.submit(1, after=(after_first,))
    stage.settle()
    node.end((first, 1), ExitKind.SCRIPT_ERROR)
    execs.stop(stage.platform, second, viewer=stage.admin)
    stage.settle()
    found = {job: (stage.job(job).state, stage.job(job).message) for job in (after_first, after_second, last)}
    assert found == {
        after_first: (JobState.ERROR, f"{first}, after which it had to start, is ERROR"),
        after_second: (JobState.ERROR, f"{second}, after which it had to start, is KILLED"),
        last: (JobState.ERROR, f"{after_first}, after which it had to start, is ERROR"),
    }


def test_a_job_that_has_run_for_its_time_limit_is_stopped_in_order_and_says_so(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    node = stage.node(slots=1)
    job = stage.submit(1, time_limit=100.0)
    stage.settle()
    stage.clock.pass_(60)
    node.bury((job, 1))
    stage.settle()
    stage.clock.pass_(300)  # what it waits does not count
    stage.settle()
    assert (stage.job(job).state, stage.job(job).fence) == (JobState.RUNNING, 2)
    stage.clock.pass_(39)
    look(stage.platform)
    assert stage.job(job).stop_requested_at is None
    stage.clock.pass_(2)
    look(stage.platform)
    assert stage.job(job).state is JobState.RUNNING, "its processes are asked to end first"
    stage.settle()
    view = stage.job(job)
    assert (view.state, view.message) == (JobState.KILLED, "stopped after its time limit of 100 s")
    told = [event.message for event in history.events(stage.platform, job, viewer=stage.admin)]
    assert "stopped after its time limit of 100 s" in told
