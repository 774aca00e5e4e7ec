"""Queues, classes, relocations and reasons in the decision, each with a small cluster whose numbers a person can check."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduler.test_plan import decide, node, running, waiting

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.state import Job, Node, Verb


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


def on(device: Device, number: int) -> Job:
    return replace(waiting(number), device=device)
