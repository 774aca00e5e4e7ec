"""The decision: examples a person can check, and what holds for every state whatsoever."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_scheduler.model.states import Health, ResizeCause
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.sizes import sizes
from edt_scheduler.plan.state import Blocking, Job, Node, Phase, Plan, State, Verb


def node(name: str = "n1", slots: int = 4, free: int | None = None, health: Health = Health.UP) -> Node:
    return Node(name, slots, slots if free is None else free, health)


def waiting(number: int, most: int = 4, engines: int | None = None, not_before: float | None = None) -> Job:
    return Job(f"edt-{number}", number, most, Phase.WAITING, engines, not_before=not_before)


def running(
    number: int, alloc: Mapping[str, int], most: int = 4, engines: int | None = 4, head_node: str = "n1"
) -> Job:
    return Job(f"edt-{number}", number, most, Phase.RUNNING, engines, alloc=alloc, head_node=head_node)


def decide(nodes: list[Node], *jobs: Job, now: float = 0.0) -> Plan:
    return plan(State(now, tuple(nodes), jobs))


class TestSizes:
    @pytest.mark.parametrize(
        ("engines", "most", "expected"),
        [
            (16, 16, (1, 2, 3, 4, 6, 8, 16)),
            (16, 5, (1, 2, 3, 4)),
            (4, 16, (1, 2, 4)),
            (6, 6, (1, 2, 3, 6)),
            (1, 4, (1,)),
            (10**12, 3, (1, 2, 3)),
            (None, 8, (1,)),
        ],
    )
    def test_sizes_are_those_at_which_a_step_takes_fewer_turns(
        self, engines: int | None, most: int, expected: tuple[int, ...]
    ) -> None:
        assert sizes(engines, most) == expected

    def test_they_are_those_that_trying_each_number_finds(self) -> None:
        for engines in range(1, 60):
            for most in range(1, 70):
                rounds = {n: -(-engines // n) for n in range(1, min(most, engines) + 1)}
                assert sizes(engines, most) == tuple(n for n in rounds if n == 1 or rounds[n] < rounds[n - 1])


class TestExamples:
    def test_one_slot_until_e_is_known(self) -> None:
        assert decide([node()], waiting(1)).alloc == {"edt-1": {"n1": 1}}

    def test_with_e_known_a_job_starts_at_full_size(self) -> None:
        assert decide([node()], waiting(1, engines=4)).alloc == {"edt-1": {"n1": 4}}

    def test_the_largest_size_that_fits_is_taken_not_the_largest_number(self) -> None:
        assert decide([node(slots=3)], waiting(1, engines=4)).alloc == {"edt-1": {"n1": 2}}

    def test_a_job_never_exceeds_what_its_user_allows(self) -> None:
        assert decide([node(slots=16)], waiting(1, most=3, engines=16)).alloc == {"edt-1": {"n1": 3}}

    def test_shares_are_equal_and_ties_go_to_who_came_first(self) -> None:
        decided = decide([node(slots=5)], waiting(2, engines=4), waiting(1, engines=4))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {"n1": 2}}
        decided = decide([node(slots=3)], waiting(2, engines=4), waiting(1, engines=4))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {"n1": 1}}

    def test_a_new_job_makes_the_first_shrink_and_waits_for_the_slot(self) -> None:
        decided = decide([node(free=0)], running(1, {"n1": 4}), waiting(2))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {}}
        (shrink,) = decided.actions
        assert (shrink.verb, shrink.before, shrink.after) == (Verb.SHRINK, 4, 2)
        assert shrink.reason == "makes room for edt-2"
        assert decided.explain["edt-2"].blocking is Blocking.VACATING

    def test_what_does_not_fit_waits_with_a_reason_and_a_rank(self) -> None:
        decided = decide([node(slots=1)], waiting(1), waiting(2), waiting(3))
        explained = decided.explain["edt-3"]
        assert (explained.rank, explained.need, explained.free, explained.target) == (2, 1, 0, 0)
        assert explained.blocking is Blocking.CAPACITY
        assert explained.reason == "all 1 slot are shared by jobs that run or came before it"

    def test_a_job_waits_out_its_back_off_and_nobody_waits_with_it(self) -> None:
        decided = decide([node(slots=2)], waiting(1, engines=2, not_before=5.0), waiting(2, engines=2), now=4.0)
        assert decided.alloc == {"edt-1": {}, "edt-2": {"n1": 2}}
        assert decided.explain["edt-1"].blocking is Blocking.COOLDOWN

    def test_nothing_starts_where_no_node_takes_work(self) -> None:
        for health in (Health.CORDONED, Health.DRAINING, Health.LOST):
            decided = decide([node(health=health)], waiting(1))
            assert decided.alloc == {"edt-1": {}}
            assert decided.explain["edt-1"].blocking is Blocking.NODES

    def test_engines_leave_a_draining_node_and_continue_where_there_is_room(self) -> None:
        nodes = [node("n1", 2, 0), node("n2", 2, 0, Health.DRAINING), node("n3", 2)]
        decided = decide(nodes, running(1, {"n1": 2, "n2": 2}))
        assert decided.alloc == {"edt-1": {"n1": 2, "n3": 2}}

    def test_a_job_whose_home_drains_lives_on_where_it_has_most_engines_and_then_by_name(self) -> None:
        nodes = [node("n1", 2, 0, Health.DRAINING), node("n2", 1, 0), node("n3", 2, 0), node("n4", 2, 0)]
        decided = decide(nodes, running(1, {"n1": 2, "n2": 1, "n3": 1}))
        assert decided.alloc == {"edt-1": {"n2": 1, "n3": 1}}
        assert decided.head_nodes == {"edt-1": "n2"}
        decided = decide(nodes, running(1, {"n1": 1, "n2": 1, "n4": 2}))
        assert decided.head_nodes == {"edt-1": "n4"}
        assert decided.actions[0].verb is Verb.SHRINK

    def test_a_job_all_of_whose_nodes_drain_keeps_its_engines_until_one_elsewhere_has_joined(self) -> None:
        nodes = [node("n1", 2, 0, Health.DRAINING), node("n2", 2, 0, Health.DRAINING), node("n3", 4)]
        there = running(1, {"n1": 2, "n2": 2})
        first = decide(nodes, there)
        assert (first.alloc, first.until_joined) == ({"edt-1": {"n3": 1}}, {"edt-1": {"n1": 2, "n2": 1}}), "E is 4"
        assert (first.actions[0].verb, first.actions[0].cause) == (Verb.RELOCATE, ResizeCause.DRAIN)
        assert first.head_nodes == {"edt-1": "n1"}
        nodes[2] = node("n3", 4, 3)
        coming = replace(
            there, alloc=first.alloc["edt-1"], until_joined=first.until_joined["edt-1"], joined={"n1": 2, "n2": 1}
        )
        assert decide(nodes, coming).actions == ()
        joined = decide(nodes, replace(coming, joined={"n1": 2, "n2": 1, "n3": 1}))
        assert (joined.alloc, joined.until_joined, joined.head_nodes) == ({"edt-1": {"n3": 4}}, {}, {"edt-1": "n3"})

    def test_a_job_whose_new_engines_were_lost_before_they_joined_goes_on_where_it_was(self) -> None:
        nodes = [node("n1", 2, 0, Health.DRAINING), node("n3", 4, 3), node("n4", 4)]
        there = running(1, {"n3": 1}, engines=8, most=8)
        lost = decide(
            [nodes[0], node("n3", 4, 3, Health.LOST), nodes[2]], replace(there, until_joined={"n1": 2}, joined={})
        )
        assert (lost.alloc["edt-1"], lost.until_joined["edt-1"]) == ({"n4": 4}, {"n1": 2})

    def test_a_job_whose_maximum_was_lowered_gives_back_what_is_too_much(self) -> None:
        decided = decide([node("n1", 4, 0)], running(1, {"n1": 4}, most=1))
        (action,) = decided.actions
        assert (action.after, action.cause, action.reason) == (1, ResizeCause.BOUNDS, "its most are 1 slot now")

    def test_a_job_of_one_micro_batch_whose_node_drains_starts_again_elsewhere(self) -> None:
        nodes = [node("n1", 2, 1, Health.DRAINING), node("n3", 4)]
        decided = decide(nodes, running(1, {"n1": 1}, engines=1))
        assert (decided.alloc, decided.head_nodes) == ({"edt-1": {}}, {})
        assert decided.actions[0].verb is Verb.MOVE

    def test_a_home_that_holds_no_engine_any_more_is_handed_over(self) -> None:
        decided = decide([node("n1", 2), node("n2", 2, 0)], running(1, {"n2": 2}, engines=2))
        assert decided.head_nodes == {"edt-1": "n2"}
        assert [action.verb for action in decided.actions] == [Verb.HAND_OVER]

    def test_a_capped_job_stays_as_large_as_it_is_and_gives_way_as_before(self) -> None:
        job = replace(running(1, {"n1": 3}), cap=3, cap_until=60.0)
        assert decide([node(free=1)], job, now=59.0).alloc == {"edt-1": {"n1": 3}}
        assert "kept at 3 slots for now" in decide([node(free=1)], job, now=59.0).explain["edt-1"].reason
        assert decide([node(free=1)], job, now=60.0).alloc == {"edt-1": {"n1": 4}}
        assert decide([node(free=1)], job, waiting(2), now=59.0).alloc == {"edt-1": {"n1": 3}, "edt-2": {"n1": 1}}
        assert decide([node("n1", 3, 0)], job, waiting(2), now=59.0).alloc["edt-1"] == {"n1": 2}

    def test_a_cordoned_node_keeps_its_engines_and_the_others_are_shared(self) -> None:
        nodes = [node("n1", 2, 0, Health.CORDONED), node("n2", 2, 0)]
        decided = decide(nodes, running(1, {"n1": 2, "n2": 2}), waiting(2))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {}}

    def test_a_shrinking_job_empties_other_nodes_before_its_first(self) -> None:
        nodes = [node("n1", 3, 0), node("n2", 1, 0)]
        decided = decide(nodes, running(1, {"n1": 3, "n2": 1}), waiting(2, engines=2))
        assert decided.alloc["edt-1"] == {"n1": 2}

    def test_a_job_starts_where_it_can_grow_and_grows_where_it_is(self) -> None:
        nodes = [node("n1", 2), node("n2", 4)]
        assert decide(nodes, waiting(1, most=4)).alloc == {"edt-1": {"n2": 1}}
        nodes = [node("n1", 2), node("n2", 4, 3)]
        assert decide(nodes, running(1, {"n2": 1}, head_node="n2")).alloc == {"edt-1": {"n2": 4}}

    def test_a_node_that_is_being_left_is_avoided(self) -> None:
        job = replace(running(1, {"n1": 2}), avoid=frozenset({"n2"}))
        assert decide([node("n1", 2, 0), node("n2", 2)], job).alloc == {"edt-1": {"n1": 2}}

    def test_slots_being_vacated_are_not_free(self) -> None:
        leaving = replace(running(1, {"n1": 2}, engines=2), leaving={"n1": 2})
        decided = decide([node(free=0)], leaving, waiting(2))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {}}


def in_containers(name: str = "n2", slots: int = 2, free: int | None = None, fixed: bool = False) -> Node:
    return replace(node(name, slots, free), containers=True, fixed=fixed)


def with_image(job: Job) -> Job:
    return replace(job, image="an/image:1")


class TestImages:
    def test_a_job_with_an_image_runs_only_where_containers_are_started(self) -> None:
        decided = decide([node("n1", 8), in_containers()], with_image(waiting(1, engines=4)))
        assert decided.alloc == {"edt-1": {"n2": 2}}

    def test_where_no_such_node_is_up_it_waits_and_is_told_why(self) -> None:
        down = replace(in_containers(), health=Health.LOST)
        decided = decide([node("n1", 8), down], with_image(waiting(1)), waiting(2))
        assert decided.alloc == {"edt-1": {}, "edt-2": {"n1": 1}}
        explained = decided.explain["edt-1"]
        assert explained.blocking is Blocking.NODES
        assert explained.reason == "its image an/image:1 needs a node that starts containers, and none is up"

    def test_where_such_nodes_are_full_of_others_like_it_that_is_the_reason(self) -> None:
        holder = with_image(running(1, {"n2": 1}, most=1, engines=1, head_node="n2"))
        decided = decide([node("n1", 8), in_containers(slots=1, free=0)], holder, with_image(waiting(2)))
        assert decided.explain["edt-2"].blocking is Blocking.CAPACITY
        assert decided.explain["edt-2"].reason == (
            "all 1 slot that start containers are shared by jobs that run or came before it"
        )

    def test_a_job_without_an_image_runs_anywhere(self) -> None:
        assert decide([in_containers()], waiting(1, engines=2)).alloc == {"edt-1": {"n2": 2}}

    def test_others_make_room_on_the_nodes_that_start_containers_although_they_are_within_their_share(self) -> None:
        nodes = [node("n1", 4, 1), in_containers(slots=1, free=0)]
        decided = decide(nodes, running(1, {"n1": 3, "n2": 1}, engines=4), with_image(waiting(2)))
        assert decided.alloc == {"edt-1": {"n1": 4}, "edt-2": {}}, "it moves one engine, so that edt-2 can start"
        assert decided.explain["edt-2"].blocking is Blocking.VACATING
        rest = [replace(nodes[0], free=0), in_containers(slots=1)]
        moved = replace(running(1, {"n1": 4}, engines=4), avoid=frozenset({"n2"}))
        assert decide(rest, moved, with_image(waiting(2))).alloc["edt-2"] == {"n2": 1}

    def test_a_container_with_fixed_gpus_does_not_grow_and_another_may_start_beside_it(self) -> None:
        decided = decide(
            [in_containers(slots=4, free=3, fixed=True)], running(1, {"n2": 1}, head_node="n2"), waiting(2)
        )
        assert decided.alloc == {"edt-1": {"n2": 1}, "edt-2": {"n2": 1}}
        nodes = [in_containers(slots=2, free=1, fixed=True), node("n1", 1)]
        assert decide(nodes, running(1, {"n2": 1}, head_node="n2")).alloc == {"edt-1": {"n2": 1, "n1": 1}}


class TestNodesAlone:
    def test_no_attempt_spans_a_node_whose_engines_others_cannot_reach(self) -> None:
        alone = replace(node("n1", 4, 3), alone=True)
        assert decide([alone, node("n2", 4)], running(1, {"n1": 1}, most=8, engines=8)).alloc == {"edt-1": {"n1": 4}}
        nodes = [replace(node("n1", 4), alone=True), node("n2", 4, 3), node("n3", 2)]
        job = running(1, {"n2": 1}, most=8, engines=8, head_node="n2")
        assert decide(nodes, job).alloc == {"edt-1": {"n2": 4}}, "6 slots are no size of it"
        assert decide(nodes, replace(job, engines=6)).alloc == {"edt-1": {"n2": 4, "n3": 2}}

    def test_a_job_starts_where_most_of_it_fits(self) -> None:
        nodes = [replace(node("n1", 4), alone=True), replace(node("n2", 6), alone=True), node("n3", 2), node("n4", 3)]
        assert decide(nodes, waiting(1, most=16, engines=6)).alloc == {"edt-1": {"n2": 6}}
        assert decide(nodes, waiting(1, most=4)).alloc == {"edt-1": {"n4": 1}}, "where it can grow to its maximum"
        assert decide(nodes[:2], waiting(1, most=16, engines=16), waiting(2, most=16, engines=16)).alloc == {
            "edt-1": {"n2": 6},
            "edt-2": {"n1": 4},
        }

    def test_a_slot_that_nobody_below_its_share_can_reach_goes_to_a_job_beyond_its_share(self) -> None:
        state = State(
            0.0,
            tuple(replace(node(name, 4, 0), alone=True) for name in ("n1", "n2")),
            (
                running(1, {"n1": 4}, most=8, engines=24),
                running(2, {"n2": 4}, most=8, engines=24, head_node="n2"),
                waiting(3, most=8, engines=24),
            ),
        )
        state = settled(state)
        held = {job.id: dict(job.alloc) for job in state.jobs}
        assert held == {"edt-1": {"n1": 3}, "edt-2": {"n2": 4}, "edt-3": {"n1": 1}}
        decided = plan(state)
        assert decided.actions == ()
        reasons = [decided.explain[job].reason for job in sorted(held)]
        assert reasons == [
            "holds 3 slots of its share 3",
            "holds 4 slots of its share 2",
            "holds 1 slot of its share 3, no slot that its engines can reach is free",
        ]

    def test_it_goes_to_the_smallest_first_and_back_to_who_can_use_it(self) -> None:
        nodes = [replace(node("n1", 2, 0), alone=True), replace(node("n2", 6, 3), alone=True)]
        confined = running(1, {"n1": 2}, most=8, engines=24)
        larger, smaller = (
            running(2, {"n2": 2}, most=8, engines=24, head_node="n2"),
            running(3, {"n2": 1}, most=8, engines=24, head_node="n2"),
        )
        decided = decide(nodes, confined, larger, smaller)
        assert (decided.alloc["edt-2"], decided.alloc["edt-3"]) == ({"n2": 3}, {"n2": 3})
        full = [nodes[0], replace(nodes[1], free=0)]
        held = (replace(larger, alloc={"n2": 3}), replace(smaller, alloc={"n2": 3}))
        assert decide(full, confined, *held).actions == ()
        decided = decide(full, confined, *held, waiting(4, most=8, engines=24))
        assert sum(decided.alloc["edt-2"].values()) + sum(decided.alloc["edt-3"].values()) == 4


def settled(state: State) -> State:
    """The state once plans change it no more and everybody has left who was asked to."""
    for _ in range(30):
        decided = plan(state)
        if not decided.actions and not any(job.leaving or job.until_joined for job in state.jobs):
            return state
        state = apply(state, decided)
        free = {n.id: n.free for n in state.nodes}
        jobs = []
        for job in state.jobs:
            for name, number in job.leaving.items():
                free[name] += number
            jobs.append(replace(job, leaving={}, joined=None))
        state = State(state.now, tuple(replace(n, free=free[n.id]) for n in state.nodes), tuple(jobs))
    raise AssertionError("ping-pong")


HEALTHS = st.sampled_from([Health.UP, Health.UP, Health.UP, Health.CORDONED, Health.DRAINING, Health.LOST])


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any state the store could show, unlikely ones included."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 4)))]
    nodes = {
        name: Node(
            name,
            slots := draw(st.integers(0, 5)),
            slots,
            draw(HEALTHS),
            containers=(containers := draw(st.booleans())),
            fixed=containers and draw(st.booleans()),
            alone=containers and draw(st.booleans()),
        )
        for name in names
    }
    jobs = []
    for number in range(draw(st.integers(0, 6))):
        engines = draw(st.one_of(st.none(), st.integers(1, 12)))
        job = Job(
            id=f"edt-{number}",
            submit=number,
            max=draw(st.integers(1, 10)),
            phase=draw(st.sampled_from(Phase)),
            engines=engines,
            not_before=draw(st.sampled_from([None, None, 50.0, 150.0])),
            cap=draw(st.sampled_from([None, None, 1, 3])),
            cap_until=draw(st.sampled_from([None, 50.0, 150.0])),
            image=draw(st.sampled_from([None, None, "an/image"])),
        )
        if draw(st.integers(0, 2)) == 0:
            unit = draw(st.integers(1, 4))
            job = replace(job, gang=True, unit=unit, max=unit * draw(st.integers(1, 4)), engines=None, cap=None)
        if job.phase is not Phase.WAITING:
            together = [name for name in names if not nodes[name].alone]
            reach = draw(st.sampled_from([together, *([name] for name in names if nodes[name].alone)]))
            alloc = _book(draw, nodes, job, reach)
            leaving = _book(draw, nodes, job, reach) if draw(st.booleans()) else {}
            if job.gang and job.phase is Phase.RUNNING:  # ranks that have finished gave their slots back
                job = replace(job, max=-(-max(job.max, sum(alloc.values())) // job.unit) * job.unit)
                leaving = {}
            if not alloc and job.phase is Phase.RUNNING:
                job = replace(job, phase=Phase.ENDING)
            head_node = draw(st.sampled_from([*(sorted(alloc) or names), *names]))
            avoid = frozenset(draw(st.sets(st.sampled_from(names)))) - alloc.keys() - {head_node}
            job = replace(job, alloc=alloc, leaving=leaving, head_node=head_node, avoid=avoid)
        jobs.append(job)
    return State(100.0, tuple(nodes.values()), tuple(jobs))


def _book(draw: st.DrawFn, nodes: dict[str, Node], job: Job, reach: list[str]) -> dict[str, int]:
    booked = {}
    for name in reach:
        there = nodes[name]
        if job.image and not there.containers:
            continue
        number = draw(st.integers(0, there.free))
        if number:
            booked[name] = number
            nodes[name] = replace(there, free=there.free - number)
    return booked


def apply(state: State, decided: Plan) -> State:
    """The state once a plan has been carried out and nothing else has happened: nobody has left yet."""
    free = {node.id: node.free for node in state.nodes}
    jobs = []
    for job in state.jobs:
        target = decided.alloc[job.id]
        if job.phase is Phase.ENDING:
            jobs.append(job)
            continue
        leaving = dict(job.leaving)
        until_joined = decided.until_joined.get(job.id, {})
        for name in {*job.alloc, *job.until_joined, *target}:
            gone = (
                job.alloc.get(name, 0) + job.until_joined.get(name, 0) - target.get(name, 0) - until_joined.get(name, 0)
            )
            free[name] += min(0, gone)
            if gone > 0:
                leaving[name] = leaving.get(name, 0) + gone
        phase = job.phase
        if target:
            phase = Phase.RUNNING
        elif job.phase is Phase.RUNNING:
            phase = Phase.ENDING
        head_node = decided.head_nodes.get(job.id, job.head_node)
        emptied = frozenset(name for name in job.alloc if name not in {*target, *until_joined} and name != head_node)
        then = replace(job, alloc=dict(target), leaving=leaving, phase=phase, head_node=head_node)
        jobs.append(
            replace(then, avoid=job.avoid | emptied, until_joined=until_joined, joined={} if until_joined else None)
        )
    nodes = tuple(replace(node, free=free[node.id]) for node in state.nodes)
    return State(state.now, nodes, tuple(jobs))


class TestEveryState:
    @given(states())
    @settings(max_examples=150, deadline=None)
    def test_a_plan_that_was_applied_is_its_own_fix_point(self, state: State) -> None:
        decided = plan(state)
        again = plan(apply(state, decided))
        assert again.actions == ()

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_never_more_than_is_free_and_nothing_new_where_no_work_is_taken(self, state: State) -> None:
        decided = plan(state)
        drained = {there.id for there in state.nodes if there.health is Health.DRAINING}
        for there in state.nodes:
            new = sum(max(0, decided.alloc[job.id].get(there.id, 0) - job.alloc.get(there.id, 0)) for job in state.jobs)
            assert new <= (there.free if there.health is Health.UP else 0)
            if there.health is Health.LOST:
                assert all(there.id not in decided.alloc[job.id] for job in state.jobs)
            if there.health is Health.DRAINING:
                staying = [decided.alloc[job.id] for job in state.jobs if there.id in decided.alloc[job.id]]
                assert all(alloc.keys() <= drained for alloc in staying), "who has slots elsewhere has left"

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_an_attempt_on_a_node_that_is_alone_is_nowhere_else(self, state: State) -> None:
        decided = plan(state)
        alone = {there.id for there in state.nodes if there.alone}
        for job in state.jobs:
            there = {*decided.alloc[job.id], *(job.leaving if job.phase is Phase.RUNNING else ())}
            assert not there & alone or len(there) == 1

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_a_planned_size_is_one_of_the_jobs_sizes_or_what_it_holds(self, state: State) -> None:
        decided = plan(state)
        for job in state.jobs:
            size = sum(decided.alloc[job.id].values())
            stays = sum(
                slots
                for name, slots in job.alloc.items()
                if next(n for n in state.nodes if n.id == name).health in {Health.UP, Health.CORDONED}
            )
            if job.gang:
                assert size in ({0, job.held} if job.phase is Phase.RUNNING else {0, job.max})
                continue
            if stays or job.phase is not Phase.RUNNING:
                assert size in {0, stays, *sizes(job.engines, job.max), *([job.cap] if job.cap else [])}
                assert job.avoid.isdisjoint(decided.alloc[job.id])
            assert size <= max(job.held, job.max)
            assert size + sum(decided.until_joined.get(job.id, {}).values()) <= max(job.held, job.max, job.engines or 0)

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_an_attempt_that_keeps_an_engine_goes_on_and_lives_where_it_keeps_one(self, state: State) -> None:
        decided = plan(state)
        healths = {there.id: there.health for there in state.nodes}
        for job in state.jobs:
            alloc = decided.alloc[job.id]
            stays = {name for name in job.alloc if healths[name] in {Health.UP, Health.CORDONED}}
            if job.gang and job.phase is Phase.RUNNING:
                assert alloc == (job.alloc if stays == job.alloc.keys() else {})
                assert not alloc or decided.head_nodes[job.id] == job.head_node
                continue
            if job.phase is Phase.RUNNING:
                assert alloc or not stays
                until_joined = decided.until_joined.get(job.id, {})
                assert not alloc or decided.head_nodes[job.id] in {*alloc, *until_joined}
                assert job.head_node not in until_joined or decided.head_nodes[job.id] == job.head_node
                if job.head_node in stays and alloc and len(alloc) >= len(stays):  # it does not gather on fewer
                    assert decided.head_nodes[job.id] == job.head_node, "nobody moves for nothing"
            assert (job.id in decided.head_nodes) == bool(alloc)

    @given(states(), st.randoms(use_true_random=False))
    @settings(max_examples=100, deadline=None)
    def test_the_order_of_the_inputs_changes_nothing(self, state: State, order: random.Random) -> None:
        nodes, jobs = list(state.nodes), list(state.jobs)
        order.shuffle(nodes)
        order.shuffle(jobs)
        assert plan(State(state.now, tuple(nodes), tuple(jobs))) == plan(state)

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_every_waiting_job_has_a_reason_and_no_slot_lies_idle_that_one_could_start_on(self, state: State) -> None:
        decided = plan(state)
        left = {n.id: n.free for n in state.nodes if n.health is Health.UP}
        for job in state.jobs:
            for name, number in decided.alloc[job.id].items():
                if name in left:
                    left[name] -= max(0, number - job.alloc.get(name, 0))
        gangs = [job.id for job in state.jobs if job.gang]
        kept = sum(decided.explain[job].need for job in gangs if decided.explain[job].blocking is Blocking.VACATING)
        for job in state.jobs:
            idle = sum(left[n.id] for n in state.nodes if n.id in left and (n.containers or not job.image))
            explained = decided.explain[job.id]
            if job.phase is Phase.WAITING and not decided.alloc[job.id]:
                assert explained.blocking is not None
                assert explained.rank >= 1
                if job.gang:
                    assert (explained.target > 0) == (explained.blocking is Blocking.VACATING)
                elif explained.blocking is not Blocking.COOLDOWN:
                    assert idle <= kept or explained.target == 0

    @given(states())
    @settings(max_examples=60, deadline=None)
    def test_once_everybody_has_left_the_platform_comes_to_rest(self, state: State) -> None:
        settled(state)
