"""A lost node is taken from the lists: when that is refused, what stays of it, and how it comes back."""

from __future__ import annotations

import pytest

from edt_runner.contract import ExitKind
from edt_scheduler import operations
from edt_scheduler.errors import NodeInUse, NoSuchNode
from edt_scheduler.nodes import Health, SlotSpec
from edt_scheduler.reconcile import look
from edt_scheduler.views import Registration
from support.puppets import Stage


def names(stage: Stage) -> list[str]:
    return [node.name for node in operations.nodes(stage.house)]


def test_a_node_that_is_heard_from_is_not_removed(sqlite_stage: Stage) -> None:
    sqlite_stage.node("n1")
    operations.drain(sqlite_stage.house, "n1")
    with pytest.raises(NodeInUse, match="heard from 0 s ago: end its agent"):
        operations.remove_node(sqlite_stage.house, "n1")
    assert names(sqlite_stage) == ["n1"]
    with pytest.raises(NoSuchNode):
        operations.remove_node(sqlite_stage.house, "n2")


def test_a_lost_node_is_kept_while_a_job_that_goes_on_holds_its_slots(sqlite_stage: Stage) -> None:
    first = sqlite_stage.node("n1", slots=2)
    sqlite_stage.node("n2", slots=2)
    job = sqlite_stage.submit(4)
    sqlite_stage.settle()
    look(sqlite_stage.house, sqlite_stage.silence("n2"))
    with pytest.raises(NodeInUse, match=f"{job} still holds slots there"):
        operations.remove_node(sqlite_stage.house, "n2")
    first.end((job, 1), ExitKind.FINISHED)
    operations.remove_node(sqlite_stage.house, "n2")
    assert names(sqlite_stage) == ["n1"]


def test_a_removed_node_is_on_no_list_and_its_history_stays(stage: Stage) -> None:
    node = stage.node("n1", slots=2)
    job = stage.submit(2)
    stage.settle()
    node.end((job, 1), ExitKind.FINISHED)
    cursor = operations.newest_change(stage.house)
    look(stage.house, stage.silence("n1"))
    operations.remove_node(stage.house, "n1")
    assert names(stage) == []
    with pytest.raises(NoSuchNode):
        operations.node(stage.house, "n1")
    told = operations.changes_since(stage.house, cursor)
    assert (told.nodes, told.removed_nodes) == ((), ("n1",))
    held = operations.allocations(stage.house, job, viewer=stage.admin)
    assert {each.node for each in held} == {"n1"}
    assert [each.name for each in operations.timeline(stage.house, viewer=stage.admin).nodes] == ["n1"]
    later = operations.timeline(stage.house, viewer=stage.admin, since=stage.clock.now + 60)
    assert later.nodes == ()


def test_a_removed_node_is_heard_no_more_until_it_registers_and_then_it_is_new(sqlite_stage: Stage) -> None:
    house = sqlite_stage.house

    def register() -> Registration:
        facts = {"host": "h", "cores": 1, "boot_id": "b", "incarnation": "i", "slots": [SlotSpec("0")]}
        return operations.register_node(house, name="n1", **facts)  # type: ignore[arg-type]

    token = register().token
    operations.drain(house, "n1")
    look(house, sqlite_stage.silence("n1"))
    operations.remove_node(house, "n1")
    assert operations.verify_node_token(house, token) is None
    with pytest.raises(NoSuchNode):
        operations.assignments(house, "n1")
    register()
    assert [(each.name, each.health) for each in operations.nodes(house)] == [("n1", Health.UP)]
