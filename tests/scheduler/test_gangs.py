"""Attempts of gangs: what their nodes are told, and how the attempt ends when a part of it does."""

from __future__ import annotations

import pytest

from edt_contract.attempt import GANG_PROTOCOL, PROTOCOL, Assignment
from edt_contract.gang import Gang, GangCommand, GangNode, Processes, Rendezvous
from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.home.fence_files import FENCE_SECONDS
from edt_scheduler.model.jobs import LOSSES_APART_SECONDS, listed
from edt_scheduler.model.states import JobState, ResizeCause
from edt_scheduler.operations import execs, fleet, history
from edt_scheduler.store import attempts
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()

COMMAND = GangCommand(("{python}", "-u", "{main}"), Processes.DEVICE, (Rendezvous.TORCH,), {"HOROVOD_CYCLE_TIME": "1"})


def submit(stage: Stage, workers: int = 4, **changes: object) -> str:
    return stage.submit(workers, **{"framework": "distPyTorch", "gang": COMMAND, **changes})


def placed(stage: Stage, *slots: int, **changes: object) -> tuple[str, list[Puppet]]:
    """A gang over nodes n1, n2 … of so many slots, before any agent has heard of it."""
    nodes = [stage.node(f"n{number}", slots=each) for number, each in enumerate(slots, start=1)]
    job = submit(stage, sum(slots), **changes)
    look(stage.platform)
    assert stage.holding() == {job: sum(slots)}
    return job, nodes


def running(stage: Stage, *slots: int, **changes: object) -> tuple[str, list[Puppet]]:
    """A gang whose processes run on nodes n1, n2 … of so many slots."""
    job, nodes = placed(stage, *slots, **changes)
    stage.settle()
    assert sum(len(node.running[job, 1]) for node in nodes) == sum(slots)
    assert (stage.job(job).state, stage.job(job).workers) == (JobState.RUNNING, sum(slots))
    return job, nodes


def told(node: Puppet, job: str, fence: int = 1) -> Assignment:
    return node.fetch()[job, fence]


def gang_of(assignment: Assignment) -> Gang:
    assert assignment.spec.gang is not None
    return assignment.spec.gang


def fails(node: Puppet, job: str, message: str = "rank 0 ended with status 3", fence: int = 1) -> None:
    """One of its processes ends by an error, the others of the node are ended, and the supervisor says so."""
    key = (job, fence)
    node.gone(key, min(node.running[key]), ExitKind.SCRIPT_ERROR, message=message, code=3)
    node.end(key, ExitKind.SCRIPT_ERROR, message=message, code=3)


def messages(stage: Stage, job: str, kind: str = "attempt") -> list[str]:
    return [each.message for each in history.events(stage.platform, job, viewer=stage.admin) if each.kind == kind]


def causes(stage: Stage, job: str) -> list[tuple[ResizeCause, int, int]]:
    found = history.resizes(stage.platform, job, viewer=stage.admin)
    return [(each.cause, each.from_slots, each.to_slots) for each in found]


def outcome(stage: Stage, job: str) -> tuple[JobState, int, str | None]:
    view = stage.job(job)
    return view.state, view.fence, view.message


class TestWhatNodesAreTold:
    def test_each_node_hears_of_the_whole_gang_at_once_and_begins_with_the_head_node(self, stage: Stage) -> None:
        job, nodes = placed(stage, 1, 2, 1)
        listed_items = [told(node, job) for node in nodes]
        gang = gang_of(listed_items[0])
        assert all(item.spec.gang == gang for item in listed_items)
        assert (gang.command, gang.devices) == (COMMAND, 1)
        own = {item.spec.node: tuple(slot.allocation for slot in item.desired.slots) for item in listed_items}
        assert gang.nodes == tuple(GangNode(name, "127.0.0.1", own[name]) for name in ("n2", "n1", "n3"))
        for item in listed_items:
            assert (item.spec.protocol, item.spec.max_engines, item.spec.framework) == (GANG_PROTOCOL, 4, "pytorch")
            assert (item.desired.coordinator, item.desired.ports) == (None, ())
            assert item.spec.environ["HOROVOD_CYCLE_TIME"] == "1"

    def test_the_list_of_its_processes_numbers_them_as_they_were_told_whatever_the_language_of_the_database(
        self, stage: Stage
    ) -> None:
        for name, slots in (("head", 2), ("gpu1", 1), ("gpu-2", 1), ("GPU3", 1)):
            stage.node(name, slots=slots)
        job = submit(stage, 5)
        stage.settle()
        gang = gang_of(told(stage.puppets[0], job))
        assert [part.node for part in gang.nodes] == ["head", "GPU3", "gpu-2", "gpu1"]
        (listed_processes,) = history.processes(stage.platform, [stage.job(job)]).values()
        ranks = [(process.rank, process.held.allocation, process.held.node) for process in listed_processes.engines]
        each = [(number, part.node) for part in gang.nodes for number in part.allocations]
        assert ranks == [(rank, number, node) for rank, (number, node) in enumerate(each)]

    def test_they_hear_the_ports_when_the_last_node_has_told_its_own(self, stage: Stage) -> None:
        job, (first, second) = placed(stage, 2, 2)
        for node, ports in ((second, [7, 8, 9]), (first, [4, 5, 6])):
            assert [told(each, job).desired.ports for each in (first, second)] == [(), ()]
            node.report((job, 1), ReportKind.PORTS_RESERVED, ports=ports)
        assert [told(each, job).desired.ports for each in (first, second)] == [((4, 5, 6), (7, 8, 9))] * 2

    def test_ports_that_a_supervisor_tells_once_more_change_nothing(self, sqlite_stage: Stage) -> None:
        job, (only,) = placed(sqlite_stage, 2)
        for ports in ([4, 5, 6], [7, 8, 9], [7]):
            only.report((job, 1), ReportKind.PORTS_RESERVED, ports=ports)
            assert told(only, job).desired.ports == ((4, 5, 6),)

    def test_with_too_few_ports_the_attempt_is_lost_since_its_processes_could_not_start(self, stage: Stage) -> None:
        job, (first, second) = placed(stage, 2, 2)
        second.fetch()
        first.report((job, 1), ReportKind.PORTS_RESERVED, ports=[4, 5])
        assert told(second, job).desired.stop
        stage.settle()
        assert outcome(stage, job) == (JobState.PENDING, 1, "n1 reserved 2 ports for the gang instead of 3")

    def test_late_ports_of_an_older_attempt_change_nothing(self, stage: Stage) -> None:
        job, (first, second) = placed(stage, 2, 2)
        for node in (first, second):
            node.fetch()
            node.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.LOST)
        stage.clock.pass_(1)
        look(stage.platform)
        first.report((job, 1), ReportKind.PORTS_RESERVED, ports=[4, 5, 6])
        second.report((job, 2), ReportKind.PORTS_RESERVED, ports=[7, 8, 9])
        assert told(first, job, 2).desired.ports == ()

    def test_a_process_that_finished_stays_listed_until_the_gang_leaves(self, stage: Stage) -> None:
        job, (only,) = running(stage, 3)
        gone, *left = sorted(only.running[job, 1])
        only.gone((job, 1), gone, ExitKind.FINISHED)
        assert [slot.allocation for slot in told(only, job).desired.slots] == [gone, *left]
        assert gang_of(told(only, job)).nodes[0].allocations == (gone, *left)
        fleet.drain(stage.platform, "n1")
        look(stage.platform)
        desired = told(only, job).desired
        assert (desired.slots, desired.leaving, desired.stop) == ((), tuple(left), False)

    def test_elastic_jobs_beside_it_are_told_what_they_were_told(self, stage: Stage) -> None:
        stage.node(slots=4)
        elastic, gang = stage.submit(1), submit(stage, 3)
        stage.settle()
        listed_items = stage.puppets[0].fetch()
        assert (listed_items[elastic, 1].spec.gang, listed_items[elastic, 1].spec.protocol) == (None, PROTOCOL)
        assert listed_items[elastic, 1].desired.ports == ()
        assert listed_items[gang, 1].spec.protocol == GANG_PROTOCOL

    def test_its_processes_wait_for_an_agent_that_hears_late(self, stage: Stage) -> None:
        job, (first, second) = placed(stage, 2, 2)
        stage.puppets.remove(second)
        stage.settle()
        assert (first.running[job, 1], stage.job(job).workers) == ({}, 0)
        stage.puppets.append(second)
        second.obey()
        first.obey(), second.obey()
        assert (len(first.running[job, 1]), len(second.running[job, 1])) == (2, 2)
        assert stage.job(job).workers == 4


class TestFinish:
    def test_it_finishes_with_its_last_part_and_parts_that_finish_earlier_give_their_slots_back(
        self, stage: Stage
    ) -> None:
        job, (first, second) = running(stage, 2, 2)
        early, late = sorted(second.running[job, 1])
        second.gone((job, 1), early, ExitKind.FINISHED)
        assert (stage.holding(), stage.job(job).workers) == ({job: 3}, 3)
        second.end((job, 1), ExitKind.FINISHED)
        stage.settle()
        assert (stage.job(job).state, stage.holding()) == (JobState.RUNNING, {job: 2})
        assert late not in first.running[job, 1]
        first.end((job, 1), ExitKind.FINISHED)
        assert outcome(stage, job) == (JobState.FINISHED, 1, None)
        assert (stage.holding(), stage.job(job).workers) == ({}, 0)
        assert causes(stage, job) == [(ResizeCause.SUBMIT, 0, 4)]
        assert messages(stage, job) == ["attempt 1 ended: finished"]

    def test_the_head_node_of_one_process_for_the_job_ends_the_others(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2, gang=GangCommand(("mpirun", "python"), Processes.JOB))
        first.end((job, 1), ExitKind.FINISHED, whole=True)
        assert told(second, job).desired.stop
        stage.settle()
        assert outcome(stage, job) == (JobState.FINISHED, 1, None)

    def test_what_it_says_of_training_is_not_taken(self, sqlite_stage: Stage) -> None:
        job, (only,) = running(sqlite_stage, 2)
        only.report((job, 1), ReportKind.ENGINES_KNOWN, engines=8, steps_total=10, epochs=1)
        only.report((job, 1), ReportKind.PROGRESS, step=5, workers=9)
        view = sqlite_stage.job(job)
        assert (view.engines, view.progress, view.workers) == (None, {}, 2)

    def test_its_history_says_when_its_logs_cannot_be_written(self, sqlite_stage: Stage) -> None:
        job, (only,) = running(sqlite_stage, 2)
        only.report((job, 1), ReportKind.STORAGE, place="logs", error="No space left on device")
        only.report((job, 1), ReportKind.STORAGE, place="logs", seconds=7.0)
        assert messages(sqlite_stage, job, "storage") == [
            "logs: cannot be written on n1 (No space left on device); the job goes on",
            "logs: can be written again on n1, after 7 s",
        ]

    def test_its_history_names_its_nodes(self, sqlite_stage: Stage) -> None:
        job, _ = running(sqlite_stage, 2, 2)
        assert messages(sqlite_stage, job, "state")[-1] == "attempt 1 runs on n1 and n2"


class TestFailure:
    def test_one_failed_process_ends_the_whole_attempt_at_once(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        failed = min(second.running[job, 1])
        second.gone((job, 1), failed, ExitKind.SCRIPT_ERROR, message="rank 2 ended with status 3", code=3)
        assert told(first, job).desired.stop and told(second, job).desired.stop
        stage.settle()
        assert outcome(stage, job) == (JobState.ERROR, 1, "rank 2 ended with status 3")
        assert messages(stage, job) == ["attempt 1 ended: script-error, rank 2 ended with status 3"]
        assert causes(stage, job) == [(ResizeCause.SUBMIT, 0, 4)], "it ended, and did not shrink"

    def test_a_part_that_ends_without_a_word_of_its_processes_ends_it_too(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.report((job, 1), ReportKind.ATTEMPT_ENDED, kind=ExitKind.SCRIPT_ERROR, message="rank 3: ValueError: no")
        assert told(first, job).desired.stop
        second.running.clear()
        stage.settle()
        assert outcome(stage, job) == (JobState.ERROR, 1, "rank 3: ValueError: no")

    def test_only_the_number_of_restarts_counts(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2, max_restarts=2)
        for fence, wait in ((1, 1), (2, 2)):
            fails(first, job, fence=fence)
            stage.settle()
            assert outcome(stage, job) == (JobState.PENDING, fence, "rank 0 ended with status 3")
            stage.clock.pass_(wait)
            stage.settle()
            assert len(second.running[job, fence + 1]) == 2
        fails(first, job, fence=3)
        stage.settle()
        message = "rank 0 ended with status 3 (it was started again 2 times, as often as --maxRestarts allows)"
        assert outcome(stage, job) == (JobState.ERROR, 3, message)
        assert [each for each in messages(stage, job, "state") if "again" in each] == [
            "is started again (1 of 2 restarts): rank 0 ended with status 3",
            "is started again (2 of 2 restarts): rank 0 ended with status 3",
            message,
        ]

    def test_the_supervisor_says_why_if_its_processes_did_not(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.end((job, 1), ExitKind.LOST, message="its supervisor was ended by signal 9")
        first.end((job, 1), ExitKind.STOPPED, message="stopped by its user")
        state, _, message = outcome(stage, job)
        assert (state, message) == (JobState.PENDING, "its supervisor was ended by signal 9")

    @pytest.mark.parametrize("kind", [ExitKind.SCRIPT_ERROR, ExitKind.LOST])
    def test_a_kill_for_memory_is_the_scripts_fault_the_first_time(self, stage: Stage, kind: ExitKind) -> None:
        job, (first, _) = running(stage, 2, 2)
        first.gone((job, 1), min(first.running[job, 1]), kind, message="rank 1 was killed for memory", oom=True)
        stage.settle()
        assert outcome(stage, job) == (JobState.ERROR, 1, "rank 1 was killed for memory")


class TestLoss:
    def test_a_lost_supervisor_ends_the_attempt_and_the_next_one_does_not_count(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.bury((job, 1))
        assert told(first, job).desired.stop
        stage.settle()
        assert (stage.job(job).state, stage.job(job).fence, stage.holding()) == (JobState.PENDING, 1, {})
        assert causes(stage, job) == [(ResizeCause.SUBMIT, 0, 4)]
        stage.clock.pass_(1)
        stage.settle()
        view = stage.job(job)
        assert (view.state, view.fence, view.restarts) == (JobState.RUNNING, 2, 0)
        assert (len(first.running[job, 2]), len(second.running[job, 2])) == (2, 2)

    def test_no_supervisor_of_it_is_ever_opened_again(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        first.obedient = False
        second.bury((job, 1))
        stage.clock.pass_(301)
        look(stage.platform)
        with stage.platform.database.transaction() as tx:
            attempts.open_supervisor(tx, stage.job(job).number, 1, 2)
        assert second.fetch() == {}

    def test_processes_that_fail_because_another_node_is_lost_do_not_fail_the_script(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        fails(first, job, "rank 1: RuntimeError: Connection closed by peer")
        assert stage.job(job).state is JobState.RUNNING, "its part on the other node is not over"
        second.bury((job, 1))
        state, fence, message = outcome(stage, job)
        assert (state, fence) == (JobState.PENDING, 1)
        reset = "rank 1: RuntimeError: Connection closed by peer"
        assert message == f"its supervisor on n2 was lost; elsewhere: {reset}"

    def test_the_same_when_the_other_node_lets_it_go(self, sqlite_stage: Stage) -> None:
        job, (first, second) = running(sqlite_stage, 2, 2)
        fails(first, job, "rank 0: RuntimeError: Connection closed by peer")
        second.end((job, 1), ExitKind.LEFT)
        message = "node n2 let it go; elsewhere: rank 0: RuntimeError: Connection closed by peer"
        assert outcome(sqlite_stage, job) == (JobState.PENDING, 1, message)

    def test_the_same_when_the_node_is_silent(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        stage.puppets.remove(second)
        fails(first, job, "rank 0: RuntimeError: Connection closed by peer")
        stage.settle()
        assert stage.job(job).state is JobState.RUNNING
        look(stage.platform, stage.silence("n2"))
        state, _, message = outcome(stage, job)
        assert (state, str(message).split(";")[0]) == (JobState.PENDING, "node n2 was lost")
        look(stage.platform)
        assert stage.fence(job) == 2, "what may live on the lost node is shut out"

    def test_a_lost_node_ends_and_fences_the_attempt_which_starts_elsewhere(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        third = stage.node("n3", slots=2)
        stage.puppets.remove(second)
        look(stage.platform, stage.silence("n2"))
        assert told(first, job).desired.stop
        stage.settle()
        assert outcome(stage, job) == (JobState.PENDING, 1, "node n2 was not heard from")
        assert (stage.fence(job), stage.holding()) == (2, {job: 2}), "two of its slots cannot be asked"
        stage.clock.pass_(FENCE_SECONDS)
        stage.settle()
        assert (stage.job(job).fence, len(first.running[job, 2]), len(third.running[job, 2])) == (2, 2, 2)
        second.obey()
        assert second.running == {}
        assert (stage.job(job).state, stage.holding()) == (JobState.RUNNING, {job: 4})

    def test_a_lost_node_whose_part_has_finished_costs_nothing(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.end((job, 1), ExitKind.FINISHED)
        stage.puppets.remove(second)
        look(stage.platform, stage.silence("n2"))
        stage.settle()
        assert stage.job(job).state is JobState.RUNNING
        first.end((job, 1), ExitKind.FINISHED)
        assert stage.job(job).state is JobState.FINISHED

    def test_a_machine_that_was_started_again_ends_the_attempt(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.reboot()
        assert told(first, job).desired.stop
        stage.settle()
        stage.clock.pass_(1)
        stage.settle()
        assert (stage.job(job).fence, stage.job(job).restarts) == (2, 0)
        assert (len(first.running[job, 2]), len(second.running[job, 2])) == (2, 2)

    def test_a_loss_long_after_the_one_before_is_waited_for_as_the_first(self, sqlite_stage: Stage) -> None:
        job, (only,) = running(sqlite_stage, 2)
        for fence, ran, wait in ((1, 0, 1), (2, 0, 2), (3, LOSSES_APART_SECONDS + 1, 1)):
            sqlite_stage.clock.pass_(ran)
            only.bury((job, fence))
            sqlite_stage.clock.pass_(wait - 0.5)
            sqlite_stage.settle()
            assert sqlite_stage.job(job).fence == fence
            sqlite_stage.clock.pass_(0.5)
            sqlite_stage.settle()
            assert sqlite_stage.job(job).fence == fence + 1

    def test_late_reports_of_an_older_attempt_only_free_its_slots(self, stage: Stage) -> None:
        job, (_, second) = running(stage, 2, 2)
        third = stage.node("n3", slots=2)
        second.cut = True
        look(stage.platform, stage.silence("n2"))
        stage.settle()
        stage.clock.pass_(FENCE_SECONDS)
        stage.settle()
        second.end((job, 1), ExitKind.SCRIPT_ERROR, message="rank 2 ended with status 1")
        second.heal()
        stage.settle()
        assert (stage.job(job).state, stage.job(job).fence) == (JobState.RUNNING, 2)
        assert (stage.holding(), len(third.running[job, 2])) == ({job: 4}, 2)
        assert stage.job(job).workers == 4


class TestLeaving:
    def test_draining_one_of_its_nodes_moves_it_as_a_whole(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        third = stage.node("n3", slots=2)
        fleet.drain(stage.platform, "n2")
        stage.settle()
        assert (second.running, len(first.running[job, 2]), len(third.running[job, 2])) == ({}, 2, 2)
        view = stage.job(job)
        assert (view.state, view.fence, view.restarts, view.message) == (JobState.RUNNING, 2, 0, None)
        drained = (ResizeCause.DRAIN, 4, 0)
        assert causes(stage, job) == [(ResizeCause.SUBMIT, 0, 4), drained, (ResizeCause.RESTART, 0, 4)]

    def test_while_it_leaves_no_process_fails_it(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        fleet.drain(stage.platform, "n2")
        look(stage.platform)
        assert (told(first, job).desired.slots, told(second, job).desired.slots) == ((), ())
        second.end((job, 1), ExitKind.LEFT)
        fails(first, job, "rank 0: RuntimeError: Connection closed by peer")
        assert outcome(stage, job) == (JobState.PENDING, 1, None)
        assert stage.job(job).restarts == 0

    def test_a_supervisor_that_leaves_by_itself_ends_it_and_it_starts_again(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2)
        second.end((job, 1), ExitKind.LEFT, message="its node let it go")
        assert told(first, job).desired.stop
        stage.settle()
        stage.clock.pass_(1)
        stage.settle()
        assert (stage.job(job).state, stage.job(job).fence, stage.job(job).restarts) == (JobState.RUNNING, 2, 0)

    @pytest.mark.parametrize("kind", [ExitKind.LEFT, ExitKind.PULL_FAILED])
    def test_one_that_does_so_again_and_again_is_waited_for_longer_and_longer(
        self, sqlite_stage: Stage, kind: ExitKind
    ) -> None:
        job, (only,) = running(sqlite_stage, 2)
        for fence, wait in ((1, 1), (2, 2), (3, 4)):
            only.end((job, fence), kind)
            sqlite_stage.clock.pass_(wait - 0.5)
            sqlite_stage.settle()
            assert sqlite_stage.job(job).fence == fence
            sqlite_stage.clock.pass_(0.5)
            sqlite_stage.settle()
            assert sqlite_stage.job(job).fence == fence + 1
        fleet.drain(sqlite_stage.platform, "n1")
        sqlite_stage.settle()
        fleet.uncordon(sqlite_stage.platform, "n1")
        sqlite_stage.settle()
        assert sqlite_stage.job(job).fence == 5, "who is asked to leave need not wait"

    def test_a_stop_ends_it_as_killed_whatever_its_processes_say(self, stage: Stage) -> None:
        job, (first, second) = running(stage, 2, 2, max_restarts=3)
        execs.stop(stage.platform, job, viewer=stage.admin)
        assert told(first, job).desired.stop and told(second, job).desired.stop
        fails(first, job, "rank 0 was killed by signal 15 (SIGTERM)")
        assert stage.job(job).state is JobState.RUNNING
        stage.settle()
        assert outcome(stage, job) == (JobState.KILLED, 1, None)
        assert causes(stage, job)[-1] == (ResizeCause.STOP, 4, 0)

    def test_a_stop_before_any_agent_has_heard_of_it(self, stage: Stage) -> None:
        job, _ = placed(stage, 2, 2)
        execs.stop(stage.platform, job, viewer=stage.admin)
        assert (stage.job(job).state, stage.holding()) == (JobState.KILLED, {})

    def test_a_gang_that_waits_too_long_ends(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node(slots=2)
        job = submit(sqlite_stage, 3, pending_timeout=60)
        sqlite_stage.settle()
        sqlite_stage.clock.pass_(61)
        assert execs.end_never_started_jobs(sqlite_stage.platform) == 1
        message = "it has not started within the 60 s of --msd-pending-timeout"
        assert outcome(sqlite_stage, job) == (JobState.ERROR, 0, message)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_a_list_of_names_is_no_longer_than_people_read(names: list[str], text: str) -> None:
    assert listed(names) == text
