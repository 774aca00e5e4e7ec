"""What ends unasked while the attempt goes on: engines, supervisors, joins without weights, kills for memory."""

from __future__ import annotations

import pytest

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.model.jobs import cap_seconds, losses_in_a_row
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.operations import execs, fleet, history
from edt_scheduler.views import EventView, ResizeView
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def resizes(stage: Stage, job: str) -> list[ResizeView]:
    return history.resizes(stage.platform, job, viewer=stage.admin)


def events(stage: Stage, job: str) -> list[EventView]:
    return history.events(stage.platform, job, viewer=stage.admin)


def start(stage: Stage, **spec: object) -> tuple[Puppet, str]:
    """A job on four slots of one node."""
    node = stage.node()
    job = stage.submit(**spec)
    stage.settle()
    assert stage.holding() == {job: 4}
    return node, job


def kill(node: Puppet, job: str, fence: int = 1, **body: object) -> int:
    """SIGKILL to the youngest engine; its allocation."""
    victim = max(node.running[job, fence])
    node.gone((job, fence), victim, ExitKind.LOST, signal=9, **body)
    return victim


class TestEngines:
    def test_a_killed_engine_frees_its_slot_and_its_attempt_goes_on(self, stage: Stage) -> None:
        node, job = start(stage)
        kill(node, job)
        look(stage.platform)
        assert stage.holding() == {job: 3}
        assert (stage.job(job).fence, stage.job(job).state) == (1, JobState.RUNNING)
        assert len(node.fetch()[job, 1].desired.slots) == 3

    @pytest.mark.parametrize("first", ["engine", "group"])
    @pytest.mark.parametrize(
        ("kind", "group_says", "cause"),
        [(ExitKind.LOST, "lost", ResizeCause.ENGINE_LOST), (ExitKind.LEFT, "left", ResizeCause.LEFT)],
    )
    def test_who_goes_unasked_is_one_resize_with_its_cost_whoever_tells_first(
        self, stage: Stage, first: str, kind: ExitKind, group_says: str, cause: ResizeCause
    ) -> None:
        node, job = start(stage)
        victim = max(node.running[job, 1])
        resized = {"generation": 7, "step": 42, "workers": 3, "pause_seconds": 0.08, "recomputed": 2}

        def group() -> None:
            gone = {"left": [], "lost": [], group_says: [victim]}
            node.report((job, 1), ReportKind.RESIZED, joined=[], **gone, **resized)

        if first == "group":
            group()
        stage.clock.pass_(0.5)
        node.gone((job, 1), victim, kind)
        if first == "engine":
            group()
        (loss,) = [each for each in resizes(stage, job) if each.cause in {ResizeCause.ENGINE_LOST, ResizeCause.LEFT}]
        assert loss.cause is cause
        assert (loss.from_slots, loss.to_slots, loss.gone_at) == (4, 3, stage.clock.now)
        assert (loss.generation, loss.step, loss.workers, loss.pause_seconds, loss.recomputed) == (7, 42, 3, 0.08, 2)
        assert events(stage, job)[-1].kind == "resize"
        assert events(stage, job)[-1].message.startswith("4 → 3 slots: engine")

    def test_engines_that_their_node_lets_go_in_order_are_no_loss(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        for allocation in sorted(node.running[job, 1])[:3]:
            node.gone((job, 1), allocation, ExitKind.LEFT)
        node.gone((job, 1), max(node.running[job, 1]), ExitKind.LOST, signal=9)
        causes = [each.cause for each in resizes(sqlite_stage, job)]
        assert causes.count(ResizeCause.LEFT) == 3
        assert causes.count(ResizeCause.ENGINE_LOST) == 1
        assert "its node let it go" in resizes(sqlite_stage, job)[-2].detail

    @pytest.mark.parametrize("kind", [ExitKind.LEFT, ExitKind.STOPPED, ExitKind.FINISHED])
    def test_a_part_that_ends_as_somebody_wanted_takes_its_engines_along_and_none_is_lost(
        self, sqlite_stage: Stage, kind: ExitKind
    ) -> None:
        sqlite_stage.node("n1", slots=2)
        guest = sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        guest.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=kind, whole=False)
        assert [each.cause for each in resizes(sqlite_stage, job)][-1] is ResizeCause.LEFT
        assert sqlite_stage.job(job).fence == 1

    @pytest.mark.parametrize("how", ["stop", "drain"])
    def test_engines_of_a_job_that_is_stopped_or_on_a_node_that_is_drained_are_not_lost_however_they_end(
        self, sqlite_stage: Stage, how: str
    ) -> None:
        node, job = start(sqlite_stage)
        if how == "stop":
            execs.stop(sqlite_stage.platform, job, viewer=sqlite_stage.admin)
        else:
            fleet.drain(sqlite_stage.platform, "n1")
            look(sqlite_stage.platform)
        for allocation in sorted(node.running[job, 1]):
            node.gone((job, 1), allocation, ExitKind.LOST, signal=9)
        assert not {each.cause for each in resizes(sqlite_stage, job)} & {
            ResizeCause.ENGINE_LOST,
            ResizeCause.NODE_LOST,
        }

    def test_what_became_of_it_is_said_in_words(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        victim = kill(node, job)
        assert resizes(sqlite_stage, job)[-1].detail == f"engine {victim} on n1 was lost by signal 9"
        victim = max(node.running[job, 1])
        node.gone((job, 1), victim, ExitKind.SCRIPT_ERROR, code=1, message="OSError: bad GPU")
        assert resizes(sqlite_stage, job)[-1].detail == f"engine {victim} on n1 raised: OSError: bad GPU"
        assert sqlite_stage.job(job).state is JobState.RUNNING

    def test_its_slot_is_asked_for_again_after_a_wait_that_doubles_and_is_forgotten(self, stage: Stage) -> None:
        node, job = start(stage)
        for wait in (1, 2, 4, 8, 16, 32, 60, 60):
            kill(node, job)
            stage.clock.pass_(wait - 0.25)
            stage.settle()
            assert stage.holding() == {job: 3}
            stage.clock.pass_(0.25)
            stage.settle()
            assert stage.holding() == {job: 4}
        newest = resizes(stage, job)[-1]
        assert (newest.cause, newest.detail) == (ResizeCause.SLOTS_FREE, "in place of an engine that was lost")
        stage.clock.pass_(301)
        kill(node, job)
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 4}
        assert stage.job(job).fence == 1

    def test_a_row_of_losses_ends_where_five_minutes_passed_without_one(self) -> None:
        assert losses_in_a_row([]) == 0
        assert losses_in_a_row([100.0]) == 1
        assert losses_in_a_row([100.0, 400.0, 350.0]) == 3
        assert losses_in_a_row([100.0, 401.0]) == 1
        assert losses_in_a_row([100.0, 100.2, 100.4]) == 1, "a supervisor takes its engines along"

    def test_an_engine_that_was_asked_back_and_dies_is_no_loss(self, sqlite_stage: Stage) -> None:
        node, a = start(sqlite_stage)
        sqlite_stage.submit()
        look(sqlite_stage.platform)
        for allocation in node.fetch()[a, 1].desired.leaving:
            node.gone((a, 1), allocation, ExitKind.LOST, signal=9)
        assert ResizeCause.ENGINE_LOST not in {each.cause for each in resizes(sqlite_stage, a)}

    def test_the_coordinator_speaks_of_engines_on_other_nodes_too(self, sqlite_stage: Stage) -> None:
        first = sqlite_stage.node("n1", slots=2)
        sqlite_stage.node("n2", slots=2)
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {job: 4}
        guest = history.timeline(sqlite_stage.platform, viewer=sqlite_stage.admin).allocations[-1]
        assert guest.node == "n2"
        sqlite_stage.clock.pass_(1)
        first.report((job, 1), ReportKind.ENGINE_JOINED, allocation=guest.allocation, generation=3, step=8)
        first.report((job, 1), ReportKind.RESIZED, workers=4, joined=[guest.allocation], left=[], pause_seconds=0.01)
        assert resizes(sqlite_stage, job)[-1].joined_at == sqlite_stage.clock.now
        assert resizes(sqlite_stage, job)[-1].pause_seconds == 0.01

    def test_a_restarted_driver_or_coordinator_is_an_event(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        node.report((job, 1), ReportKind.RESTARTED, what="driver", why="ended by signal 9", count=1)
        node.report((job, 1), ReportKind.RESTARTED, what="coordinator", why="ended by signal 11", count=2)
        assert [each.message for each in events(sqlite_stage, job)[-2:]] == [
            "the driver was started again: ended by signal 9",
            "the coordinator was started again, time 2: ended by signal 11",
        ]
        assert sqlite_stage.job(job).state is JobState.RUNNING


class TestPreemption:
    def test_an_engine_that_left_unasked_is_replaced(self, stage: Stage) -> None:
        """SIGTERM from outside has asked it. With it nothing was lost, so its slot is not waited for."""
        node, job = start(stage)
        node.gone((job, 1), max(node.running[job, 1]), ExitKind.LEFT)
        assert stage.holding() == {job: 3}
        stage.settle()
        assert stage.holding() == {job: 4} and stage.job(job).fence == 1

    def test_an_engine_that_left_after_another_was_lost_is_not_waited_for_either(self, stage: Stage) -> None:
        node, job = start(stage)
        kill(node, job)
        stage.clock.pass_(1)
        stage.settle()
        node.gone((job, 1), max(node.running[job, 1]), ExitKind.LEFT)
        stage.settle()
        assert stage.holding() == {job: 4}

    def test_engines_that_left_do_not_lengthen_the_wait_after_a_loss(self, stage: Stage) -> None:
        node, job = start(stage)
        for _ in range(4):
            node.gone((job, 1), max(node.running[job, 1]), ExitKind.LEFT)
            stage.clock.pass_(5)
            stage.settle()
        kill(node, job)
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 4}, "the first loss is waited for as the first"

    def test_a_job_that_is_preempted_again_and_again_goes_on_after_a_minute_at_most(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        for fence in range(1, 31):
            kill(node, job, fence)
            node.end((job, fence), ExitKind.LOST, message="killed by signal 9")
            assert sqlite_stage.job(job).state is JobState.PENDING
            sqlite_stage.clock.pass_(60)
            sqlite_stage.settle()
            assert sqlite_stage.holding() == {job: 4}
        assert (sqlite_stage.job(job).state, sqlite_stage.job(job).fence) == (JobState.RUNNING, 31)


class TestMemory:
    def test_the_first_kill_for_memory_is_a_loss_and_the_second_ends_the_job(self, stage: Stage) -> None:
        node, job = start(stage)
        kill(node, job, oom=True)
        assert resizes(stage, job)[-1].detail.endswith("was killed for memory")
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 4}
        kill(node, job, oom=True)
        assert node.fetch()[job, 1].desired.stop
        stage.settle()
        view = stage.job(job)
        assert view.state is JobState.ERROR
        assert view.message is not None
        assert view.message.startswith("out of memory: an engine was killed for it for the second time; ask for less")
        assert stage.holding() == {}

    def test_one_kill_told_twice_counts_once(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        for allocation in list(node.running[job, 1])[1:]:
            node.gone((job, 1), allocation, ExitKind.LOST)
        kill(node, job, oom=True)
        node.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.LOST, whole=True, oom=True)
        assert sqlite_stage.job(job).state is JobState.PENDING

    def test_an_attempt_that_ends_by_a_second_kill_is_the_scripts(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        node.end((job, 1), ExitKind.LOST, oom=True)
        assert sqlite_stage.job(job).state is JobState.PENDING
        sqlite_stage.clock.pass_(1)
        sqlite_stage.settle()
        node.end((job, 2), ExitKind.LOST, oom=True)
        assert sqlite_stage.job(job).state is JobState.ERROR


class TestWeights:
    def test_a_joining_engine_without_weights_caps_its_job_for_a_while_that_doubles(self, stage: Stage) -> None:
        node, job = start(stage)
        for seconds in (60, 120, 240):
            node.gone((job, 1), max(node.running[job, 1]), ExitKind.PULL_FAILED)
            assert events(stage, job)[-1].message == (
                "a joining engine could not get the weights and gave its slot back: "
                f"at most 3 slots for the next {seconds} s"
            )
            stage.clock.pass_(seconds - 1)
            stage.settle()
            assert stage.holding() == {job: 3}
            fleet.cordon(stage.platform, "n1")  # else the joining engine of the next line would get its weights
            stage.clock.pass_(1)
            fleet.uncordon(stage.platform, "n1")
            node.obedient = False
            look(stage.platform)
            assert stage.holding() == {job: 4}
            (newest,) = node.fetch()[job, 1].desired.slots[3:]
            node.running[job, 1][newest.allocation] = newest.slot
        assert [cap_seconds(failures) for failures in (1, 2, 5, 6, 60)] == [60, 120, 960, 1800, 1800]

    def test_a_joining_engine_that_gets_them_makes_the_next_failure_the_first_again(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        for _ in range(2):
            node.gone((job, 1), max(node.running[job, 1]), ExitKind.PULL_FAILED)
            sqlite_stage.clock.pass_(60)
            sqlite_stage.settle()
            assert sqlite_stage.holding() == {job: 4}

    def test_a_capped_job_is_not_alone_for_long(self, sqlite_stage: Stage) -> None:
        node, job = start(sqlite_stage)
        for _ in range(4):
            node.gone((job, 1), max(node.running[job, 1]), ExitKind.PULL_FAILED)
        waiting = sqlite_stage.job(job)
        assert (waiting.state, waiting.fence) == (JobState.RUNNING, 1)
        node.end((job, 1), ExitKind.LOST)
        sqlite_stage.clock.pass_(1)
        sqlite_stage.settle()
        assert sqlite_stage.holding() == {job: 1}, "at least one"
