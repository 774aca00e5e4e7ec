"""When jobs are expected to start and to end, beside what really comes when plans are carried out second by second."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from edt_scheduler.answers.forecast import HORIZON_SECONDS, UNKNOWN_SECONDS, forecast
from edt_scheduler.answers.settling import settled
from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import without
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Node, Phase, State

SECONDS = {1: 1.0, 2: 0.52, 3: 0.4, 4: 0.27, 8: 0.2}
POINTS = tuple(Point(workers, 1, seconds) for workers, seconds in SECONDS.items())


def node(name: str = "n1", slots: int = 4, health: Health = Health.UP) -> Node:
    return Node(name, slots, slots, health)


def job(number: int, steps: float = 300.0, most: int = 4, **others: object) -> Job:
    given: dict[str, object] = {"user": f"u{number}", "points": POINTS, "steps_left": steps, "engines": 4}
    return Job(f"edt-{number}", number, most, Phase.WAITING, **{**given, **others})  # type: ignore[arg-type]


def gang(number: int, slots: int, steps: float = 300.0, **others: object) -> Job:
    return job(number, steps, slots, **{"gang": True, "min": slots, "engines": None, **others})


def what_comes(state: State, seconds: int = 3000) -> tuple[dict[str, float], dict[str, float]]:
    """The real starts and ends: plans are carried out each second, and each job does its steps."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    left = {each.id: each.steps_left or 0.0 for each in state.jobs}
    pauses: dict[str, float] = {}
    for _ in range(seconds):
        before = {each.id: each.held for each in state.jobs}
        state = settled(state).state
        for each in state.jobs:
            if each.held and not before[each.id]:
                begun.setdefault(each.id, state.now)
            if each.held != before[each.id]:
                pauses[each.id] = each.pause
        over, jobs = set(), []
        for each in state.jobs:
            if each.held:
                works = max(0.0, 1.0 - pauses.get(each.id, 0.0))
                pauses[each.id] = max(0.0, pauses.get(each.id, 0.0) - 1.0)
                left[each.id] -= works / SECONDS[each.held]
                if left[each.id] <= 0:
                    over.add(each.id)
                    ended[each.id] = state.now + 1
            jobs.append(replace(each, steps_left=max(0.0, left[each.id]), attained=each.attained + each.held))
        state = without(replace(state, now=state.now + 1, jobs=tuple(jobs)), over)
        if not state.jobs:
            break
    return begun, ended


NODES = (node(), node("n2", 2))
SEQUENCES: dict[str, Callable[[], State]] = {
    "gangs that wait for each other": lambda: State(
        0.0, NODES[:1], (gang(1, 4, 100), gang(2, 2, 200), gang(3, 3, 100))
    ),
    "elastic jobs of one size and another": lambda: State(
        0.0, NODES, tuple(job(number, 200.0 + 50 * number, most=2) for number in range(1, 8))
    ),
    "a gang behind elastic jobs": lambda: State(0.0, NODES[:1], (job(1, 150), job(2, 250), gang(3, 4, 200))),
    "a back-off and a dependency": lambda: State(
        0.0, NODES[:1], (gang(1, 3, 100, not_before=60.0), gang(2, 2, 100), job(3, 100, after=("edt-1",)))
    ),
}


@pytest.mark.parametrize("what", SEQUENCES)
def test_a_forecast_is_what_comes(what: str) -> None:
    state = SEQUENCES[what]()
    found = forecast(state)
    begun, ended = what_comes(state)
    assert begun.keys() == ended.keys() == found.starts.keys() == found.ends.keys() == {each.id for each in state.jobs}
    for name in begun:
        assert found.starts[name] == pytest.approx(begun[name], abs=10, rel=0.05), name
        assert found.ends[name] == pytest.approx(ended[name], abs=10, rel=0.05), name
    assert found.whole
    assert found.guessed == frozenset()


def test_a_job_of_unknown_length_is_taken_to_need_as_long_again_and_at_least_ten_minutes() -> None:
    state = State(0.0, (node(),), (gang(1, 4, steps_left=None, points=()), gang(2, 4)))
    found = forecast(state)
    assert found.guessed == {"edt-1"}
    assert found.starts["edt-2"] == pytest.approx(UNKNOWN_SECONDS, abs=2)
    running = settled(state).state
    long = replace(
        running, jobs=tuple(replace(each, attained=4 * 5000.0 * (each.id == "edt-1")) for each in running.jobs)
    )
    assert forecast(long).starts["edt-2"] == pytest.approx(5000.0, abs=2)


def test_a_time_limit_ends_a_job_in_the_forecast() -> None:
    state = settled(State(0.0, (node(),), (gang(1, 4, 1e6), gang(2, 4)))).state
    limited = replace(state, jobs=tuple(replace(each, ends_by=90.0 if each.held else None) for each in state.jobs))
    assert forecast(limited).starts["edt-2"] == pytest.approx(90.0, abs=1)
    waiting = State(0.0, (node(),), (gang(1, 4, 1e6, time_limit=70.0), gang(2, 4)))
    assert forecast(waiting).ends["edt-1"] == pytest.approx(70.0, abs=1)


def test_what_can_never_start_has_no_time_and_the_forecast_ends_by_itself() -> None:
    paused = job(3, paused="paused by ana", not_before=math.inf)
    found = forecast(State(0.0, (node(),), (gang(1, 2), gang(2, 5), paused)))
    assert found.starts.keys() == {"edt-1"}
    assert found.until == HORIZON_SECONDS
    assert found.whole


def test_it_is_cut_short_by_its_time_and_by_its_plans() -> None:
    state = State(0.0, (node(),), tuple(gang(number, 4) for number in range(1, 9)))
    asked = 0

    def enough() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    short = forecast(state, enough=enough)
    assert not short.whole
    assert short.starts.keys() < forecast(state).starts.keys()
    assert max(short.starts.values()) <= short.until
    assert not forecast(state, plans=12).whole
    (last, coarse), whole = short.start_of("edt-8"), forecast(state).starts["edt-8"]
    assert coarse
    assert last == pytest.approx(whole, rel=0.2)
    assert short.start_of("edt-2") == (short.starts["edt-2"], False)
    ahead = replace(state, jobs=(*state.jobs, gang(9, 5)))
    assert forecast(ahead, plans=12).start_of("edt-9") == (None, False)


def test_it_ends_with_the_jobs_that_are_asked_for() -> None:
    state = State(0.0, (node(),), tuple(gang(number, 4) for number in range(1, 9)))
    found = forecast(state, wanted=["edt-2"])
    assert "edt-2" in found.ends
    assert "edt-8" not in found.starts


def test_the_first_plan_is_the_one_that_the_scheduler_makes() -> None:
    state = State(0.0, NODES, (gang(1, 4), job(2), job(3)))
    assert forecast(state).settled.first.alloc == plan(state).alloc


def test_a_job_that_moves_has_moved_once_its_plans_are_carried_out() -> None:
    """Its slots on the node that it leaves are free then, and nothing is left to be done."""
    nodes = (Node("n1", 2, 0, Health.UP), Node("n2", 2, 0, Health.UP))
    job = Job("edt-1", 1, 2, Phase.RUNNING, 8, alloc={"n2": 2}, until_joined={"n1": 2}, joined={}, head_node="n1")
    found = settled(State(0.0, nodes, (job,)))
    (then,) = found.state.jobs
    assert (dict(then.alloc), dict(then.until_joined), then.head_node) == ({"n2": 2}, {}, "n2")
    assert [node.free for node in found.state.nodes] == [2, 0]
    assert found.last.actions == ()
