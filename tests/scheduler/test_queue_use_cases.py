"""Queues, what is used in them, and the bounds and priority of a job that waits or runs."""

from __future__ import annotations

from typing import Any

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.errors import (
    JobOver,
    NoSuchJob,
    NoSuchQueue,
    NotNow,
    PriorityInvalid,
    QueueInUse,
    QueueInvalid,
    SizeInvalid,
)
from edt_scheduler.model.queues import belongs_to, canonical
from edt_scheduler.model.states import JobState, Role
from edt_scheduler.operations import accounts, execs, history, queues
from edt_scheduler.operations.queue_views import QueueView
from edt_scheduler.periodic.rollups import count_queue_usage
from edt_scheduler.plan.queues import Sharing
from edt_scheduler.views import UserView
from support.databases import sqlite_first
from support.puppets import Stage

database_url = sqlite_first()


def user(stage: Stage, name: str) -> UserView:
    return accounts.add_user(stage.platform, name, "hash", Role.USER)


def tree(stage: Stage, viewer: UserView | None = None) -> dict[str, QueueView]:
    found = queues.queues(stage.platform, viewer=viewer or stage.admin).queues
    return {queue.path: queue for queue in found}


@pytest.mark.parametrize(("given", "path"), [("", ""), ("/", ""), ("/a/b", "/a/b"), ("a//b/", "/a/b"), (" / a", "/ a")])
def test_a_path_is_stored_in_one_way(given: str, path: str) -> None:
    assert canonical(given) == path


def test_a_job_belongs_to_the_nearest_queue_that_there_is() -> None:
    assert belongs_to("/a/b/c", {"/a", "/x"}) == "/a"
    assert belongs_to("/b", {"/a"}) == ""


def test_queues_are_made_below_one_another_changed_and_removed(stage: Stage) -> None:
    assert list(tree(stage)) == [""]
    queues.put_queue(stage.platform, "/a", quota=2, weight=2.5)
    queues.put_queue(stage.platform, "/a/b", limit=3, policy=Sharing.FIFO)
    queues.put_queue(stage.platform, "a/b/", quota=1)
    queues.put_queue(stage.platform, "", policy=Sharing.FAIRSHARE)
    found = {path: (each.quota, each.weight, each.limit, each.policy) for path, each in tree(stage).items()}
    assert found == {
        "": (0, 1.0, None, Sharing.FAIRSHARE),
        "/a": (2, 2.5, None, Sharing.EFFICIENT),
        "/a/b": (1, 1.0, 3, Sharing.FIFO),
    }
    assert queues.put_queue(stage.platform, "/a/b", unlimited=True).limit is None
    with pytest.raises(QueueInUse, match="remove /a/b first"):
        queues.remove_queue(stage.platform, "/a")
    queues.remove_queue(stage.platform, "/a/b")
    queues.remove_queue(stage.platform, "/a")
    queues.remove_queue(stage.platform, "")
    assert [(each.path, each.policy) for each in tree(stage).values()] == [("", Sharing.EFFICIENT)]
    with pytest.raises(NoSuchQueue, match="no queue '/a'"):
        queues.remove_queue(stage.platform, "/a")


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        ("/a/b", {}, "path: there is no queue /a above /a/b"),
        ("/a b", {}, "path: got '/a b', takes parts like /research/vision"),
        ("/" + "a/" * 200, {}, "path: got 400 characters, takes at most 256"),
        ("/a", {"quota": -1}, "quota: got -1, takes a whole number of slots from 0"),
        ("/a", {"limit": 10**9}, "limit: got 1000000000, takes a whole number of slots from 0 to 10000000"),
        ("/a", {"weight": 0.0}, "weight: got 0, takes a number above 0"),
        ("/a", {"quota": 3, "limit": 2}, "quota: got 3, takes at most the limit of /a, 2"),
        ("/a", {"limit": 2, "unlimited": True}, "limit: got 2 and none at once"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_its_field(
    sqlite_stage: Stage, path: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(QueueInvalid) as refused:
        queues.put_queue(sqlite_stage.platform, path, **values)
    assert str(refused.value).startswith(message)


def test_a_tree_counts_slots_jobs_and_users_and_names_those_that_the_viewer_may_see(stage: Stage) -> None:
    ana, ben = user(stage, "ana"), user(stage, "ben")
    queues.put_queue(stage.platform, "/a")
    stage.node(slots=2)
    stage.submit(1, ana, queue="/a/x", app_name="first")
    stage.submit(1, ben, queue="/b")
    waits = stage.submit(1, ana, queue="/a", app_name="second")
    stage.settle()
    found = queues.queues(stage.platform, viewer=ana)
    assert (found.slots, found.used) == (2, 2)
    root, a = tree(stage, ana)[""], tree(stage, ana)["/a"]
    assert (root.used, root.running, root.waiting, root.demand) == (2, 2, 1, 3)
    assert (a.used, a.running, a.waiting, a.entitled) == (1, 1, 1, 1)
    assert [(each.user, each.held, each.waiting) for each in a.users] == [("ana", 1, 1)]
    assert ([each.user for each in root.users], root.others.users, root.others.held) == ([], 1, 1)
    (waiting,) = a.waiting_jobs
    assert (waiting.exec_id, waiting.owner, waiting.app_name, waiting.rank) == (waits, "ana", "second", 1)
    assert waiting.blocking is not None
    assert waiting.reason
    assert tree(stage, ben)["/a"].waiting_jobs == ()
    assert [each.user for each in tree(stage)[""].users] == ["ben"]


def test_usage_counts_each_second_once_decays_and_goes_to_the_parent_of_a_removed_queue(stage: Stage) -> None:
    ana = user(stage, "ana")
    for path in ("/a", "/a/b"):
        queues.put_queue(stage.platform, path)
    node = stage.node(slots=2)
    job = stage.submit(1, ana, queue="/a/b/c")
    stage.settle()
    begun = stage.clock.now
    for seconds in (100, 0, 50):
        stage.clock.pass_(seconds)
        count_queue_usage(stage.platform)
    stage.clock.pass_(30)
    count_queue_usage(stage.platform)
    assert tree(stage)["/a/b"].usage == pytest.approx(stage.clock.now - 30 - begun, rel=0.01)
    node.end((job, 1), ExitKind.FINISHED)
    stage.clock.pass_(100)
    count_queue_usage(stage.platform)
    used = tree(stage)["/a/b"].usage
    assert used == pytest.approx(180, rel=0.01)
    stage.clock.pass_(24 * 3600)
    count_queue_usage(stage.platform)
    assert tree(stage)["/a/b"].usage == pytest.approx(used / 2, rel=0.01)
    queues.remove_queue(stage.platform, "/a/b")
    assert tree(stage)["/a"].usage == pytest.approx(used / 2, rel=0.01)
    stage.clock.pass_(30 * 24 * 3600)
    count_queue_usage(stage.platform)
    assert tree(stage)["/a"].usage == 0.0


class TestBounds:
    """The fewest and the most slots of a job, changed while it waits or runs."""

    def test_a_running_job_grows_to_a_larger_maximum(self, stage: Stage) -> None:
        stage.node(slots=4, engines=4)
        job = stage.submit(2)
        stage.settle()
        assert stage.holding() == {job: 2}
        view = queues.resize(stage.platform, job, viewer=stage.admin, max_slots=4)
        assert (view.min_slots, view.max_slots) == (1, 4)
        stage.settle()
        assert stage.holding() == {job: 4}
        queues.resize(stage.platform, job, viewer=stage.admin, min_slots=2, max_slots=3)
        told = [event for event in history.events(stage.platform, job, viewer=stage.admin) if event.kind == "bounds"]
        assert [event.message for event in told] == [
            "admin gave it 1 to 4 slots instead of 1 to 2",
            "admin gave it 2 to 3 slots instead of 1 to 4",
        ]

    def test_a_running_job_gives_back_what_is_above_a_smaller_maximum(self, sqlite_stage: Stage) -> None:
        stage = sqlite_stage
        stage.node(slots=4, engines=4)
        job = stage.submit(4)
        stage.settle()
        assert stage.holding() == {job: 4}
        queues.resize(stage.platform, job, viewer=stage.admin, max_slots=2)
        stage.settle()
        assert stage.holding() == {job: 2}

    def test_a_waiting_job_that_needs_less_than_before_starts(self, sqlite_stage: Stage) -> None:
        stage = sqlite_stage
        stage.node(slots=2)
        job = stage.submit(4, min_slots=3)
        stage.settle()
        assert stage.job(job).waiting is not None
        queues.resize(stage.platform, job, viewer=stage.admin, min_slots=2)
        stage.settle()
        assert stage.job(job).state is JobState.RUNNING

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"max_slots": 5}, "max: got 5, takes at most 4: one step of edt-1 has 4 micro-batches"),
            ({"max_slots": 0}, "max: got 0, takes a whole number of slots from 1 to 10000"),
            ({"min_slots": 3}, "min: got 3, takes at most the max, 2"),
            ({"max_slots": 1, "min_slots": 2}, "min: got 2, takes at most the max, 1"),
        ],
    )
    def test_bounds_that_cannot_be_are_refused_by_their_field(
        self, sqlite_stage: Stage, values: dict[str, int], message: str
    ) -> None:
        stage = sqlite_stage
        stage.node(slots=4, engines=4)
        job = stage.submit(2)
        stage.settle()
        with pytest.raises(SizeInvalid) as refused:
            queues.resize(stage.platform, job, viewer=stage.admin, **values)
        assert str(refused.value) == message

    def test_sizes_that_a_job_named_stay_within_its_bounds(self, sqlite_stage: Stage) -> None:
        stage = sqlite_stage
        job = stage.submit(8, sizes=(4, 8))
        with pytest.raises(SizeInvalid, match="max: leaves none of the sizes of edt-1: 4, 8"):
            queues.resize(stage.platform, job, viewer=stage.admin, max_slots=3)
        assert queues.resize(stage.platform, job, viewer=stage.admin, max_slots=4).max_slots == 4

    def test_a_job_that_is_over_or_another_users_is_left_alone(self, sqlite_stage: Stage) -> None:
        stage = sqlite_stage
        ana, job = user(stage, "ana"), stage.submit(2)
        with pytest.raises(NoSuchJob):
            queues.resize(stage.platform, job, viewer=ana, max_slots=1)
        execs.stop(stage.platform, job, viewer=stage.admin)
        with pytest.raises(JobOver):
            queues.resize(stage.platform, job, viewer=stage.admin, max_slots=1)
        with pytest.raises(JobOver):
            queues.set_priority(stage.platform, job, 2, viewer=stage.admin)

    def test_a_job_that_is_being_stopped_keeps_its_bounds(self, sqlite_stage: Stage) -> None:
        stage = sqlite_stage
        stage.node()
        job = stage.submit(2)
        stage.settle()
        execs.stop(stage.platform, job, viewer=stage.admin)
        with pytest.raises(NotNow, match="is being stopped"):
            queues.resize(stage.platform, job, viewer=stage.admin, max_slots=1)


def test_the_job_of_a_higher_priority_is_next_and_its_owner_cannot_raise_it(stage: Stage) -> None:
    ana = user(stage, "ana")
    stage.node(slots=1, engines=1)
    runs = stage.submit(1, ana)
    stage.settle()
    waits = [stage.submit(1, ana, priority=2) for _ in range(2)]
    queues.set_priority(stage.platform, runs, 5, viewer=stage.admin)
    stage.settle()
    assert [stage.job(job).waiting.rank for job in waits if stage.job(job).waiting] == [1, 2]
    with pytest.raises(PriorityInvalid, match="got 3, takes at most 2, with which edt-2 was submitted"):
        queues.set_priority(stage.platform, waits[0], 3, viewer=ana)
    with pytest.raises(PriorityInvalid, match="got 0, takes a whole number from 1"):
        queues.set_priority(stage.platform, waits[0], 0, viewer=ana)
    assert queues.set_priority(stage.platform, waits[0], 1, viewer=ana).priority == 1
    assert queues.set_priority(stage.platform, waits[0], 2, viewer=ana).priority == 2
    assert queues.set_priority(stage.platform, waits[1], 4, viewer=stage.admin).priority == 4
    stage.settle()
    assert [stage.job(job).waiting.rank for job in waits if stage.job(job).waiting] == [2, 1]
    told = [event.message for event in history.events(stage.platform, waits[1], viewer=stage.admin)]
    assert "admin gave it the priority 4 instead of 2" in told
