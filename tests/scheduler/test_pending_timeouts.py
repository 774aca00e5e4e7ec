"""A job that gets no slot within its --msd-pending-timeout ends, and every other job goes on waiting."""

from __future__ import annotations

from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs, history
from edt_scheduler.operations.execs import end_never_started_jobs
from edt_scheduler.periodic.tasks import TASKS
from support.puppets import Stage


def test_a_job_that_waited_too_long_for_its_start_ends_as_an_error_with_a_sentence(stage: Stage) -> None:
    late = stage.submit(pending_timeout=60)
    patient, longer = stage.submit(), stage.submit(pending_timeout=600)
    stage.settle()
    stage.clock.pass_(59)
    assert end_never_started_jobs(stage.platform) == 0
    stage.clock.pass_(2)
    task = next(task for task in TASKS if task.name == "edt.end-never-started")
    assert task.work(stage.platform) == 1
    assert task.work(stage.platform) == 0
    ended = stage.job(late)
    assert ended.state is JobState.ERROR
    assert ended.message == "it has not started within the 60 s of --msd-pending-timeout"
    assert [stage.job(job).state for job in (patient, longer)] == [JobState.PENDING] * 2
    events = history.events(stage.platform, late, viewer=stage.admin)
    assert events[-1].message == ended.message


def test_a_job_that_has_started_may_wait_again_for_as_long_as_it_must(stage: Stage) -> None:
    node = stage.node()
    job = stage.submit(pending_timeout=60)
    stage.settle()
    assert stage.job(job).state is JobState.RUNNING
    stage.clock.pass_(1000)
    assert end_never_started_jobs(stage.platform) == 0
    assert node.running
    assert stage.job(job).state is JobState.RUNNING


def test_more_of_them_than_one_transaction_takes_all_end(stage: Stage) -> None:
    jobs = [stage.submit(pending_timeout=1) for _ in range(execs.STOPPED_AT_ONCE + 3)]
    stage.settle()
    stage.clock.pass_(2)
    assert end_never_started_jobs(stage.platform) == len(jobs)
