"""Where an attempt lives, and that it outlives the node it lived on. Played on both databases."""

from __future__ import annotations

from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.operations import agents, fleet, history
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()


def span(stage: Stage, *slots: int) -> tuple[str, list[Puppet]]:
    """A job of four engines over nodes n1, n2 … of so many slots, at home on the first."""
    nodes = [stage.node(f"n{number}", slots=each) for number, each in enumerate(slots, start=1)]
    job = stage.submit()
    stage.settle()
    assert set(nodes[0].hosting) == {(job, 1)}
    assert stage.holding() == {job: 4}
    return job, nodes


def coordinator(node: Puppet, job: str) -> str | None:
    return node.fetch()[job, 1].desired.coordinator


def event_messages(stage: Stage, job: str, kind: str) -> list[str]:
    return [each.message for each in history.events(stage.platform, job, viewer=stage.admin) if each.kind == kind]


def causes(stage: Stage, job: str) -> list[tuple[ResizeCause, int, int]]:
    found = history.resizes(stage.platform, job, viewer=stage.admin)
    return [(each.cause, each.from_slots, each.to_slots) for each in found]


def lives_on(stage: Stage, job: str) -> bool:
    return (stage.job(job).fence, stage.job(job).state) == (1, JobState.RUNNING)


class TestDrain:
    def test_draining_the_home_names_a_successor_and_the_attempt_goes_on(self, stage: Stage) -> None:
        job, (first, second, third) = span(stage, 2, 1, 1)
        fleet.drain(stage.platform, "n1")
        stage.settle()
        assert lives_on(stage, job)
        assert first.running == {}
        assert second.hosting == {(job, 1)}
        assert coordinator(third, job) == "n2:1"
        assert stage.holding() == {job: 2}
        moved = "coordinator and driver move from n1 to n2: node n1 is draining"
        assert event_messages(stage, job, "head-node") == [moved]
        assert causes(stage, job)[-1] == (ResizeCause.DRAIN, 4, 2)

    def test_the_old_home_hosts_on_until_the_new_one_has_told_its_address(self, stage: Stage) -> None:
        job, (first, second, third) = span(stage, 2, 1, 1)
        fleet.drain(stage.platform, "n1")
        look(stage.platform)
        assert (coordinator(first, job), coordinator(second, job), coordinator(third, job)) == (None, None, "n1:1")
        first.obey()
        assert set(first.running) == {(job, 1)}, "it has no engine left, and is needed"
        versions = [agents.assignments_version(stage.platform, name) for name in ("n1", "n3")]
        second.report((job, 1), ReportKind.COORDINATOR_AT, address="n2:9")
        assert (coordinator(first, job), coordinator(second, job), coordinator(third, job)) == ("n2:9", None, "n2:9")
        assert all(
            agents.assignments_version(stage.platform, name) > version
            for name, version in zip(("n1", "n3"), versions, strict=True)
        )
        first.report((job, 1), ReportKind.COORDINATOR_AT, address="n1:2")
        assert coordinator(third, job) == "n2:9", "who was home says nothing of it any more"

    def test_until_then_the_old_home_may_tell_another_address(self, sqlite_stage: Stage) -> None:
        job, (first, _, third) = span(sqlite_stage, 2, 1, 1)
        fleet.drain(sqlite_stage.platform, "n1")
        look(sqlite_stage.platform)
        first.report((job, 1), ReportKind.COORDINATOR_AT, address="n1:2")
        assert coordinator(third, job) == "n1:2"

    def test_a_node_that_was_home_is_a_guest_when_the_job_grows_back_there(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 3, 1)
        fleet.drain(stage.platform, "n1")
        stage.settle()
        fleet.uncordon(stage.platform, "n1")
        stage.settle()
        assert lives_on(stage, job)
        assert stage.holding() == {job: 4}
        assert coordinator(first, job) == "n2:1"
        assert (first.hosting, second.hosting) == (set(), {(job, 1)})
        fleet.drain(stage.platform, "n2")
        stage.settle()
        assert lives_on(stage, job)
        assert first.hosting == {(job, 1)}

    def test_draining_the_only_node_moves_the_job_to_another_without_a_stop(self, sqlite_stage: Stage) -> None:
        job, (first, second) = span(sqlite_stage, 4, 2)
        fleet.drain(sqlite_stage.platform, "n1")
        sqlite_stage.settle()
        assert first.running == {}
        assert set(second.running) == {(job, 1)}
        assert sqlite_stage.job(job).state is JobState.RUNNING


class TestDeath:
    def test_a_home_whose_supervisor_is_buried_is_followed(self, stage: Stage) -> None:
        job, (first, second, third) = span(stage, 2, 1, 1)
        first.bury((job, 1))
        assert lives_on(stage, job)
        assert coordinator(second, job) is None
        assert coordinator(third, job) == "n1:1", "nobody has told another one yet"
        stage.settle()
        assert coordinator(third, job) == "n2:1"
        assert stage.holding() == {job: 2}
        assert causes(stage, job)[-2:] == [(ResizeCause.ENGINE_LOST, 4, 3), (ResizeCause.ENGINE_LOST, 3, 2)]
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 4}
        assert coordinator(first, job) == "n2:1", "it is back, as a guest"
        assert [report.seq for report in first.reported] == list(range(1, len(first.reported) + 1))

    def test_a_home_that_lost_its_last_engine_hands_over_and_leaves(self, stage: Stage) -> None:
        first, second = stage.node("n1", slots=1, engines=2), stage.node("n2", slots=1, engines=2)
        job = stage.submit(workers=2)
        stage.settle()
        first.gone((job, 1), min(first.running[job, 1]), ExitKind.LOST, signal=9)
        item = first.fetch()[job, 1]
        assert (item.desired.slots, item.desired.coordinator, coordinator(second, job)) == ((), None, None)
        stage.settle()
        assert lives_on(stage, job)
        assert (set(first.running), second.hosting) == (set(), {(job, 1)})
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 2}

    def test_a_host_that_died_and_is_back_before_its_follower_has_spoken_does_not_host(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        first.bury((job, 1))
        stage.clock.pass_(1)
        look(stage.platform)
        assert len(first.fetch()[job, 1].desired.slots) == 2
        assert (coordinator(first, job), coordinator(second, job)) == ("n1:1", None)

    def test_a_buried_guest_costs_its_engines(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        second.bury((job, 1))
        stage.settle()
        assert lives_on(stage, job)
        assert stage.holding() == {job: 2}
        assert first.hosting == {(job, 1)}
        stage.clock.pass_(1)
        stage.settle()
        assert stage.holding() == {job: 4}

    def test_with_nobody_left_the_attempt_is_lost(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        first.bury((job, 1))
        second.bury((job, 1))
        assert stage.job(job).state is JobState.PENDING
        assert stage.holding() == {}
        stage.clock.pass_(1)
        stage.settle()
        assert (stage.job(job).fence, stage.job(job).state) == (2, JobState.RUNNING)

    def test_a_joining_engine_without_weights_does_not_follow(self, sqlite_stage: Stage) -> None:
        first = sqlite_stage.node("n1", slots=2)
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        second = sqlite_stage.node("n2", slots=2)
        look(sqlite_stage.platform)
        assert len(second.fetch()[job, 1].desired.slots) == 2
        first.bury((job, 1))
        assert second.fetch()[job, 1].desired.stop

    def test_a_node_on_which_no_engine_ever_comes_to_start_is_left_alone(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node("n1", slots=2)
        broken = sqlite_stage.node("n2", slots=2)
        sqlite_stage.puppets.remove(broken)
        job = sqlite_stage.submit()
        sqlite_stage.settle()
        for _ in range(2):
            for slot in broken.fetch()[job, 1].desired.slots:
                broken.report((job, 1), ReportKind.ENGINE_GONE, allocation=slot.allocation, kind=ExitKind.LOST)
            broken.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.LOST, message="could not be started")
            sqlite_stage.clock.pass_(301)
            look(sqlite_stage.platform)
        assert broken.fetch() == {}
        sqlite_stage.node("n3", slots=2)
        sqlite_stage.settle()
        assert (lives_on(sqlite_stage, job), sqlite_stage.holding()) == (True, {job: 4})

    def test_a_whole_end_is_for_the_host_to_say(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        for allocation in list(second.running[job, 1]):
            second.gone((job, 1), allocation, ExitKind.LOST)
        second.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.LOST, whole=True)
        assert lives_on(stage, job)
        first.end((job, 1), ExitKind.SCRIPT_ERROR, message="ValueError: no")
        assert (stage.job(job).state, stage.job(job).message) == (JobState.ERROR, "ValueError: no")

    def test_a_script_that_came_to_its_end_has_done_so_whoever_says_it(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        fleet.drain(stage.platform, "n1")
        look(stage.platform)
        second.report((job, 1), ReportKind.COORDINATOR_AT, address="n2:9")
        first.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.FINISHED, whole=True, digest="d")
        stage.settle()
        assert (stage.job(job).state, stage.job(job).digest) == (JobState.FINISHED, "d")


class TestLease:
    def test_a_lost_guest_shrinks_its_attempt_and_its_slots_stay_booked_until_it_says_so(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        stage.puppets.remove(second)
        look(stage.platform, stage.silence("n2"))
        stage.settle()
        assert lives_on(stage, job)
        assert stage.holding() == {job: 4}, "two of them cannot be asked"
        assert causes(stage, job)[-1] == (ResizeCause.NODE_LOST, 4, 2)
        lost = list(second.running[job, 1])
        resized = {"workers": 2, "joined": [], "left": [], "lost": lost, "pause_seconds": 0.2}
        first.report((job, 1), ReportKind.RESIZED, **resized)
        assert history.resizes(stage.platform, job, viewer=stage.admin)[-1].pause_seconds == 0.2
        item = second.fetch()[job, 1]
        assert (item.desired.slots, sorted(item.desired.leaving), item.desired.stop) == ((), sorted(lost), False)
        stage.puppets.append(second)
        stage.settle()
        assert lives_on(stage, job)
        assert stage.holding() == {job: 4}
        assert len(second.running[job, 1]) == 2

    def test_a_lost_home_is_followed_and_the_job_asks_for_its_slots_elsewhere(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        stage.node("n3", slots=2)
        stage.puppets.remove(first)
        look(stage.platform, stage.silence("n1"))
        stage.settle()
        assert lives_on(stage, job)
        assert second.hosting == {(job, 1)}
        assert len(stage.puppets[-1].running[job, 1]) == 2
        assert stage.fence(job) == 1, "its attempt is not over"
        first.obey()
        assert first.running == {}
        assert stage.holding() == {job: 4}

    def test_a_lost_node_that_was_started_anew_gives_back_what_was_booked(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        look(stage.platform, stage.silence("n1"))
        first.reboot()
        assert lives_on(stage, job)
        assert second.fetch()[job, 1].desired.coordinator is None
        stage.puppets.remove(first)
        stage.settle()
        assert stage.holding() == {job: 2}

    def test_a_home_that_was_started_anew_before_its_lease_ran_out_is_followed(self, stage: Stage) -> None:
        job, (first, second) = span(stage, 2, 2)
        first.reboot()
        stage.settle()
        assert lives_on(stage, job)
        assert second.hosting == {(job, 1)}
        assert causes(stage, job)[-1] == (ResizeCause.ENGINE_LOST, 4, 2)

    def test_both_nodes_lost_end_the_attempt_and_fence_it(self, stage: Stage) -> None:
        job, _ = span(stage, 2, 2)
        stage.puppets.clear()
        look(stage.platform, stage.silence("n1"))
        assert lives_on(stage, job)
        look(stage.platform, stage.silence("n2"))
        look(stage.platform)
        assert (stage.job(job).state, stage.fence(job)) == (JobState.PENDING, 2)
        third = stage.node("n3", slots=2)
        stage.clock.pass_(FENCE_SECONDS)
        stage.settle()
        assert set(third.running) == {(job, 2)}


def test_the_start_of_a_second_home_changes_nothing_of_the_job(sqlite_stage: Stage) -> None:
    job, (first, second) = span(sqlite_stage, 2, 2)
    started = sqlite_stage.job(job).started_at
    states = event_messages(sqlite_stage, job, "state")
    first.bury((job, 1))
    sqlite_stage.clock.pass_(7)
    second.report((job, 1), ReportKind.ATTEMPT_STARTED, pid=9)
    second.report((job, 1), ReportKind.ENGINES_KNOWN, engines=4, steps_total=100, epochs=2)
    assert (sqlite_stage.job(job).started_at, event_messages(sqlite_stage, job, "state")) == (started, states)


def test_no_home_moves_once_an_engine_has_finished(stage: Stage) -> None:
    job, (first, second) = span(stage, 2, 2)
    for allocation in list(first.running[job, 1]):
        first.gone((job, 1), allocation, ExitKind.FINISHED)
    stage.settle()
    assert event_messages(stage, job, "head-node") == []
    for allocation in list(second.running[job, 1]):
        second.gone((job, 1), allocation, ExitKind.FINISHED)
    second.end((job, 1), ExitKind.FINISHED)
    assert stage.job(job).state is JobState.RUNNING, "its driver goes on"
    first.end((job, 1), ExitKind.FINISHED, digest="d")
    assert stage.job(job).state is JobState.FINISHED
