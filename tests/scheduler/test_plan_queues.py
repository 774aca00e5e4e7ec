"""Queues, classes, relocations and reasons in the decision: small clusters whose numbers a person can check."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduler.test_gang_plans import gang
from tests.scheduler.test_plan import decide, node, running, waiting
from tests.support.plan_states import at_rest

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Node, State, Verb


def gpus(there: Node, model: str = "") -> Node:
    return replace(there, device=Device.GPU, model=model)


class TestKinds:
    def test_a_job_on_a_gpu_that_drains_keeps_it_until_one_elsewhere_has_joined_beside_cpus_too(self) -> None:
        nodes = [gpus(node("g1", 2, 0, Health.DRAINING)), gpus(node("g2", 4)), node("c1", 4)]
        decided = decide(nodes, running(1, {"g1": 2}, head_node="g1"))
        assert (decided.alloc["edt-1"], decided.over) == ({"g2": 2}, {"edt-1": {"g1": 2}})
        assert [action.verb for action in decided.actions] == [Verb.RELOCATE]

    def test_ranks_count_all_that_wait_whatever_kind_of_slot_they_wait_for(self) -> None:
        full = [gpus(node("g1", 1, 0)), node("c1", 1, 0)]
        held = [running(1, {"g1": 1}, most=1, head_node="g1"), running(2, {"c1": 1}, most=1, head_node="c1")]
        later = [on(Device.GPU, 3), on(Device.CPU, 4), replace(on(Device.GPU, 5), priority=2)]
        decided = decide(full, *held, *later)
        assert [decided.explain[job.id].rank for job in later] == [2, 3, 1]


class TestLeastSizes:
    def test_a_job_that_can_use_fewer_than_its_least_starts_with_what_it_can_use(self) -> None:
        job = replace(waiting(1, most=3, engines=2), min=3)
        decided = decide([node("n1", 8)], job, gang(2, 6))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {"n1": 6}}

    def test_a_waiting_gang_ends_no_job_that_needs_its_least_size(self) -> None:
        nodes = [node("n1", 4)]
        jobs = waiting(1, most=1), replace(waiting(2, most=2), min=2), gang(3, 2)
        state, _ = at_rest(State(0.0, tuple(nodes), jobs), 3)
        assert [job.held for job in state.jobs] == [1, 2, 0]
        assert plan(state).explain["edt-3"].reason == ("needs 2 slots at once, jobs that run or came before it leave 1")

    def test_a_gang_gets_what_is_above_the_least_size_of_a_job_on_two_nodes(self) -> None:
        nodes = [node("n1", 2, 0), node("n2", 3, 0)]
        job = replace(running(1, {"n1": 2, "n2": 3}, most=5, engines=5), min=3)
        decided = decide(nodes, job, gang(2, 2))
        assert decided.alloc["edt-1"] == {"n1": 2, "n2": 1}


class TestDeadlines:
    def test_a_job_with_a_deadline_on_a_cordoned_node_keeps_what_it_has(self) -> None:
        nodes = [node("n1", 3, 0, Health.CORDONED), node("n2", 1)]
        points = (Point(2, 1, 0.8), Point(8, 1, 0.6))
        job = replace(running(1, {"n1": 3}, most=3, engines=None), points=points, steps_left=1e3, deadline=11e3)
        assert decide(nodes, job).alloc == {"edt-1": {"n1": 3}}


def on(device: Device, number: int) -> Job:
    return replace(waiting(number), device=device)
