"""A membership that is told as a difference, and a split that is told as runs, are what was meant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edt_contract.encoding import dump_line
from edt_runner.comm.plane import DataPlane
from edt_runner.protocol.channel import decode
from edt_runner.protocol.data import CatchUp, EngineState, EngineStatus, MembersDifference, PlanDifference, RegroupPlan
from edt_runner.protocol.differences import (
    HeldMemberships,
    UnknownMembership,
    difference,
    from_runs,
    sends_members,
    to_runs,
)
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    EngineConnected,
    GenerationSettled,
    PrepareGeneration,
    ReceiveStateFromDriver,
)
from edt_runner.splits import even_split
from support.one_engine import one_engine
from support.waiting import until

BEFORE = tuple(map(str, range(100, 120)))


def held(*messages: PrepareGeneration | GenerationSettled) -> HeldMemberships:
    found = HeldMemberships("100")
    for message in messages:
        found.read(message)
    return found


def whole(number: int, members: tuple[str, ...]) -> PrepareGeneration:
    return PrepareGeneration(number, members, ())


# ── memberships ───────────────────────────────────────────────────────────────────────────────────────────────────
@given(st.sets(st.sampled_from(BEFORE)), st.lists(st.integers(200, 260).map(str), unique=True, max_size=30))
def test_a_difference_leads_to_the_same_members_in_the_same_order(gone: set[str], new: list[str]) -> None:
    members = (*(name for name in BEFORE if name not in gone), *new)
    told = difference(7, BEFORE, members)
    if told is None:  # then it would name as many engines as there are
        assert len(gone) + len(new) >= len(members)
        return
    message = decode(dump_line(PrepareGeneration(8, (), (), "here:1", told)))
    assert held(whole(7, BEFORE)).read(message) == PrepareGeneration(8, members, tuple(new), "here:1")


def test_another_order_of_the_same_engines_is_told_whole() -> None:
    assert difference(7, BEFORE, BEFORE[::-1]) is None


def test_who_joins_and_who_stays_follows_from_a_difference() -> None:
    told = difference(7, ("1", "2", "3", "4"), ("1", "3", "4", "9"))
    message = held(whole(7, ("1", "2", "3", "4"))).read(PrepareGeneration(8, (), (), difference=told))
    assert isinstance(message, PrepareGeneration)
    assert (message.surviving, message.joining) == (("1", "3", "4"), ("9",))


def test_a_regroups_plan_is_made_whole() -> None:
    split = ((0, 1, 4), (2, 3), ())
    plan = RegroupPlan(("1", "3", "9"), 5, (), (), CatchUp.NOTHING, split, 1)
    told = PlanDifference(MembersDifference(7, ("2",), ("9",)), to_runs(split))
    message = decode(dump_line(ApplyRegroupPlan(1, 8, replace(plan, members=(), split=()), difference=told)))
    assert held(whole(7, ("1", "2", "3"))).read(message) == ApplyRegroupPlan(1, 8, plan)


def test_an_engine_holds_the_settled_membership_through_changes_that_are_cancelled() -> None:
    found = held(whole(7, BEFORE), GenerationSettled(7))
    for number in range(8, 30):
        found.read(whole(number, ("1",)))
        found.read(CancelGeneration(number))
        assert not found.holds(number)
    for number in range(30, 50):  # regroups that fail
        found.read(ApplyRegroupPlan(number, number, RegroupPlan(("1",), 5, (), (), CatchUp.NOTHING, ((),), 0)))
    found.read(PrepareGeneration(50, (), (), difference=MembersDifference(7, (), ("1",))))
    assert found.holds(50) == 50


def test_an_engine_that_does_not_hold_the_membership_says_so() -> None:
    found = held(whole(7, BEFORE))
    assert found.holds(6) == 0
    with pytest.raises(UnknownMembership, match="generation 6 "):
        found.read(PrepareGeneration(8, (), (), difference=MembersDifference(6, (), ("1",))))


def test_the_first_engine_holds_the_membership_that_is_itself_alone() -> None:
    found = HeldMemberships("1")
    found.read(ReceiveStateFromDriver("start/1", 1))
    told = difference(1, ("1",), ("1", "2"))
    message = found.read(PrepareGeneration(2, (), (), difference=told))
    assert isinstance(message, PrepareGeneration) and message.members == ("1", "2")


def test_of_a_thousand_engines_eleven_name_all_members_to_a_new_coordinator() -> None:
    assert [rank for rank in range(1024) if sends_members(rank)] == [0, *(1 << power for power in range(10))]


# ── splits ────────────────────────────────────────────────────────────────────────────────────────────────────────
@given(st.lists(st.integers(0, 11), max_size=60))
def test_runs_lead_to_the_same_split(owners: list[int]) -> None:
    split = tuple(tuple(index for index, owner in enumerate(owners) if owner == rank) for rank in range(12))
    assert from_runs(to_runs(split), 12) == split


@pytest.mark.parametrize(("micro_batches", "engines"), [(2048, 1024), (3000, 1000), (1024, 1023), (1500, 1000), (7, 9)])
def test_an_even_split_is_a_few_runs_whatever_its_width(micro_batches: int, engines: int) -> None:
    split = even_split(micro_batches, engines)
    assert len(to_runs(split)) <= 12
    assert from_runs(to_runs(split), engines) == split


# ── an engine's link ──────────────────────────────────────────────────────────────────────────────────────────────
def test_a_link_makes_differences_whole_and_names_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        assert coordinator.receive(EngineConnected).holds == 0
        coordinator.send(whole(9, ("2", "3")))
        coordinator.send(GenerationSettled(9))
        coordinator.send(PrepareGeneration(10, (), (), difference=MembersDifference(9, ("2",), ("4",))))
        until(lambda: 10 in link._prepared, 20)
        assert link.prepared(10).message.members == ("3", "4")
        link.set_status(EngineStatus(EngineState.TRAINING, 9, ("2", "3", "5", "1")))
        link._introduce()
        connected = coordinator.receive(EngineConnected)
        assert (connected.holds, connected.status.members) == (9, ())


def test_a_link_ends_a_connection_on_which_it_is_told_a_difference_from_what_it_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with one_engine(monkeypatch, tmp_path, DataPlane("127.0.0.1", torch.float32, "lo")) as (_, link, coordinator):
        coordinator.receive(EngineConnected)
        before = link._channel
        coordinator.send(PrepareGeneration(10, (), (), difference=MembersDifference(9, ("2",), ("4",))))
        until(lambda: before.closed, 20)
        assert not link._prepared
        before.close()
