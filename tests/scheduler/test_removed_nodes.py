"""A lost node is taken from the lists: when that is refused, what stays of it, and how it comes back."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import NodeInUse, NoSuchNode
from edt_scheduler.model.nodes import SlotSpec
from edt_scheduler.model.states import Health, JobState
from edt_scheduler.operations import agents, execs, fleet, history, images
from edt_scheduler.operations.images import ask_for_pulls
from edt_scheduler.periodic.retention import purge_deleted, remove_folders
from edt_scheduler.periodic.rollups import count_user_days
from edt_scheduler.store.usage import DAY_SECONDS
from edt_scheduler.views import Registration
from support.puppets import Stage


def names(stage: Stage) -> list[str]:
    return [node.name for node in fleet.nodes(stage.platform)]


def test_a_node_that_is_heard_from_is_not_removed(sqlite_stage: Stage) -> None:
    sqlite_stage.node("n1")
    fleet.drain(sqlite_stage.platform, "n1")
    with pytest.raises(NodeInUse, match="heard from 0 s ago: end its agent"):
        fleet.remove_node(sqlite_stage.platform, "n1")
    assert names(sqlite_stage) == ["n1"]
    with pytest.raises(NoSuchNode):
        fleet.remove_node(sqlite_stage.platform, "n2")


def test_a_lost_node_is_kept_while_a_job_that_goes_on_holds_its_slots(sqlite_stage: Stage) -> None:
    first = sqlite_stage.node("n1", slots=2)
    sqlite_stage.node("n2", slots=2)
    job = sqlite_stage.submit(4)
    sqlite_stage.settle()
    look(sqlite_stage.platform, sqlite_stage.silence("n2"))
    with pytest.raises(NodeInUse, match=f"{job} holds slots there and goes on elsewhere; stop it"):
        fleet.remove_node(sqlite_stage.platform, "n2")
    first.end((job, 1), ExitKind.FINISHED)
    fleet.remove_node(sqlite_stage.platform, "n2")
    assert names(sqlite_stage) == ["n1"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (2, "edt-1 and edt-2 hold slots there and go on elsewhere; remove the node when they are over"),
        (3, "edt-1, edt-2 and edt-3 hold"),
        (5, "edt-1, edt-2 and 3 more hold"),
    ],
)
def test_of_the_jobs_that_are_in_the_way_the_first_are_named(sqlite_stage: Stage, number: int, message: str) -> None:
    sqlite_stage.node("n1", slots=number)
    for _ in range(number):
        sqlite_stage.submit(2)
    sqlite_stage.settle()
    second = sqlite_stage.node("n2", slots=1)
    for slots in range(1, number + 1):
        second.slots = slots
        second.join()
        sqlite_stage.settle()
        with sqlite_stage.platform.database.transaction() as tx:  # it would cost this job too much to lie on one node
            tx.execute(text("UPDATE jobs SET pauses = 1, pause_seconds = 1e9 WHERE id = :id"), {"id": slots})
    assert sqlite_stage.holding() == {f"edt-{job}": 2 for job in range(1, number + 1)}
    look(sqlite_stage.platform, sqlite_stage.silence("n2"))
    with pytest.raises(NodeInUse, match=message):
        fleet.remove_node(sqlite_stage.platform, "n2")


def test_what_attempts_that_are_over_held_on_a_removed_node_ends_with_its_removal(stage: Stage) -> None:
    platform, clock = stage.platform, stage.clock
    first = stage.node("n1", slots=2)
    second = stage.node("n2", slots=2, launcher="docker")
    images.allow_image(platform, "own:1", by=stage.admin, everywhere=True)
    ask_for_pulls(platform)
    job = stage.submit(4)
    stage.settle()
    second.cut = True
    look(platform, stage.silence("n2"))
    first.end((job, 1), ExitKind.FINISHED)
    stage.settle()
    assert (stage.job(job).state, stage.job(job).slots) == (JobState.FINISHED, 2), "those of the lost node"
    clock.pass_(3600)
    fleet.remove_node(platform, "n2")
    removed_at = clock.now
    assert stage.job(job).slots == 0
    held = [each for each in history.allocations(platform, job, viewer=stage.admin) if each.node == "n2"]
    assert [(each.kind, each.released_at) for each in held] == [(ExitKind.LOST, removed_at)] * 2
    assert images.images(platform, limit=5)[0].nodes == ()

    clock.pass_(2 * DAY_SECONDS)
    count_user_days(platform)
    page = history.slot_time(platform, viewer=stage.admin, before=None, limit=10)
    assert sum(each.slot_seconds for each in page.items) == 2 * 3600, "nobody pays for slots of a node that is gone"
    execs.delete(platform, job, viewer=stage.admin)
    assert remove_folders(platform) == 1
    clock.pass_(2 * DAY_SECONDS)
    assert purge_deleted(platform) == 1


def test_a_removed_node_is_on_no_list_and_its_history_stays(stage: Stage) -> None:
    node = stage.node("n1", slots=2)
    job = stage.submit(2)
    stage.settle()
    node.end((job, 1), ExitKind.FINISHED)
    cursor = history.newest_change(stage.platform)
    look(stage.platform, stage.silence("n1"))
    fleet.remove_node(stage.platform, "n1")
    assert names(stage) == []
    with pytest.raises(NoSuchNode):
        fleet.node(stage.platform, "n1")
    found = history.changes_since(stage.platform, cursor)
    assert (found.nodes, found.removed_nodes) == ((), ("n1",))
    held = history.allocations(stage.platform, job, viewer=stage.admin)
    assert {each.node for each in held} == {"n1"}
    assert [each.name for each in history.timeline(stage.platform, viewer=stage.admin).nodes] == ["n1"]
    later = history.timeline(stage.platform, viewer=stage.admin, since=stage.clock.now + 60)
    assert later.nodes == ()


def test_a_removed_node_is_heard_no_more_until_it_registers_and_then_it_is_new(sqlite_stage: Stage) -> None:
    platform = sqlite_stage.platform

    def register() -> Registration:
        facts = {"host": "h", "cores": 1, "boot_id": "b", "incarnation": "i", "slots": [SlotSpec("0")]}
        return fleet.register_node(platform, name="n1", **facts)  # type: ignore[arg-type]

    token = register().token
    fleet.drain(platform, "n1")
    look(platform, sqlite_stage.silence("n1"))
    fleet.remove_node(platform, "n1")
    assert fleet.verify_node_token(platform, token) is None
    with pytest.raises(NoSuchNode):
        agents.assignments(platform, "n1")
    register()
    assert [(each.name, each.health) for each in fleet.nodes(platform)] == [("n1", Health.UP)]
