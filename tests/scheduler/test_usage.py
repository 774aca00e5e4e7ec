"""How busy slots are: told by agents, shown for a while, forgotten after days."""

from __future__ import annotations

import pytest

from edt_scheduler.errors import NoSuchNode
from edt_scheduler.operations import agents, fleet
from edt_scheduler.periodic.rollups import forget_usage
from edt_scheduler.views import SlotUse, UseOverTime
from support.puppets import Stage


def shown(stage: Stage) -> list[SlotUse | None]:
    return [slot.use for slot in fleet.node(stage.platform, "n1").slots]


def test_the_newest_sample_is_shown_with_the_slot_and_only_while_it_is_fresh(stage: Stage) -> None:
    stage.node(slots=2)
    assert shown(stage) == [None, None]
    agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.1), SlotUse("1", 0.2)])
    stage.clock.pass_(15)
    gpu = SlotUse("0", 0.9, 1 << 30, 1 << 37, 250.5, 61.0)
    agents.record_usage(stage.platform, "n1", [gpu])
    assert shown(stage) == [gpu, None], "of the other nothing is known now"
    stage.clock.pass_(61)
    assert shown(stage) == [None, None]


def test_slots_that_the_node_does_not_have_are_left_out(stage: Stage) -> None:
    stage.node(slots=1)
    agents.record_usage(stage.platform, "n1", [SlotUse("7", 1.0), SlotUse("0", 0.5), SlotUse("0", 0.6)])
    assert shown(stage) == [SlotUse("0", 0.6)]
    with pytest.raises(NoSuchNode):
        agents.record_usage(stage.platform, "n2", [SlotUse("0", 0.5)])


def test_two_samples_at_one_instant_are_one(stage: Stage) -> None:
    stage.node(slots=1)
    agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.5)])
    agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.7)])
    assert shown(stage) == [SlotUse("0", 0.5)]


def test_a_series_has_means_by_interval_and_the_most_memory(stage: Stage) -> None:
    stage.node(slots=2)
    begin = stage.clock.now
    for number in range(4):
        uses = [SlotUse("0", number / 4, number, None, 100.0 + number, 50.0), SlotUse("1", 1.0)]
        agents.record_usage(stage.platform, "n1", uses)
        stage.clock.pass_(10)
    series = fleet.usage(stage.platform, "n1", since=begin, until=begin + 40, points=2)
    assert series["0"] == [
        UseOverTime("0", begin + 5, 0.125, 1, 100.5, 50.0),
        UseOverTime("0", begin + 25, 0.625, 3, 102.5, 50.0),
    ]
    assert [(each.utilisation, each.memory_bytes) for each in series["1"]] == [(1.0, None), (1.0, None)]
    whole = fleet.usage(stage.platform, "n1", since=begin, until=begin + 40, points=1000)
    assert [each.time for each in whole["0"]] == [begin, begin + 10, begin + 20, begin + 30]
    assert fleet.usage(stage.platform, "n1", since=begin + 50, until=begin + 60, points=5) == {}
    with pytest.raises(NoSuchNode):
        fleet.usage(stage.platform, "n2", since=0, until=1, points=1)


def test_what_is_older_than_is_kept_is_forgotten(stage: Stage) -> None:
    stage.node(slots=1)
    begin = stage.clock.now
    agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.1)])
    stage.clock.pass_(24 * 3600)
    agents.record_usage(stage.platform, "n1", [SlotUse("0", 0.2)])
    stage.clock.pass_(24 * 3600 + 1)
    assert forget_usage(stage.platform) == 1
    assert forget_usage(stage.platform) == 0
    series = fleet.usage(stage.platform, "n1", since=begin, until=stage.clock.now, points=100)
    assert [each.utilisation for each in series["0"]] == [0.2]
