"""GPUs and CPU stand-ins in the decision: who asks for a kind gets no other, and nobody gets both at once."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.scheduler.test_gang_plans import gang
from tests.scheduler.test_plan import apply, decide, node, running, settled, states, waiting

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan import devices
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Blocking, Job, Node, Phase, State, Verb

CPU, GPU = Device.CPU, Device.GPU


def on(device: Device, job: Job) -> Job:
    return replace(job, device=device)


def gpus(name: str = "g1", slots: int = 4, free: int | None = None, health: Health = Health.UP) -> Node:
    return replace(node(name, slots, free, health), device=GPU)


class TestWhoAsksForAKind:
    def test_a_job_that_asks_for_gpus_grows_on_gpus_alone(self) -> None:
        assert decide([node("c1", 8), gpus("g1", 2)], on(GPU, waiting(1, 8, engines=8))).alloc == {"edt-1": {"g1": 2}}

    def test_a_job_that_asks_for_cpus_leaves_every_gpu_free(self) -> None:
        assert decide([node("c1", 2), gpus("g1", 8)], on(CPU, waiting(1, 8, engines=8))).alloc == {"edt-1": {"c1": 2}}

    def test_on_a_cluster_without_gpus_a_job_that_asks_for_some_waits_and_says_why(self) -> None:
        decided = decide([node("c1", 8)], on(GPU, waiting(1)), waiting(2))
        assert decided.alloc == {"edt-1": {}, "edt-2": {"c1": 1}}
        told = decided.explain["edt-1"]
        assert (told.blocking, told.free, told.rank) == (Blocking.NODES, 0, 1)
        assert told.reason == "no node with a GPU takes work, and it asks for GPUs (--workerDeviceType gpu)"

    def test_on_a_cluster_of_gpus_a_job_that_asks_for_cpus_waits_and_says_why(self) -> None:
        told = decide([gpus()], on(CPU, waiting(1))).explain["edt-1"]
        assert told.reason == "no node with CPU slots takes work, and it asks for CPUs (--workerDeviceType cpu)"

    def test_on_an_empty_cluster_it_says_the_same(self) -> None:
        assert "asks for GPUs" in decide([], on(GPU, waiting(1)), on(CPU, waiting(2))).explain["edt-1"].reason

    def test_a_node_with_gpus_that_is_drained_is_none_that_takes_work(self) -> None:
        told = decide([node("c1"), gpus(health=Health.DRAINING)], on(GPU, waiting(1))).explain["edt-1"]
        assert (told.blocking, "no node with a GPU takes work" in told.reason) == (Blocking.NODES, True)

    def test_where_others_share_all_gpus_that_is_the_reason(self) -> None:
        holder = running(1, {"g1": 1}, most=1, engines=1, head_node="g1")
        told = decide([node("c1", 8), gpus("g1", 1, 0)], holder, on(GPU, waiting(2))).explain["edt-2"]
        assert told.reason == "all 1 GPU slot are shared by jobs that run or came before it"

    def test_jobs_on_gpus_make_room_for_it_and_jobs_on_cpus_do_not(self) -> None:
        there = running(1, {"g1": 4}, head_node="g1"), running(2, {"c1": 4}, head_node="c1")
        decided = decide([node("c1", 4, 0), gpus("g1", 4, 0)], *there, on(GPU, waiting(3)))
        assert decided.alloc == {"edt-1": {"g1": 2}, "edt-2": {"c1": 4}, "edt-3": {}}
        assert decided.explain["edt-3"].blocking is Blocking.VACATING

    def test_a_gang_that_asks_for_gpus_says_how_many_there_are(self) -> None:
        told = decide([node("c1", 8), gpus("g1", 2)], on(GPU, gang(1, 4))).explain["edt-1"]
        assert told.reason == "needs 4 GPU slots at once, the cluster has 2"


class TestWhoAsksForNone:
    def test_it_gets_gpus_where_it_can_have_some_and_cpus_otherwise(self) -> None:
        decided = decide([node("c1", 8), gpus("g1", 1)], waiting(1), waiting(2))
        assert decided.alloc == {"edt-1": {"g1": 1}, "edt-2": {"c1": 1}}
        assert [action.job for action in decided.actions] == ["edt-1", "edt-2"]

    def test_what_it_has_begun_with_it_keeps(self) -> None:
        nodes = [node("c1", 8, 7), gpus("g1", 2, 1)]
        decided = decide(nodes, running(1, {"c1": 1}, 4, head_node="c1"), running(2, {"g1": 1}, 4, head_node="g1"))
        assert decided.alloc == {"edt-1": {"c1": 4}, "edt-2": {"g1": 2}}

    def test_a_gang_never_spans_both(self) -> None:
        assert decide([node("c1", 2), gpus("g1", 2)], gang(1, 4)).alloc == {"edt-1": {}}
        assert decide([node("c1", 4), gpus("g1", 2)], gang(1, 4)).alloc == {"edt-1": {"c1": 4}}

    def test_rather_than_wait_for_a_gpu_without_a_share_it_makes_a_job_on_cpus_shrink(self) -> None:
        there = running(1, {"g1": 1}, 1, 1, head_node="g1"), running(2, {"c1": 4}, head_node="c1")
        decided = decide([node("c1", 4, 0), gpus("g1", 1, 0)], *there, waiting(3))
        assert decided.alloc["edt-2"] == {"c1": 2}
        assert decided.explain["edt-3"].blocking is Blocking.VACATING

    def test_where_all_slots_of_both_kinds_are_shared_it_says_so(self) -> None:
        there = running(1, {"g1": 1}, 1, 1, head_node="g1"), running(2, {"c1": 1}, 1, 1, head_node="c1")
        told = decide([node("c1", 1, 0), gpus("g1", 1, 0)], *there, waiting(3)).explain["edt-3"]
        assert told.reason == "all 2 slots are shared by jobs that run or came before it"


def test_a_node_that_has_got_gpus_keeps_its_running_jobs_and_gives_them_no_more() -> None:
    """Its agent was started again with a driver, while a job for CPUs went on there."""
    there = on(CPU, running(1, {"g1": 2}, head_node="g1"))
    assert decide([node("c1", 2), gpus("g1", 4, 2)], there).alloc == {"edt-1": {"c1": 2, "g1": 2}}
    decided = decide([gpus("g1", 4, 2)], there, on(GPU, waiting(2, engines=4)))
    assert decided.alloc == {"edt-1": {"g1": 2}, "edt-2": {"g1": 2}}


@st.composite
def mixed(draw: st.DrawFn) -> State:
    """Any state of a cluster with nodes of both kinds, also one in which a job is where it would not get a slot now."""
    state = draw(states())
    kinds = st.sampled_from(Device)
    asked = st.sampled_from([None, None, *Device])
    nodes = tuple(replace(there, device=draw(kinds)) for there in state.nodes)
    return State(state.now, nodes, tuple(replace(job, device=draw(asked)) for job in state.jobs))


class TestEveryState:
    @given(mixed())
    @settings(max_examples=150, deadline=None)
    def test_every_new_slot_is_of_the_kind_that_the_job_asks_for_or_has_begun_with(self, state: State) -> None:
        decided = plan(state)
        nodes = {there.id: there for there in state.nodes}
        for job in state.jobs:
            new = {name for name, number in decided.alloc[job.id].items() if number > job.alloc.get(name, 0)}
            kinds = {nodes[name].device for name in new}
            assert len(kinds) <= 1
            begun = devices.of(job, nodes)
            assert kinds <= ({job.device} if job.device is not None else {begun[0]} if begun is not None else kinds)

    @given(mixed())
    @settings(max_examples=100, deadline=None)
    def test_never_more_than_is_free_and_nothing_new_where_no_work_is_taken(self, state: State) -> None:
        decided = plan(state)
        for there in state.nodes:
            new = sum(max(0, decided.alloc[job.id].get(there.id, 0) - job.alloc.get(there.id, 0)) for job in state.jobs)
            assert new <= (there.free if there.health is Health.UP else 0)

    @given(mixed())
    @settings(max_examples=150, deadline=None)
    def test_a_plan_that_was_applied_is_its_own_fix_point(self, state: State) -> None:
        """But not in the first look after an upgrade, if an attempt has slots of both kinds and ends."""
        nodes = {there.id: there for there in state.nodes}
        for job in state.jobs:
            assume(len({nodes[name].device for name in {job.head_node, *job.alloc, *job.leaving} - {None}}) <= 1)
        assert plan(apply(state, plan(state))).actions == ()

    @given(mixed())
    @settings(max_examples=60, deadline=None)
    def test_once_everybody_has_left_the_platform_comes_to_rest(self, state: State) -> None:
        settled(state)

    @given(mixed(), st.randoms(use_true_random=False))
    @settings(max_examples=60, deadline=None)
    def test_the_order_of_the_inputs_changes_nothing(self, state: State, order: random.Random) -> None:
        nodes, jobs = list(state.nodes), list(state.jobs)
        order.shuffle(nodes)
        order.shuffle(jobs)
        assert plan(State(state.now, tuple(nodes), tuple(jobs))) == plan(state)

    @given(mixed())
    @settings(max_examples=100, deadline=None)
    def test_every_waiting_job_has_a_reason_and_a_running_one_that_keeps_a_slot_goes_on(self, state: State) -> None:
        decided = plan(state)
        nodes = {there.id: there for there in state.nodes}
        for job in state.jobs:
            told = decided.explain[job.id]
            if job.phase is Phase.WAITING and not decided.alloc[job.id]:
                assert told.blocking is not None
                assert told.rank >= 1
            stays = {name for name in job.alloc if nodes[name].health in {Health.UP, Health.CORDONED}}
            if job.phase is Phase.RUNNING and not job.gang:
                assert bool(decided.alloc[job.id]) == bool(stays)

    @given(states())
    @settings(max_examples=60, deadline=None)
    def test_where_all_nodes_are_of_one_kind_the_kind_changes_nothing(self, state: State) -> None:
        decided = plan(state)
        on_gpus = tuple(replace(there, device=GPU) for there in state.nodes)
        assert plan(replace(state, nodes=on_gpus)) == decided
        asking = tuple(replace(job, device=GPU) for job in state.jobs)
        asked = plan(State(state.now, on_gpus, asking))
        assert (asked.alloc, asked.head_nodes) == (decided.alloc, decided.head_nodes)
        assert [action.verb for action in asked.actions] == [action.verb for action in decided.actions]
        assert Verb.START not in {action.verb for action in plan(State(state.now, state.nodes, asking)).actions}
