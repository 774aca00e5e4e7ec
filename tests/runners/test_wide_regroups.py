"""Regroups of many engines: each is told only what it needs, and tests only some of the others."""

from __future__ import annotations

import random
from collections import Counter

from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.lifecycle import SETTLE_SECONDS
from edt_runner.coordinator.members import Phase
from edt_runner.coordinator.regroup_plan import MOST_RUNS, MOST_SOURCES, MOST_TESTS, plan_regroup
from edt_runner.protocol.data import CatchUp, EngineState, RegroupStatus
from edt_runner.protocol.differences import to_runs
from edt_runner.protocol.engine_messages import ApplyRegroupPlan, PrepareGeneration, StartRegroup
from edt_runner.splits import even_split
from support.talk import Talk, status

NAMES = tuple(map(str, range(1, 41)))
"""More than one engine tests."""
NAMES_200 = tuple(map(str, range(1, 201)))


def running(*names: str) -> Talk:
    """A training of these engines, all but the first of which join at once."""
    talk = Talk(micro_batches=len(names) + 2)
    talk.begin()
    talk.come(names[0])
    talk.coordinator.state_received(names[0], talk.coordinator.members.current.number, 0, talk.now)
    talk.come(names[1])
    talk.come(*names[2:])
    while talk.coordinator.change:
        talk.switch()
    assert talk.coordinator.members.current.members == names
    talk.sent()
    return talk


def plans(talk: Talk, names: tuple[str, ...]) -> dict[str, ApplyRegroupPlan]:
    """What each is told when all have answered."""
    talk.sent()
    for name in names:
        talk.stand(name, 5)
    sends = talk.coordinator.members.take_sends()
    return {send.to: send.message for send in sends if isinstance(send.message, ApplyRegroupPlan)}


# ── whom an engine tests ──────────────────────────────────────────────────────────────────────────────────────────
def test_no_engine_tests_many_others_and_none_is_tested_by_many_and_all_pairs_come_to_it() -> None:
    talk = running(*NAMES)
    talk.coordinator.engine_stuck("1")
    pairs: set[frozenset[str]] = set()
    for _ in range(len(NAMES) // MOST_TESTS):
        told = plans(talk, NAMES)
        assert {len(plan.probe_addresses) for plan in told.values()} == {MOST_TESTS}
        assert set(Counter(other for plan in told.values() for other in plan.probe_addresses).values()) == {MOST_TESTS}
        pairs |= {frozenset((name, other)) for name, plan in told.items() for other in plan.probe_addresses}
        talk.group_lost("1", talk.coordinator.members.newest_regroup)  # nobody knows why the group was not built
    assert len(pairs) == len(NAMES) * (len(NAMES) - 1) / 2


def test_two_that_do_not_reach_each_other_test_each_other_in_the_next_regroup() -> None:
    talk = running(*NAMES)
    talk.coordinator.engine_stuck("1")
    told = plans(talk, NAMES)
    one = "7"
    other = next(name for name in NAMES if name != one and name not in told[one].probe_addresses)
    regroup = talk.coordinator.members.newest_regroup
    for name in NAMES:
        if name not in (one, other):
            talk.group_lost(name, regroup, built=True)
    assert talk.coordinator.members.newest_regroup == regroup  # those that could not build it have not spoken
    talk.coordinator.regroups.group_lost(other, (), 0, built=False)
    talk.group_lost(one, regroup)
    assert talk.coordinator.members.newest_regroup == regroup + 1
    told = plans(talk, NAMES)
    assert other in told[one].probe_addresses and one in told[other].probe_addresses


# ── what an engine is told ────────────────────────────────────────────────────────────────────────────────────────
def test_an_engine_is_told_its_own_part_of_the_catch_up() -> None:
    talk = running("1", "2", "3", "4")
    talk.coordinator.engine_gone("4", 0)
    talk.sent()
    talk.stand("1", 6, holds=False)
    talk.stand("2", 5)
    talk.stand("3", 5)
    found = {send.to: send.message for send in talk.coordinator.members.take_sends()}
    parts = {name: message.plan for name, message in found.items() if isinstance(message, ApplyRegroupPlan)}
    assert [(parts[name].behind, parts[name].sources, parts[name].catch_up) for name in "123"] == [
        (("2", "3"), ("1",), CatchUp.STATE),
        (("2",), ("1",), CatchUp.STATE),
        (("3",), ("1",), CatchUp.STATE),
    ]


def test_a_state_is_sent_by_no_more_engines_than_all_can_be_told() -> None:
    statuses = {name: RegroupStatus(6 if int(name) > 2 else 5, False, micro_batches=200) for name in NAMES_200}
    plan = plan_regroup(NAMES_200, statuses)
    assert plan.behind == ("1", "2") and len(plan.sources) == MOST_SOURCES


def test_where_the_split_would_be_long_each_keeps_its_part_and_only_the_parts_of_the_gone_are_dealt() -> None:
    chance = random.Random(1)
    before, own = NAMES_200, even_split(400, 200)
    gone = {"17", "100"}
    summed = {name: chance.random() < 0.5 for name in before}
    statuses = {
        name: RegroupStatus(5, True, ((part[0], part[-1] + 1),) if summed[name] else (), micro_batches=400)
        for name, part in zip(before, own, strict=True)
        if name not in gone
    }
    plan = plan_regroup(before, statuses, before=before)
    assert len(to_runs(plan.split)) <= MOST_RUNS
    parts = dict(zip(plan.members, plan.split, strict=True))
    assert all(set(part) <= set(parts[name]) for name, part in zip(before, own, strict=True) if name not in gone)
    assert sorted(index for part in plan.split for index in part) == list(range(400))
    assert plan.recomputed == 400 - sum(2 for name in statuses if summed[name])


def test_where_it_is_short_what_nobody_has_summed_is_dealt_evenly() -> None:
    statuses = {name: RegroupStatus(5, True, micro_batches=400) for name in NAMES_200[:-1]}
    plan = plan_regroup(NAMES_200, statuses, before=NAMES_200)
    assert {len(part) for part in plan.split} == {2, 3} and plan.recomputed == 400


# ── differences over a connection that breaks ─────────────────────────────────────────────────────────────────────
def told_of_the_next_join(talk: Talk, name: str) -> PrepareGeneration:
    talk.sent()
    talk.come("99")
    (message,) = [
        send.message
        for send in talk.coordinator.members.take_sends()
        if send.to == name and isinstance(send.message, PrepareGeneration)
    ]
    return message


def test_members_are_told_a_difference_and_a_joining_engine_the_whole_membership() -> None:
    talk = running("1", "2", "3")
    assert told_of_the_next_join(talk, "2").difference is not None


def test_an_engine_that_has_connected_again_and_holds_nothing_is_told_the_whole_membership() -> None:
    talk = running("1", "2", "3")
    number = talk.coordinator.members.current.number
    talk.coordinator.engine_disconnected("2")
    talk.coordinator.engine_connected("2", status(number, "1", "2", "3", regroup=0), 0)
    message = told_of_the_next_join(talk, "2")
    assert message.difference is None and message.members == ("1", "2", "3", "99")


# ── another coordinator ───────────────────────────────────────────────────────────────────────────────────────────
def taking_over(*names: str) -> Talk:
    talk = Talk()
    talk.coordinator = Coordinator(recovering=True)
    talk.expect(*names)
    return talk


def test_a_new_coordinator_learns_the_members_from_those_that_name_them() -> None:
    talk = taking_over("1", "2", "3")
    talk.coordinator.engine_connected("3", status(7), 0)  # does not name them
    talk.coordinator.engine_connected("1", status(7, "1", "2", "3"), 0)
    assert talk.coordinator.members.phase is Phase.RECOVERING
    talk.coordinator.engine_connected("2", status(7), 0)
    assert talk.coordinator.members.phase is Phase.RUNNING
    assert talk.coordinator.members.current.members == ("1", "2", "3") and not talk.coordinator.regrouping


def test_where_all_are_gone_that_name_the_members_the_others_regroup() -> None:
    talk = taking_over("2", "3")
    for name in ("2", "3"):
        talk.coordinator.engine_connected(name, status(7, state=EngineState.TRAINING), 0)
    assert talk.coordinator.members.phase is Phase.RECOVERING
    talk.coordinator.check_deadlines(SETTLE_SECONDS + 1)
    assert StartRegroup in talk.kinds("2") and talk.coordinator.regrouping
    talk.regroup("2", "3")
    assert talk.coordinator.members.current.members == ("2", "3")
