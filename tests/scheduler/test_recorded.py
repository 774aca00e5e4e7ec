"""Recorded decisions: what was decided on which state, read back without loss, and decided again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from edt_contract.reports import ExitKind
from edt_scheduler.decide import recorded
from edt_scheduler.decide.recorded import Recorder, packed, plan_of, replay, state_of
from edt_scheduler.errors import NoSuchDecision
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.operations import decisions, fleet
from edt_scheduler.periodic.rollups import forget_decisions
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Freed, Job, Node, Phase, State
from edt_scheduler.plan.worth import Weights
from support.databases import sqlite_first
from support.puppets import Stage

database_url = sqlite_first()

STATE = State(
    now=1000.25,
    nodes=(
        Node("n1", 4, 2, Health.UP, device=Device.GPU, model="nvidia h100", free_slots=("2", "3")),
        Node("n2", 2, 0, Health.DRAINING, containers=True, device=Device.GPU, model="nvidia h100"),
    ),
    jobs=(
        Job(
            "edt-1",
            1,
            4,
            Phase.RUNNING,
            engines=8,
            alloc={"n1": 2, "n2": 1},
            leaving={"n2": 1},
            head_node="n1",
            avoid=frozenset({"n2"}),
            points=(Point(2, 1, 0.125), Point(4, 2, 0.1, 0.5)),
            slots={"n1": ("1", "0"), "n2": ("0",)},
            steps_left=90.0,
            joined={"n1": 2},
            user="ana",
            queue="/a",
        ),
        Job("edt-2", 2, 2, Phase.WAITING, not_before=math.inf, paused="paused by ana", user="grüße", after=("edt-1",)),
        Job("edt-3", 3, 2, Phase.WAITING, gang=True, unit=2, min=2, device=Device.GPU, models=("nvidia h100",)),
    ),
    queues=(Queue("", policy=Sharing.FAIRSHARE), Queue("/a", 2, 0.5, 3)),
    usage={("/a", "ana"): 12.5, ("", "grüße"): 1.0},
    freed={("n1", "2"): Freed("edt-9", 990.0, "is FINISHED"), ("n1", "3"): Freed("edt-1", 991.0, lost=True)},
    weights=Weights(alpha=0.25),
)


def test_a_state_and_a_plan_come_back_from_their_bytes_as_they_were() -> None:
    decided = plan(STATE)
    assert decided.actions
    assert state_of(packed(STATE)) == STATE
    assert plan_of(packed(decided)) == decided
    again = state_of(packed(STATE))
    assert isinstance(again.jobs[0].avoid, frozenset)
    assert again.jobs[1].not_before == math.inf
    assert again.queues[0].policy is Sharing.FAIRSHARE


def test_a_recorder_writes_the_same_whether_it_has_seen_a_job_before_or_not() -> None:
    recorder = Recorder()
    recorder.packed(STATE, plan(STATE))
    later = replace(STATE, now=1001.0, jobs=(*STATE.jobs[1:], replace(STATE.jobs[0], steps_left=80.0)))
    state, decided, actions = recorder.packed(later, plan(later))
    assert state_of(state) == later
    assert plan_of(decided) == plan(later)
    assert [action[0] for action in actions] == [action.job for action in plan(later).actions]
    assert recorder.packed(replace(STATE, jobs=()), plan(STATE))[0]


def test_a_record_with_fields_of_another_version_can_be_read() -> None:
    held = recorded.unpacked(packed(STATE))
    held["jobs"][0]["of_a_later_version"] = 7
    del held["jobs"][0]["user"]
    found = recorded.from_json(State, held)
    assert found.jobs[0] == replace(STATE.jobs[0], user="")


def test_the_same_state_gives_the_same_plan_and_another_plan_is_told_by_job() -> None:
    decided = plan(STATE)
    assert replay(packed(STATE), packed(decided)).differences == ()
    first = decided.actions[0]
    other = replace(
        decided,
        actions=(replace(first, reason="because"), *decided.actions[1:]),
        alloc={**decided.alloc, "edt-2": {"n1": 1}},
    )
    found = replay(packed(STATE), packed(other)).differences
    assert "edt-2 gets 1 on n1 in the record, and nothing now" in found
    assert f"reason of {first.job}: because in the record, {first.reason} now" in found


def test_each_decision_that_acts_is_recorded_and_comes_out_the_same_again(stage: Stage) -> None:
    node = stage.node(slots=4)
    job = stage.submit(4)
    stage.settle()
    other = stage.submit(2)
    stage.settle()
    node.end((job, 1), ExitKind.FINISHED)
    stage.settle()
    fleet.drain(stage.platform, "n1")
    stage.settle()
    page = decisions.decisions(stage.platform, limit=2)
    rest = decisions.decisions(stage.platform, limit=50, before=page.before)
    found = [*page.decisions, *rest.decisions]
    assert [each.number for each in found] == list(range(len(found), 0, -1))
    verbs = [(action.exec_id, action.verb) for each in reversed(found) for action in each.actions]
    assert verbs[:2] == [(job, "start"), (job, "grow")]
    assert (other, "start") in verbs
    for each in found:
        again = decisions.decision(stage.platform, each.number)
        assert again.differences == ()
        assert {job["id"] for job in again.state["jobs"]} >= {action.exec_id for action in each.actions}
    with pytest.raises(NoSuchDecision, match="no decision 99"):
        decisions.decision(stage.platform, 99)


def test_records_go_when_they_are_old_or_take_too_much(sqlite_stage: Stage) -> None:
    stage = sqlite_stage
    stage.node(slots=4)
    stage.submit(4)
    stage.settle()
    stage.clock.pass_(47 * 3600)
    stage.submit(4)
    stage.settle()
    kept = decisions.decisions(stage.platform, limit=50).decisions
    assert forget_decisions(stage.platform) == 0
    stage.clock.pass_(3600)
    old = sum(each.at < 1_000_000.0 + 3600 for each in kept)
    assert 0 < old < len(kept)
    assert forget_decisions(stage.platform) == old
    newest = decisions.decisions(stage.platform, limit=1).decisions[0]
    small = stage.platform.settings.model_copy(update={"decisions_megabytes": newest.bytes / 1e6})
    forget_decisions(replace(stage.platform, settings=small))
    assert [each.number for each in decisions.decisions(stage.platform, limit=50).decisions] == [newest.number]
