"""The start of a job that waits is estimated once and compared with what came; what answers read of the platform."""

from __future__ import annotations

import pickle

import pytest

from edt_scheduler.answers.changes import JobStopped, JobWith, MoreSlots, QueueWith
from edt_scheduler.errors import ChangeInvalid, NoSuchJob
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import Role
from edt_scheduler.operations import accounts, answers
from edt_scheduler.operations.answers import answered, ask_what_if, estimate_starts, explain
from edt_scheduler.store import estimates
from support.puppets import Stage

_GPU = (SlotSpec("0", "GPU-1", "NVIDIA H100", model="NVIDIA H100"),)


def one_waits(stage: Stage) -> tuple[str, str]:
    """A job that holds the only node's slots, and one that waits for a GPU."""
    node = stage.node(slots=2, engines=2)
    first = stage.submit(2)
    stage.settle()
    assert stage.holding() == {first: 2}
    (key,) = node.running
    assert key[0] == first
    second = stage.submit(1, device="gpu")
    stage.settle()
    return first, second


class TestEstimates:
    def test_a_job_that_waits_gets_one_and_no_second_one(self, stage: Stage) -> None:
        _, second = one_waits(stage)
        assert estimate_starts(stage.platform) == 1
        assert estimate_starts(stage.platform) == 0
        with stage.platform.database.snapshot() as tx:
            found = estimates.of_job(tx, stage.job(second).number)
        assert found is not None
        assert (found.expected_at, found.rule) == (None, "nodes")
        assert found.made_at == stage.clock()

    def test_none_is_made_of_jobs_that_run_have_run_or_are_over(self, stage: Stage) -> None:
        first, _ = one_waits(stage)
        with stage.platform.database.transaction() as tx:
            assert estimates.add(tx, [(stage.job(first).number, 5.0, "capacity")], stage.clock()) == 0

    def test_errors_are_late_starts_of_the_newest_jobs_by_rule(self, stage: Stage) -> None:
        _, second = one_waits(stage)
        now = stage.clock()
        with stage.platform.database.transaction() as tx:
            assert estimates.add(tx, [(stage.job(second).number, now + 10, "capacity")], now) == 1
        gpu = stage.node("g1", 1, offers=_GPU)
        stage.clock.pass_(25)
        stage.settle()
        assert gpu.running
        started = stage.job(second).started_at
        assert started == now + 25
        with stage.platform.database.snapshot() as tx:
            assert estimates.errors(tx) == estimates.errors(tx, "capacity") == [pytest.approx(15)]
            assert estimates.errors(tx, "quota") == []
        third = stage.submit(1, device="gpu")
        stage.settle()
        told = answered(explain(stage.platform, third, viewer=stage.admin))
        assert told.expected is not None
        assert told.expected.error is not None
        assert told.expected.error.jobs == 1
        assert told.expected.error.median_seconds == pytest.approx(15)


class TestWhatIsRead:
    def test_a_question_can_be_answered_in_another_process(self, sqlite_stage: Stage) -> None:
        _, second = one_waits(sqlite_stage)
        asked = explain(sqlite_stage.platform, second, viewer=sqlite_stage.admin)
        told = answered(pickle.loads(pickle.dumps(asked)))  # noqa: S301 - of this test's own making
        assert told.job == second
        assert told.waits is not None

    def test_whoever_may_not_see_a_job_may_not_ask_about_it(self, sqlite_stage: Stage) -> None:
        first, _ = one_waits(sqlite_stage)
        ana = accounts.add_user(sqlite_stage.platform, "ana", "hash", Role.USER)
        with pytest.raises(NoSuchJob):
            explain(sqlite_stage.platform, first, viewer=ana)
        for change in (JobStopped(first), JobWith(first, priority=2)):
            with pytest.raises(NoSuchJob):
                ask_what_if(sqlite_stage.platform, [change], viewer=ana)
        assert answered(ask_what_if(sqlite_stage.platform, [MoreSlots(1)], viewer=ana)).jobs == ()

    def test_a_path_that_no_queue_can_have_is_refused(self, sqlite_stage: Stage) -> None:
        with pytest.raises(ChangeInvalid, match="queue"):
            ask_what_if(sqlite_stage.platform, [QueueWith("/a b", quota=1)], viewer=sqlite_stage.admin)

    def test_an_answer_takes_no_longer_than_it_may(self, sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "ANSWER_SECONDS", 0.0)
        _, second = one_waits(sqlite_stage)
        told = answered(explain(sqlite_stage.platform, second, viewer=sqlite_stage.admin))
        assert told.changes == ()
        assert told.untried > 0
