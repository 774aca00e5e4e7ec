"""What holds for every plan, in seeded states with queues, classes, gangs, kinds of nodes and jobs that are moving."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from tests.support.plan_states import Kinds, applied, at_rest, rich

from edt_scheduler.model.states import Health
from edt_scheduler.plan import devices
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.sizes import sizes_of
from edt_scheduler.plan.state import Job, Node, Phase, Plan, State

PLAIN = Kinds(gpus=False, confined=False, unhealthy=False, moving=False)
"""Queues, classes, gangs and limits on nodes that are all alike."""


def check(state: State) -> None:
    """All that holds for one plan, whatever follows."""
    decided = plan(state)
    _nodes_hold_it(state, decided)
    _sizes_are_allowed(state, decided)
    _each_job_has_one_kind(state, decided)
    _who_waits_is_told(state, decided)
    _slots_are_named(state, decided)
    assert plan(shuffled(state)) == decided, "the order of the inputs changes nothing"


def shuffled(state: State) -> State:
    chance = random.Random(len(state.jobs))
    nodes, jobs, queues = list(state.nodes), list(state.jobs), list(state.queues)
    for each in (nodes, jobs, queues):
        chance.shuffle(each)
    return replace(state, nodes=tuple(nodes), jobs=tuple(jobs), queues=tuple(queues))


def _nodes_hold_it(state: State, decided: Plan) -> None:
    for node in state.nodes:
        new = sum(max(0, _then(decided, job, node) - _now(job, node)) for job in state.jobs)
        assert new <= (node.free if node.health is Health.UP else 0), node.id
    for job in state.jobs:
        barred = job.after or job.locked or job.paused or (job.not_before or 0.0) > state.now
        assert not (barred and job.phase is Phase.WAITING and decided.alloc[job.id]), job.id
        assert not decided.alloc[job.id].keys() & decided.until_joined.get(job.id, {}).keys(), job.id
        assert decided.alloc[job.id] or not decided.until_joined.get(job.id), job.id


def _sizes_are_allowed(state: State, decided: Plan) -> None:
    healths = {node.id: node.health for node in state.nodes}
    for job in state.jobs:
        size = sum(decided.alloc[job.id].values())
        if job.gang:
            assert size in ({0, job.held} if job.phase is Phase.RUNNING else {0, job.max}), job.id
        elif job.phase is Phase.WAITING:
            capped = job.cap is not None and job.cap_until is not None and job.cap_until > state.now
            now = replace(job, max=min(job.max, job.cap or job.max)) if capped else replace(job, cap=None)
            assert size in {0, *sizes_of(now)}, job.id
        elif not job.until_joined and job.id not in decided.until_joined:
            stays = sum(n for name, n in job.alloc.items() if healths[name] in {Health.UP, Health.CORDONED})
            assert size <= max(job.max, stays, job.held), job.id


def _each_job_has_one_kind(state: State, decided: Plan) -> None:
    nodes = {node.id: node for node in state.nodes}
    for job in state.jobs:
        there = [name for slots in (decided.alloc[job.id], decided.until_joined.get(job.id, {})) for name in slots]
        kinds = {devices.kind_of(nodes[name]) for name in there}
        assert len(kinds) <= 1, job.id
        for device, model in kinds if job.phase is Phase.WAITING else ():
            assert job.device in {None, device}, job.id
            assert not job.models or model in job.models, job.id
            assert job.image is None or all(nodes[name].containers for name in there), job.id


def _who_waits_is_told(state: State, decided: Plan) -> None:
    ranks = []
    for job in state.jobs:
        told = decided.explain[job.id]
        if job.phase is Phase.WAITING and not decided.alloc[job.id]:
            assert told.blocking is not None, job.id
            assert told.reason, job.id
            assert (told.rank >= 1) is (job.paused is None), job.id
            ranks += [told.rank] if job.paused is None else []
        else:
            assert (told.rank, told.blocking) == (0, None), job.id
    assert sorted(ranks) == list(range(1, len(ranks) + 1))


def _slots_are_named(state: State, decided: Plan) -> None:
    given = [(name, slot) for gives in decided.gives.values() for name, slots in gives.items() for slot in slots]
    assert len(given) == len(set(given)), "no slot is given twice"
    assert set(given) <= {(node.id, slot) for node in state.nodes for slot in node.free_slots}
    for job in state.jobs:
        if job.phase is Phase.ENDING:
            continue
        takes, gives = decided.takes.get(job.id, {}), decided.gives.get(job.id, {})
        assert all(set(slots) <= set(job.slots.get(name, ())) for name, slots in takes.items()), job.id
        for node in state.nodes:
            before, gone, more = (len(each.get(node.id, ())) for each in (job.slots, takes, gives))
            assert before - gone + more == _then(decided, job, node), (job.id, node.id)


def _now(job: Job, node: Node) -> int:
    return job.alloc.get(node.id, 0) + job.until_joined.get(node.id, 0)


def _then(decided: Plan, job: Job, node: Node) -> int:
    return decided.alloc[job.id].get(node.id, 0) + decided.until_joined.get(job.id, {}).get(node.id, 0)


def limits_hold(state: State) -> None:
    """No queue gets more than its limit beside what its jobs have already."""
    decided = plan(state)
    for queue in state.queues:
        below = [job for job in state.jobs if job.queue == queue.id or job.queue.startswith(f"{queue.id}/")]
        then = sum(sum(decided.alloc[job.id].values()) for job in below)
        grows = any(sum(decided.alloc[job.id].values()) > job.held for job in below)
        assert queue.limit is None or then <= queue.limit or not grows, queue


class TestOnePlan:
    def test_small_states(self) -> None:
        for seed in range(150):
            check(rich(seed, 4, 10))

    def test_dozens_of_nodes_and_hundreds_of_jobs(self) -> None:
        for seed in range(4):
            check(rich(seed, 30, 200))

    def test_limits_hold_at_every_depth_where_slots_are_of_one_kind(self) -> None:
        for seed in range(100):
            limits_hold(rich(seed, 4, 10, Kinds(gpus=False)))

    @pytest.mark.extended
    def test_many_states(self) -> None:
        for seed in range(150, 1500):
            check(rich(seed, 5, 12))
        for seed in range(4, 40):
            check(rich(seed, 30, 200))


class TestWhatFollows:
    def test_a_plan_that_was_applied_is_followed_by_nothing_and_all_come_to_rest(self) -> None:
        for seed in range(40):
            state = rich(seed, 4, 10, PLAIN)
            assert plan(applied(state, plan(state))).actions == (), seed
            at_rest(state, 6)


class TestFairness:
    def test_a_hundred_jobs_of_one_user_leave_another_its_half(self) -> None:
        many = tuple(Job(f"edt-{n}", n, 8, Phase.WAITING, 8, user="many") for n in range(1, 101))
        one = Job("edt-101", 101, 8, Phase.WAITING, 8, user="one")
        decided = plan(State(0.0, (Node("n1", 8, 8, Health.UP), Node("n2", 8, 8, Health.UP)), (*many, one)))
        assert sum(decided.alloc["edt-101"].values()) == 8

    def test_who_splits_its_work_gets_no_more(self) -> None:
        for slots in range(3, 17):
            node = Node("n1", slots, slots, Health.UP)
            jobs = [Job(f"edt-{n}", n, 16, Phase.WAITING, 10**6, user=f"u{n}") for n in (1, 2, 3)]
            more = [replace(jobs[0], id=f"edt-{n}", submit=n) for n in range(4, 20)]
            whole, split = (State(0.0, (node,), tuple(each)) for each in (jobs, [*jobs, *more]))
            assert _of_user(split, "u1") <= max(_of_user(whole, "u1"), -(-slots // 3)), slots

    def test_a_job_of_a_higher_priority_gets_no_less_than_an_equal_one(self) -> None:
        for slots in range(1, 12):
            low, high = Job("edt-1", 1, 8, Phase.WAITING, 8), Job("edt-2", 2, 8, Phase.WAITING, 8, priority=2)
            decided = plan(State(0.0, (Node("n1", slots, slots, Health.UP),), (low, high)))
            assert sum(decided.alloc["edt-2"].values()) >= sum(decided.alloc["edt-1"].values())


def _of_user(state: State, user: str) -> int:
    found = Counter[str]()
    decided = plan(state)
    for job in state.jobs:
        found[job.user] += sum(decided.alloc[job.id].values())
    return found[user]
