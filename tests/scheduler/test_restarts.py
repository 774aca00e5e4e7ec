"""A script that raises: how often it is started again, and when not."""

from __future__ import annotations

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.model.jobs import Raised, why_not_again
from edt_scheduler.model.states import JobState
from edt_scheduler.operations import execs
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def fail(stage: Stage, node: Puppet, job: str, message: str, step: int | None) -> None:
    """Its newest attempt ends by an exception; long enough after for any wait."""
    stage.settle()
    node.end((job, stage.job(job).fence), ExitKind.SCRIPT_ERROR, message=message, code=1, failed_step=step)


class TestRule:
    @pytest.mark.parametrize(
        ("raised", "before", "again"),
        [
            (Raised("ValueError: a", 5), None, True),
            (Raised("ValueError: a", 5), Raised("ValueError: a", 5), False),
            (Raised("ValueError: a", 6), Raised("ValueError: a", 5), True),
            (Raised("ValueError: b", 5), Raised("ValueError: a", 5), True),
            (Raised("ValueError: a", None), Raised("ValueError: a", None), False),
            (Raised("<A object at 0x7f12>", 5), Raised("<A object at 0x7f9a>", 5), False),
        ],
    )
    def test_the_same_exception_at_the_same_step_is_not_tried_again(
        self, raised: Raised, before: Raised | None, again: bool
    ) -> None:
        assert (why_not_again(raised, before, 0, 3) is None) is again

    @pytest.mark.parametrize(("restarts", "words"), [(1, "once"), (2, "2 times")])
    def test_it_is_said_how_often_it_was_started_again(self, restarts: int, words: str) -> None:
        why = f"it was started again {words}, as often as --maxRestarts allows"
        assert why_not_again(Raised("x", 1), None, restarts, restarts) == why

    def test_without_max_restarts_there_is_nothing_to_explain(self) -> None:
        assert why_not_again(Raised("x", 1), None, 0, 0) == ""


class TestJobs:
    def test_it_starts_again_as_often_as_its_user_allows_and_then_ends_with_its_message(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submit(max_restarts=2)
        for attempt, wait in ((1, 1), (2, 2)):
            fail(stage, node, job, f"OSError: {attempt}", attempt)
            view = stage.job(job)
            assert (view.state, view.restarts, view.message) == (JobState.PENDING, attempt, f"OSError: {attempt}")
            stage.clock.pass_(wait - 0.5)
            stage.settle()
            assert stage.job(job).fence == attempt
            stage.clock.pass_(0.5)
        fail(stage, node, job, "OSError: 3", 3)
        view = stage.job(job)
        assert view.state is JobState.ERROR
        assert view.message == "OSError: 3 (it was started again 2 times, as often as --maxRestarts allows)"
        assert (view.fence, view.max_restarts, view.restarts) == (3, 2, 2)

    def test_the_same_exception_at_the_same_step_ends_it_at_once_and_says_so(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submit(max_restarts=5)
        fail(stage, node, job, "IndexError: 9", 40)
        stage.clock.pass_(1)
        fail(stage, node, job, "IndexError: 9", 40)
        view = stage.job(job)
        assert view.state is JobState.ERROR
        assert view.message == (
            "IndexError: 9 (the same exception at step 40 as the time before, so it was not started again)"
        )

    def test_ends_that_are_not_the_scripts_do_not_count(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit(max_restarts=1)
        for fence in (1, 2, 3):
            sqlite_stage.settle()
            node.end((job, fence), ExitKind.LOST)
            sqlite_stage.clock.pass_(60)
        fail(sqlite_stage, node, job, "OSError: 1", 1)
        assert (sqlite_stage.job(job).state, sqlite_stage.job(job).restarts) == (JobState.PENDING, 1)

    def test_a_stop_wins_over_a_restart(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit(max_restarts=3)
        sqlite_stage.settle()
        execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin)
        node.end((job, 1), ExitKind.SCRIPT_ERROR, message="KeyboardInterrupt")
        assert sqlite_stage.job(job).state is JobState.KILLED

    def test_why_an_attempt_ended_is_said_until_the_next_one_runs(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.end((job, 1), ExitKind.LEFT, message="all engines have left; the training goes on from its checkpoint")
        view = sqlite_stage.job(job)
        assert view.state is JobState.PENDING and "all engines have left" in str(view.message)
        sqlite_stage.clock.pass_(60)
        sqlite_stage.settle()
        view = sqlite_stage.job(job)
        assert (view.state, view.fence, view.message) == (JobState.RUNNING, 2, None)

    def test_a_job_that_is_stopped_between_two_attempts_bears_no_word_of_the_first(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.end((job, 1), ExitKind.LEFT, message="all engines have left; the training goes on from its checkpoint")
        execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin)
        view = sqlite_stage.job(job)
        assert (view.state, view.message) == (JobState.KILLED, None)

    def test_an_agents_words_never_are_the_scripts(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit(max_restarts=0)
        sqlite_stage.settle()
        node.bury((job, 1))
        assert sqlite_stage.job(job).state is JobState.PENDING
