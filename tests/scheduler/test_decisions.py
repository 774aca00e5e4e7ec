"""What the scheduler decides, from submit to end, with nodes played against the real store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reading import Rows, read
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home import fence_files
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.operations import agents, execs, fleet, history
from edt_scheduler.plan.state import Blocking
from edt_scheduler.store import jobs
from edt_scheduler.views import SlotUse
from support.databases import sqlite_first
from support.puppets import Stage

database_url = sqlite_first()


def causes(stage: Stage, exec_id: str) -> list[tuple[ResizeCause, int, int]]:
    found = history.resizes(stage.platform, exec_id, viewer=stage.admin)
    return [(resize.cause, resize.from_slots, resize.to_slots) for resize in found]


class TestImages:
    def test_a_job_with_an_image_waits_for_a_node_that_starts_containers_and_its_spec_names_it(
        self, stage: Stage
    ) -> None:
        stage.node("n1")
        job = stage.submit(workers=2, image="an/image:1")
        stage.settle()
        assert stage.holding() == {}
        assert stage.job(job).waiting is not None
        assert (
            stage.job(job).waiting.reason == "its image an/image:1 needs a node that starts containers, and none is up"
        )
        second = stage.node("n2", launcher="docker")
        look(stage.platform)
        assert second.fetch()[job, 1].spec.image == "an/image:1"
        stage.settle()
        assert stage.holding() == {job: 2}
        plain = stage.submit()
        look(stage.platform)
        specs = {**stage.puppets[0].fetch(), **second.fetch()}
        assert specs[plain, 1].spec.image == ""

    def test_a_job_grows_beside_a_container_that_keeps_the_gpus_it_began_with(self, stage: Stage) -> None:
        stage.node("n1", slots=4, launcher="docker-fixed")
        job = stage.submit(workers=4)
        stage.settle()
        assert stage.holding() == {job: 1}
        stage.node("n2", slots=3)
        stage.settle()
        assert stage.holding() == {job: 4}


class TestSharing:
    def test_a_job_holds_one_slot_until_its_script_tells_e_and_then_grows_to_its_maximum(self, stage: Stage) -> None:
        node = stage.node(slots=4)
        job = stage.submit(workers=4)
        look(stage.platform)
        assert stage.holding() == {job: 1}
        assert stage.job(job).state is JobState.PENDING
        node.obey()
        assert stage.job(job).state is JobState.RUNNING
        stage.settle()
        assert stage.holding() == {job: 4}
        assert causes(stage, job) == [(ResizeCause.SUBMIT, 0, 1), (ResizeCause.ENGINES_KNOWN, 1, 4)]

    def test_two_jobs_that_want_all_slots_share_them_and_the_first_takes_back_what_the_second_leaves(
        self, stage: Stage
    ) -> None:
        node = stage.node(slots=4)
        a = stage.submit(workers=4)
        stage.settle()
        b = stage.submit(workers=4)
        stage.settle()
        assert stage.holding() == {a: 2, b: 2}
        assert stage.job(a).fence == 1, "A was never interrupted"
        node.end((b, 1), ExitKind.FINISHED, digest="abc")
        stage.settle()
        assert stage.job(b).state is JobState.FINISHED
        assert stage.job(b).digest == "abc"
        assert stage.holding() == {a: 4}
        assert causes(stage, a) == [
            (ResizeCause.SUBMIT, 0, 1),
            (ResizeCause.ENGINES_KNOWN, 1, 4),
            (ResizeCause.ROOM, 4, 2),
            (ResizeCause.JOB_ENDED, 2, 4),
        ]

    def test_a_slot_is_not_given_on_before_its_process_was_seen_gone(self, stage: Stage) -> None:
        node = stage.node(slots=2, engines=2)
        a = stage.submit(workers=2)
        stage.settle()
        node.obedient = False
        b = stage.submit(workers=2)
        for _ in range(3):
            look(stage.platform)
            node.obey()
        assert stage.holding() == {a: 2}
        waiting = stage.job(b).waiting
        assert waiting is not None
        assert waiting.blocking == Blocking.VACATING
        node.obedient = True
        stage.settle()
        assert stage.holding() == {a: 1, b: 1}

    def test_ten_queued_jobs_start_in_the_order_in_which_they_came(self, stage: Stage) -> None:
        node = stage.node(slots=1, engines=1)
        queue = [stage.submit(workers=1) for _ in range(10)]
        started = []
        for _ in queue:
            stage.settle()
            (running,) = stage.holding()
            started.append(running)
            assert [stage.job(job).waiting.rank for job in queue if stage.job(job).waiting] == list(
                range(1, 11 - len(started))
            )
            node.end((running, 1), ExitKind.FINISHED)
        assert started == queue

    def test_a_driver_that_goes_on_after_training_holds_no_slot_and_gets_none(self, stage: Stage) -> None:
        node = stage.node(slots=2, engines=2)
        a, b = stage.submit(workers=2), stage.submit(workers=2)
        stage.settle()
        for allocation in list(node.running[a, 1]):
            node.gone((a, 1), allocation, ExitKind.FINISHED)
        desired = node.fetch()[a, 1].desired
        assert len(desired.slots) == 1, "an empty desired would tell its supervisor to leave"
        stage.settle(until=lambda: stage.holding() == {b: 2})
        assert stage.job(a).state is JobState.RUNNING
        assert causes(stage, b)[-1] == (ResizeCause.JOB_ENDED, 1, 2)
        node.report((a, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED)
        assert stage.job(a).state is JobState.FINISHED

    def test_deciding_twice_decides_nothing_new(self, stage: Stage) -> None:
        stage.node(slots=4)
        stage.submit(workers=4)
        assert look(stage.platform)
        assert not look(stage.platform)


class TestEnds:
    def test_a_script_that_raises_ends_as_an_error_with_its_message(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.end((job, 1), ExitKind.SCRIPT_ERROR, message="ValueError: no", code=1)
        view = sqlite_stage.job(job)
        assert (view.state, view.message) == (JobState.ERROR, "ValueError: no")
        assert sqlite_stage.holding() == {}

    def test_a_lost_attempt_is_followed_by_another_after_a_growing_wait(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        for losses, wait in enumerate((1, 2, 4), start=1):
            sqlite_stage.settle()
            node.end((job, losses), ExitKind.LOST, message="killed by signal 9")
            assert sqlite_stage.job(job).state is JobState.PENDING
            look(sqlite_stage.platform)
            waiting = sqlite_stage.job(job).waiting
            assert waiting is not None
            assert waiting.blocking == Blocking.COOLDOWN
            sqlite_stage.clock.pass_(wait - 0.5)
            look(sqlite_stage.platform)
            assert sqlite_stage.holding() == {}
            sqlite_stage.clock.pass_(0.5)
        sqlite_stage.settle()
        assert sqlite_stage.job(job).fence == 4
        assert causes(sqlite_stage, job)[-1] == (ResizeCause.RESTART, 0, 4)

    def test_a_new_checkpoint_ends_a_row_of_losses(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        for fence in (1, 2):
            sqlite_stage.settle()
            node.end((job, fence), ExitKind.LOST)
            sqlite_stage.clock.pass_(10)
        sqlite_stage.settle()
        node.report((job, 3), ReportKind.CHECKPOINTED, step=50)
        node.end((job, 3), ExitKind.LOST)
        sqlite_stage.clock.pass_(1)
        sqlite_stage.settle()
        assert sqlite_stage.job(job).fence == 4

    def test_an_attempt_that_left_is_followed_by_another_at_once(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.end((job, 1), ExitKind.LEFT)
        sqlite_stage.clock.pass_(5)
        sqlite_stage.settle()
        assert (sqlite_stage.job(job).fence, sqlite_stage.job(job).state) == (2, JobState.RUNNING)


class TestStop:
    def test_a_job_that_has_not_run_is_killed_at_once(self, sqlite_stage: Stage) -> None:
        job = sqlite_stage.submit()
        assert execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin).state is JobState.KILLED

    def test_a_job_whose_attempt_no_agent_has_heard_of_is_killed_at_once(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        look(sqlite_stage.platform)
        assert execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin).state is JobState.KILLED
        assert sqlite_stage.holding() == {}
        assert node.fetch() == {}

    def test_a_running_job_is_killed_when_its_last_process_is_gone(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        assert execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin).state is JobState.RUNNING
        desired = node.fetch()[job, 1].desired
        assert (desired.stop, desired.slots) == (True, ())
        assert sqlite_stage.holding() == {job: 4}
        sqlite_stage.settle()
        assert sqlite_stage.job(job).state is JobState.KILLED
        assert sqlite_stage.holding() == {}
        assert causes(sqlite_stage, job)[-1] == (ResizeCause.STOP, 4, 0)

    def test_a_script_that_dies_of_the_stop_has_not_failed(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin)
        node.end((job, 1), ExitKind.SCRIPT_ERROR, message="KeyboardInterrupt")
        assert sqlite_stage.job(job).state is JobState.KILLED

    def test_a_terminal_job_stays_what_it_is(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.end((job, 1), ExitKind.FINISHED)
        assert execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin).state is JobState.FINISHED


class TestNodes:
    def test_a_cordoned_node_keeps_its_engines_and_gets_no_new_ones(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node(slots=4)
        a = sqlite_stage.submit(workers=2)
        sqlite_stage.settle()
        fleet.cordon(sqlite_stage.platform, "n1")
        b = sqlite_stage.submit()
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {a: 2}
        waiting = sqlite_stage.job(b).waiting
        assert waiting is not None
        assert waiting.blocking == Blocking.NODES
        fleet.uncordon(sqlite_stage.platform, "n1")
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {a: 2, b: 2}

    def test_a_job_spanning_two_nodes_is_listed_on_the_second_when_the_coordinator_is_known(
        self, sqlite_stage: Stage
    ) -> None:
        first, second = sqlite_stage.node("n1", slots=2), sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit(workers=4)
        look(sqlite_stage.platform)
        assert first.fetch()[job, 1].desired.coordinator is None, "it hosts coordinator and driver"
        first.report((job, 1), ReportKind.ATTEMPT_STARTED, pid=1)
        first.report((job, 1), ReportKind.ENGINES_KNOWN, engines=4, steps_total=9, epochs=1)
        look(sqlite_stage.platform)
        assert sqlite_stage.holding() == {job: 4}
        assert second.fetch() == {}
        version = agents.assignments_version(sqlite_stage.platform, "n2")
        first.report((job, 1), ReportKind.COORDINATOR_AT, address="127.0.0.1:4711")
        assert agents.assignments_version(sqlite_stage.platform, "n2") > version
        guest = second.fetch()[job, 1]
        assert (guest.spec.driver, guest.desired.coordinator) == ("fork", "127.0.0.1:4711")
        assert first.fetch()[job, 1].desired.coordinator is None

    def test_draining_the_second_node_shrinks_the_job_and_it_grows_back_there_in_the_same_attempt(
        self, stage: Stage
    ) -> None:
        stage.node("n1", slots=2)
        second = stage.node("n2", slots=2)
        job = stage.submit(workers=4)
        stage.settle()
        fleet.drain(stage.platform, "n2")
        stage.settle()
        assert stage.holding() == {job: 2}
        assert second.running == {}
        assert (stage.job(job).fence, stage.job(job).state) == (1, JobState.RUNNING)
        assert causes(stage, job)[-1] == (ResizeCause.DRAIN, 4, 2)
        reported = len(second.reported)
        fleet.uncordon(stage.platform, "n2")
        look(stage.platform)
        assert second.fetch()[job, 1].spec.last_report_seq == reported, (
            "another supervisor is wanted, and its numbers go on"
        )
        stage.settle()
        assert stage.holding() == {job: 4}
        assert (stage.job(job).fence, len(second.running[job, 1])) == (1, 2)
        assert [report.seq for report in second.reported] == list(range(1, len(second.reported) + 1))
        before = stage.job(job)
        agents.record_reports(stage.platform, "n2", second.reported)
        assert (stage.job(job), stage.holding()) == (before, {job: 4}), "the first one's last word counts once"

    def test_a_node_is_not_given_to_a_job_again_before_its_supervisor_there_has_ended(
        self, sqlite_stage: Stage
    ) -> None:
        sqlite_stage.node("n1", slots=2)
        second = sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit(workers=4)
        sqlite_stage.settle()
        fleet.drain(sqlite_stage.platform, "n2")
        look(sqlite_stage.platform)
        for allocation in second.fetch()[job, 1].desired.leaving:
            second.gone((job, 1), allocation, ExitKind.LEFT)
        fleet.uncordon(sqlite_stage.platform, "n2")
        look(sqlite_stage.platform)
        assert sqlite_stage.holding() == {job: 2}
        second.end((job, 1), ExitKind.LEFT)
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {job: 4}

    def test_a_node_lost_before_it_fetched_what_it_was_given_costs_its_job_nothing(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node("n1", slots=2)
        second = sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit(workers=4)
        sqlite_stage.puppets.remove(second)
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {job: 4}
        look(sqlite_stage.platform, sqlite_stage.silence("n2"))
        assert sqlite_stage.holding() == {job: 2}
        assert (sqlite_stage.job(job).fence, sqlite_stage.job(job).state) == (1, JobState.RUNNING)
        assert causes(sqlite_stage, job)[-1] == (ResizeCause.NODE_LOST, 4, 2)

    def test_a_lost_node_ends_what_runs_only_there_and_its_slots_stay_booked_until_it_comes_back(
        self, sqlite_stage: Stage
    ) -> None:
        first, second = sqlite_stage.node("n1", slots=4), sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit(workers=4)
        sqlite_stage.settle()
        assert set(first.running) == {(job, 1)}
        sqlite_stage.puppets.remove(first)
        look(sqlite_stage.platform, sqlite_stage.silence("n1"))
        assert sqlite_stage.job(job).state is JobState.PENDING
        look(sqlite_stage.platform)
        sqlite_stage.clock.pass_(FENCE_SECONDS)
        sqlite_stage.settle()
        assert set(second.running) == {(job, 2)}
        assert sqlite_stage.holding() == {job: 6}, "four of them cannot be asked"
        desired = first.fetch()[job, 1].desired
        assert desired.stop, "the old attempt is fenced"
        first.obey()
        assert sqlite_stage.holding() == {job: 2}
        assert (sqlite_stage.job(job).fence, sqlite_stage.job(job).state) == (2, JobState.RUNNING)

    def test_a_lease_that_was_renewed_meanwhile_is_not_lost(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        observed = sqlite_stage.silence("n1")
        node.fetch()
        look(sqlite_stage.platform, observed)
        assert fleet.node(sqlite_stage.platform, "n1").health == "up"

    def test_a_rebooted_node_gives_back_everything_at_once(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        node.boot = "boot-2"
        node.join()
        assert sqlite_stage.holding() == {}
        node.running.clear()
        sqlite_stage.clock.pass_(1)
        sqlite_stage.settle()
        assert sqlite_stage.job(job).fence == 2


class TestRaces:
    def test_a_slot_that_no_agent_has_heard_of_is_free_again_at_once(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node(slots=2, engines=2)
        a = sqlite_stage.submit(workers=2)
        look(sqlite_stage.platform)
        node.obey()
        look(sqlite_stage.platform)
        assert sqlite_stage.holding() == {a: 2}
        b = sqlite_stage.submit(workers=2)
        look(sqlite_stage.platform)
        look(sqlite_stage.platform)
        assert sqlite_stage.holding() == {a: 1, b: 1}

    def test_a_slot_asked_back_is_named_until_it_is_reported_gone(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node(slots=2, engines=2)
        a = sqlite_stage.submit(workers=2)
        sqlite_stage.settle()
        sqlite_stage.submit(workers=2)
        node.obedient = False
        look(sqlite_stage.platform)
        desired = node.fetch()[a, 1].desired
        assert len(desired.slots) == len(desired.leaving) == 1
        node.gone((a, 1), desired.leaving[0], ExitKind.LEFT)
        assert node.fetch()[a, 1].desired.leaving == ()

    def test_the_version_moves_exactly_when_the_list_does(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node(slots=2, engines=2)
        seen = agents.assignments(sqlite_stage.platform, "n1")
        for change in ("nothing", "submit", "nothing", "second"):
            if change in {"submit", "second"}:
                sqlite_stage.submit(workers=2)
                look(sqlite_stage.platform)
            version = agents.assignments_version(sqlite_stage.platform, "n1")
            assert (version != seen.version) == (change != "nothing")
            node.obey()
            look(sqlite_stage.platform)
            seen = agents.assignments(sqlite_stage.platform, "n1")


class TestTimes:
    @pytest.mark.parametrize("woken_by", ["notification", "timer"])
    def test_a_resize_keeps_what_woke_its_agent_and_when_each_step_happened(
        self, sqlite_stage: Stage, woken_by: str
    ) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit()
        look(sqlite_stage.platform)
        decided = sqlite_stage.clock.now
        sqlite_stage.clock.pass_(0.2)
        node.obey(woken_by)
        sqlite_stage.clock.pass_(1)
        node.fetch("start")
        (resize,) = history.resizes(sqlite_stage.platform, job, viewer=sqlite_stage.admin)
        assert (resize.decided_at, resize.woken_by, resize.woken_at) == (decided, woken_by, decided + 0.2)
        assert resize.started_at == resize.joined_at == resize.first_step_at == decided + 0.2

    def test_a_shrink_keeps_its_pause_and_when_the_process_was_gone(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        a = sqlite_stage.submit()
        sqlite_stage.settle()
        sqlite_stage.submit()
        look(sqlite_stage.platform)
        leaving = list(node.fetch()[a, 1].desired.leaving)
        body = {"generation": 9, "step": 42, "workers": 2, "pause_seconds": 0.01, "joined": [], "left": leaving}
        node.report((a, 1), ReportKind.RESIZED, **body)
        sqlite_stage.clock.pass_(3)
        node.obey()
        resize = history.resizes(sqlite_stage.platform, a, viewer=sqlite_stage.admin)[-1]
        assert (resize.workers, resize.pause_seconds, resize.step) == (2, 0.01, 42)
        assert resize.gone_at == sqlite_stage.clock.now
        assert sqlite_stage.job(a).workers == 2


class TestTheWritersLock:
    def test_what_nodes_say_all_the_time_changes_nothing_that_a_decision_depends_on(self, stage: Stage) -> None:
        """So what was decided before the lock was taken still holds under it."""
        node = stage.node(slots=4)
        job = stage.submit(workers=2)
        stage.submit(workers=2)
        stage.settle()
        before = rows(stage)
        node.fetch()
        agents.record_usage(stage.platform, node.name, [SlotUse("0", 0.5, 7, None, None)])
        agents.record_reports(stage.platform, node.name, [])
        progress = {"step": 7, "of": 100, "workers": 2, "epoch": 1, "epochs": 3, "loss": 0.5, "samples_per_second": 9.0}
        node.report((job, 1), ReportKind.PROGRESS, **progress)
        assert stage.job(job).progress["step"] == 7
        assert rows(stage).same(before)

    def test_a_plan_is_made_anew_where_something_else_is_the_case_under_the_lock(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.node(slots=2, engines=2)
        a, b = stage.submit(workers=2), stage.submit(workers=2)
        raise_to = fence_files.raise_to

        def stopped_meanwhile(folder: Path, fence: int) -> None:
            raise_to(folder, fence)
            execs.stop(stage.platform, a, viewer=stage.admin)

        with monkeypatch.context() as patch:
            patch.setattr(fence_files, "raise_to", stopped_meanwhile)
            look(stage.platform)
        assert stage.holding() == {b: 1}
        assert stage.job(a).state is JobState.KILLED

    def test_a_job_that_comes_between_two_reads_starts_with_the_next_look(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = stage.node(slots=2, engines=2)
        came: list[str] = []
        submitted = jobs.submitted

        def one_comes(tx: Connection, most: int) -> list[int]:
            found = submitted(tx, most)
            if not found and not came:
                came.append("soon")
            return found

        class Comes(type(stage.platform.database)):  # type: ignore[misc]  # the real one
            @contextmanager
            def snapshot(self) -> Iterator[Connection]:
                if came == ["soon"]:
                    came[:] = ["now"]
                    came.append(stage.submit(workers=1))
                with super().snapshot() as tx:
                    yield tx

        first = stage.submit(workers=1)
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "submitted", one_comes)
            patch.setattr(stage.platform.database, "__class__", Comes)
            look(stage.platform)
        _, late = came
        assert stage.holding() == {first: 1}
        look(stage.platform)
        node.obey()
        assert {stage.job(each).state for each in (first, late)} == {JobState.RUNNING}

    def test_why_many_jobs_wait_is_written_a_few_at_a_time_and_told_of_every_one(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.node(slots=1, engines=1)
        queue = [stage.submit(workers=1) for _ in range(50)]
        written: list[int] = []
        explain = jobs.explain

        def counted(tx: Connection, news: Mapping[int, Mapping[str, Any] | None]) -> set[int]:
            written.append(len(news))
            return explain(tx, news)

        monkeypatch.setattr(jobs, "explain", counted)
        look(stage.platform)
        assert sorted(written) == [1, 9, 10, 10, 10, 10]
        ranks = [waiting.rank for job in queue if (waiting := stage.job(job).waiting) is not None]
        assert ranks == list(range(1, 50))


def rows(stage: Stage) -> Rows:
    with stage.platform.database.snapshot() as tx:
        return read(tx, stage.platform.secret_key.keys())
