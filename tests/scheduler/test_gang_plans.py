"""Gangs in the decision: they start whole or wait, elastic jobs make room for them, and nothing resizes them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.scheduler.test_plan import apply, decide, in_containers, node, running, settled, states, waiting, with_image

from edt_scheduler.model.states import Health
from edt_scheduler.plan.gangs import whole_cluster
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Blocking, Job, Node, Phase, State, Verb


def gang(number: int, slots: int, unit: int = 1) -> Job:
    return Job(f"edt-{number}", number, slots, Phase.WAITING, gang=True, unit=unit)


def running_gang(number: int, alloc: Mapping[str, int], unit: int = 1, head_node: str = "n1") -> Job:
    held = sum(alloc.values())
    return replace(gang(number, held, unit), phase=Phase.RUNNING, alloc=alloc, head_node=head_node)


def alone(there: Node) -> Node:
    return replace(there, alone=True)


class TestStart:
    def test_a_gang_starts_on_all_its_slots_at_once(self) -> None:
        decided = decide([node()], gang(1, 3))
        assert decided.alloc == {"edt-1": {"n1": 3}}
        assert decided.actions[0].verb is Verb.START

    def test_it_waits_rather_than_start_on_fewer_and_says_what_is_missing(self) -> None:
        decided = decide([node(free=1)], replace(running(1, {"n1": 1}), leaving={"n1": 2}, engines=1), gang(2, 3))
        assert decided.alloc["edt-2"] == {}
        explained = decided.explain["edt-2"]
        assert (explained.need, explained.free, explained.target, explained.rank) == (3, 1, 3, 1)
        assert explained.blocking is Blocking.VACATING
        assert explained.reason == "needs 3 slots at once, 1 is free and 2 are being vacated"

    def test_the_slots_of_a_worker_are_on_one_node(self) -> None:
        assert decide([node("n1", 3), node("n2", 3)], gang(1, 4, unit=2)).alloc == {"edt-1": {"n1": 2, "n2": 2}}
        assert decide([node("n1", 3), node("n2", 3)], gang(1, 4)).alloc == {"edt-1": {"n1": 3, "n2": 1}}
        assert decide([node("n1", 3), node("n2", 1)], gang(1, 4, unit=2)).alloc == {"edt-1": {}}

    def test_it_takes_as_few_nodes_as_possible_and_the_fullest_that_has_room(self) -> None:
        nodes = [node("n1", 2), node("n2", 8), node("n3", 4)]
        assert decide(nodes, gang(1, 4)).alloc == {"edt-1": {"n3": 4}}
        assert decide(nodes, gang(1, 10)).alloc == {"edt-1": {"n2": 8, "n3": 2}}

    def test_it_never_spans_nodes_that_do_not_reach_each_other(self) -> None:
        assert decide([alone(node("n1", 2)), node("n2", 2), node("n3", 1)], gang(1, 3)).alloc == {
            "edt-1": {"n2": 2, "n3": 1}
        }
        decided = decide([alone(node("n1", 2)), alone(node("n2", 2))], gang(1, 3))
        assert decided.alloc == {"edt-1": {}}
        assert decided.explain["edt-1"].reason == (
            "needs 3 slots at once, the nodes have room for 2 of them even when nothing else runs"
        )

    def test_with_an_image_all_its_nodes_start_containers(self) -> None:
        nodes = [node("n1", 8), in_containers("n2", 2), in_containers("n3", 2)]
        assert decide(nodes, with_image(gang(1, 4))).alloc == {"edt-1": {"n2": 2, "n3": 2}}
        decided = decide(nodes, with_image(gang(1, 5)))
        assert decided.explain["edt-1"].reason == "needs 5 slots at once, the nodes that start containers have 4"

    def test_during_its_back_off_nothing_is_kept_for_it(self) -> None:
        lost = replace(gang(1, 3), not_before=5.0)
        decided = decide([node()], lost, waiting(2, engines=4), now=4.0)
        assert decided.alloc == {"edt-1": {}, "edt-2": {"n1": 4}}
        assert decided.explain["edt-1"].blocking is Blocking.COOLDOWN


class TestRoom:
    def test_a_gang_of_3_starts_whole_when_elastic_jobs_have_shrunk(self) -> None:
        state = State(0.0, (node(free=0),), (running(1, {"n1": 4}), gang(2, 3)))
        decided = plan(state)
        assert decided.alloc == {"edt-1": {"n1": 1}, "edt-2": {}}
        assert decided.actions[0].reason == "makes room for edt-2"
        assert decided.explain["edt-2"].reason == "needs 3 slots at once, 3 are being vacated"
        assert {job.id: dict(job.alloc) for job in settled(state).jobs} == {"edt-1": {"n1": 1}, "edt-2": {"n1": 3}}

    def test_elastic_jobs_shrink_only_by_what_it_needs(self) -> None:
        jobs = (running(1, {"n1": 4}), running(2, {"n1": 4}), gang(3, 3))
        state = settled(State(0.0, (node(slots=9, free=1),), jobs))
        assert {job.id: job.held for job in state.jobs} == {"edt-1": 4, "edt-2": 2, "edt-3": 3}

    def test_while_a_gang_waits_for_vacated_slots_nobody_else_takes_them(self) -> None:
        vacating = replace(running(1, {"n1": 1}, engines=4), leaving={"n1": 1})
        later = [waiting(number, engines=4) for number in (3, 4)]
        for free in range(3):
            state = [node(free=free)]
            decided = decide(state, replace(vacating, leaving={"n1": 3 - free}), gang(2, 3), *later)
            assert (decided.actions, decided.alloc["edt-2"]) == ((), {})
        decided = decide([node(free=3)], replace(vacating, leaving={}), gang(2, 3), *later)
        assert decided.alloc == {"edt-1": {"n1": 1}, "edt-2": {"n1": 3}, "edt-3": {}, "edt-4": {}}

    def test_two_gangs_wait_in_submit_order_and_both_start(self) -> None:
        jobs = (running(1, {"n1": 8}, most=8, engines=8), gang(2, 4), gang(3, 2), waiting(4))
        state = State(0.0, (node(slots=8, free=0),), jobs)
        assert {job.id: job.held for job in settled(state).jobs} == {"edt-1": 1, "edt-2": 4, "edt-3": 2, "edt-4": 1}

    def test_slots_are_kept_for_the_first_gang_that_waits_for_others_to_end(self) -> None:
        decided = decide([node(free=2)], running_gang(1, {"n1": 2}), gang(2, 4), gang(3, 2))
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {}, "edt-3": {}}
        told = decided.explain["edt-3"]
        assert (told.blocking, told.by) == (Blocking.RESERVED, ("edt-2",))
        assert told.reason == "needs 2 slots at once, slots are kept for edt-2, which waits for longer"

    def test_elastic_jobs_use_them_meanwhile_and_give_them_back(self) -> None:
        first = running_gang(1, {"n1": 2})
        elastic = running(3, {"n2": 1}, engines=4, head_node="n2")
        nodes = [node(free=2), node("n2", 1, 0)]
        assert decide(nodes, first, gang(2, 4), elastic).alloc["edt-3"] == {"n1": 1, "n2": 1}
        grown = replace(elastic, alloc={"n1": 1, "n2": 1})
        ended = decide([node(free=3), nodes[1]], gang(2, 4), grown)
        assert [(action.job, action.after) for action in ended.actions] == [("edt-3", 1)]

    def test_no_elastic_job_begins_on_them(self) -> None:
        first = running_gang(1, {"n1": 2})
        decided = decide([node(free=2)], first, gang(2, 4), waiting(3, engines=4))
        assert decided.alloc["edt-3"] == {}
        assert decided.explain["edt-3"].blocking is Blocking.RESERVED
        assert decide([node(free=2), node("n2", 1)], first, gang(2, 4), waiting(3)).alloc["edt-3"] == {"n2": 1}

    def test_a_gang_whose_time_limit_ends_it_before_goes_ahead(self) -> None:
        first = replace(running_gang(1, {"n1": 2}), ends_by=600.0)
        for limit, starts in ((500.0, True), (700.0, False), (None, False)):
            decided = decide([node(free=2)], first, gang(2, 4), replace(gang(3, 2), time_limit=limit))
            assert bool(decided.alloc["edt-3"]) is starts

    def test_nothing_is_kept_for_a_gang_that_has_no_place_either_when_others_have_ended(self) -> None:
        decided = decide([node(free=2)], running_gang(1, {"n1": 2}), gang(2, 5), gang(3, 2))
        assert decided.alloc["edt-3"] == {"n1": 2}

    def test_an_elastic_job_submitted_before_it_gets_its_first_slot_before_it(self) -> None:
        decided = decide([node(free=3)], running_gang(1, {"n1": 1}), waiting(2, engines=4), gang(3, 3))
        assert decided.alloc == {"edt-1": {"n1": 1}, "edt-2": {"n1": 2}, "edt-3": {}}
        decided = decide([node()], waiting(2, engines=4), gang(3, 3))
        assert decided.alloc == {"edt-2": {"n1": 1}, "edt-3": {"n1": 3}}

    def test_a_gang_that_no_group_of_nodes_can_hold_makes_nobody_shrink(self) -> None:
        nodes = [node("n1", 4, 0), node("n2", 4, 0)]
        jobs = running(1, {"n1": 4}), running(2, {"n2": 4}, head_node="n2")
        decided = decide(nodes, *jobs, gang(3, 8, unit=4))
        assert decided.actions == ()
        explained = decided.explain["edt-3"]
        assert (explained.blocking, explained.target, explained.need) == (Blocking.CAPACITY, 0, 8)
        assert explained.reason == (
            "needs 8 slots at once (2 workers of 4 slots, each on one node), jobs that run or came before it leave 6"
        )
        decided = decide(nodes, *jobs, gang(3, 4, unit=4))
        assert decided.actions == ()
        assert decided.explain["edt-3"].reason == (
            "needs 4 slots at once on one node, jobs that run or came before it leave 0"
        )

    def test_a_gang_larger_than_the_cluster_is_told_so(self) -> None:
        explained = decide([node(free=0)], running(1, {"n1": 4}), gang(2, 8)).explain["edt-2"]
        assert explained.reason == "needs 8 slots at once, the cluster has 4"
        explained = decide([node("n1", 3), node("n2", 3)], gang(2, 6, unit=3)).explain["edt-2"]
        assert explained.blocking is None
        explained = decide([node("n1", 3), node("n2", 3)], gang(2, 6, unit=2)).explain["edt-2"]
        assert explained.reason == (
            "needs 6 slots at once (3 workers of 2 slots, each on one node), the nodes have room for 4 of them even "
            "when nothing else runs"
        )

    def test_elastic_jobs_within_their_share_leave_the_node_that_a_worker_needs_and_grow_elsewhere(self) -> None:
        nodes = [node("n1", 4, 0), node("n2", 2, 0), node("n3", 2, 2)]
        job = running(1, {"n1": 2, "n2": 2}, head_node="n2")
        state = settled(State(0.0, tuple(nodes), (job, replace(gang(2, 4, unit=4)), running_gang(3, {"n1": 2}))))
        assert {job.id: dict(job.alloc) for job in state.jobs}["edt-2"] == {}, "a running gang does not leave n1"
        nodes[0] = node("n1", 4, 2)
        state = settled(State(0.0, tuple(nodes), (job, replace(gang(2, 4, unit=4)))))
        assert {job.id: dict(job.alloc) for job in state.jobs} == {"edt-1": {"n2": 2, "n3": 2}, "edt-2": {"n1": 4}}

    def test_a_gang_without_an_image_leaves_room_for_earlier_jobs_that_need_containers(self) -> None:
        nodes = [in_containers("n1", 2, 0), node("n2", 2, 2)]
        holder = running(1, {"n1": 2}, engines=2)
        state = settled(State(0.0, tuple(nodes), (holder, with_image(waiting(2)), gang(3, 2))))
        assert {job.id: dict(job.alloc) for job in state.jobs} == {
            "edt-1": {"n1": 1},
            "edt-2": {"n1": 1},
            "edt-3": {"n2": 2},
        }


class TestRunning:
    def test_a_running_gang_is_never_shrunk_for_a_job_submitted_before_it(self) -> None:
        decided = decide([node(free=0)], waiting(1, engines=4), running_gang(2, {"n1": 4}))
        assert decided.actions == ()
        assert decided.explain["edt-2"].reason == "holds its 4 slots"
        assert decided.explain["edt-1"].blocking is Blocking.CAPACITY

    def test_it_never_grows_and_gets_nothing_new_when_a_rank_has_finished(self) -> None:
        half = replace(running_gang(1, {"n2": 1}), max=3)
        decided = decide([node("n1", 4), node("n2", 4, 3)], half)
        assert (decided.actions, decided.alloc, decided.head_nodes) == ((), {"edt-1": {"n2": 1}}, {"edt-1": "n1"})
        assert decided.explain["edt-1"].reason == "holds 1 of its 3 slots, the others have finished"

    def test_nothing_of_it_moves_for_a_job_that_needs_containers(self) -> None:
        nodes = [in_containers("n1", 2, 0), node("n2", 4)]
        decided = decide(nodes, running_gang(1, {"n1": 2}), with_image(waiting(2)))
        assert decided.actions == ()

    @pytest.mark.parametrize("health", [Health.DRAINING, Health.LOST])
    def test_when_one_of_its_nodes_is_emptied_the_whole_attempt_leaves(self, health: Health) -> None:
        nodes = [node("n1", 2, 0), node("n2", 2, 0, health), node("n3", 4)]
        decided = decide(nodes, running_gang(1, {"n1": 2, "n2": 2}, unit=2))
        assert decided.alloc == {"edt-1": {}}
        (move,) = decided.actions
        assert (move.verb, move.before, move.after, move.reason) == (Verb.MOVE, 4, 0, f"node n2 is {health}")

    def test_a_cordoned_node_keeps_it(self) -> None:
        nodes = [node("n1", 2, 0, Health.CORDONED), node("n2", 2, 0)]
        assert decide(nodes, running_gang(1, {"n1": 2, "n2": 2})).actions == ()


class TestEveryState:
    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_a_gang_that_starts_has_whole_workers_on_nodes_that_it_can_use(self, state: State) -> None:
        decided = plan(state)
        nodes = {there.id: there for there in state.nodes}
        for job in state.jobs:
            alloc = decided.alloc[job.id]
            if job.gang and job.phase is Phase.WAITING and alloc:
                assert sum(alloc.values()) == job.max
                assert all(number % job.unit == 0 for number in alloc.values())
                assert len(alloc) == 1 or not any(nodes[name].alone for name in alloc)
                assert job.image is None or all(nodes[name].containers for name in alloc)

    @given(states())
    @settings(max_examples=100, deadline=None)
    def test_gangs_that_never_have_a_place_change_nothing_for_others(self, state: State) -> None:
        state = replace(state, jobs=tuple(job for job in state.jobs if job.gang or job.phase is not Phase.WAITING))
        decided = plan(state)
        nodes = {there.id: there for there in state.nodes}
        never = {
            job.id
            for job in state.jobs
            if job.gang
            and job.phase is Phase.WAITING
            and whole_cluster(nodes, job.unit, in_containers=job.image is not None)[1] < job.max
        }
        without = tuple(job for job in state.jobs if job.id not in never)
        changed = plan(replace(state, jobs=without))
        assert [(each.job, each.verb, each.cause, changed.alloc[each.job]) for each in changed.actions] == [
            (each.job, each.verb, each.cause, decided.alloc[each.job]) for each in decided.actions
        ]


class Cluster:
    """A cluster of nodes on which jobs come, train and end, one plan a tick."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0.0
        self.nodes = tuple(self._node(f"n{number}") for number in range(chance.randint(1, 5)))
        self.jobs: list[Job] = []
        self.left: dict[str, int] = {}
        """Job to the ticks for which it still trains."""
        self.submitted = 0

    def _node(self, name: str) -> Node:
        slots = self.chance.randint(1, 6)
        containers = self.chance.random() < 0.5
        return Node(name, slots, slots, Health.UP, containers=containers, alone=self.chance.random() < 0.2)

    def submit(self) -> None:
        """One more job, of any kind that fits on the empty cluster."""
        self.submitted += 1
        unit = self.chance.choice([1, 1, 2, 3])
        job = Job(f"edt-{self.submitted}", self.submitted, unit * self.chance.randint(1, 4), Phase.WAITING)
        if self.chance.random() < 0.5:
            job = replace(job, gang=True, unit=unit)
        if self.chance.random() < 0.3:
            job = replace(job, image="an/image")
        nodes = {there.id: there for there in self.nodes}
        if whole_cluster(nodes, job.unit, in_containers=job.image is not None)[1] >= (job.max if job.gang else 1):
            self.jobs.append(job)
            self.left[job.id] = self.chance.randint(1, 12)

    def tick(self) -> bool:
        """Plan and apply, check that the next plan leaves gangs as they are, and let processes leave and jobs end.

        Returns whether a job trains or leaves, or the plan does something.
        """
        self.now += 1
        state = State(self.now, self.nodes, tuple(self.jobs))
        decided = plan(state)
        state = apply(state, decided)
        gangs = {job.id for job in self.jobs if job.gang}
        assert not [action for action in plan(state).actions if action.job in gangs], "the next plan changes nothing"
        free = {there.id: there.free for there in state.nodes}
        assert all(number >= 0 for number in free.values())
        jobs, moved = [], bool(decided.actions)
        for before in state.jobs:
            leaving = Counter(before.leaving)
            moved |= bool(before.leaving or before.alloc)
            for name in sorted(leaving):
                if self.chance.random() < 0.6:
                    free[name] += leaving.pop(name)
            job = replace(before, leaving=leaving, avoid=before.avoid & leaving.keys())
            moved |= bool(job.until_joined)
            if job.until_joined and self.chance.random() < 0.6:
                job = replace(job, joined=job.alloc)
            if job.phase is Phase.RUNNING:
                job = self._train(job)
            if job.phase is not Phase.ENDING or job.leaving:
                jobs.append(job)
        self.jobs = jobs
        self.nodes = tuple(replace(there, free=free[there.id]) for there in state.nodes)
        return moved

    def _train(self, job: Job) -> Job:
        self.left[job.id] -= 1
        if self.left[job.id] <= 0:
            leaving = Counter(job.leaving) + Counter(job.alloc) + Counter(job.until_joined)
            return replace(job, phase=Phase.ENDING, leaving=leaving, alloc={}, until_joined={})
        if not job.gang and job.engines is None:
            return replace(job, engines=self.chance.randint(1, 8))
        return job


def live(seed: int) -> None:
    """Jobs arrive, and all of them come to their end."""
    chance = random.Random(seed)
    cluster = Cluster(chance)
    for _ in range(40):
        for _ in range(chance.choice([0, 0, 1, 2])):
            cluster.submit()
        cluster.tick()
    for _ in range(1500):
        if not cluster.jobs:
            return
        moved = cluster.tick()
        assert moved, f"seed {seed}: nothing moves, {[job.id for job in cluster.jobs]} wait for ever"
    raise AssertionError(f"seed {seed}: {[job.id for job in cluster.jobs]} have not ended")


def test_no_job_waits_for_ever() -> None:
    for seed in range(15):
        live(seed)


@pytest.mark.extended
def test_no_job_waits_for_ever_in_many_clusters() -> None:
    for seed in range(15, 200):
        live(seed)
