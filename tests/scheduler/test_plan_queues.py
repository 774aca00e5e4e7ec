"""Queues, classes, relocations and reasons in the decision: small clusters whose numbers a person can check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scheduler.test_gang_plans import gang
from tests.scheduler.test_plan import decide, node, running, waiting
from tests.support.plan_states import at_rest

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health, ResizeCause
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.queues import Queue, Sharing
from edt_scheduler.plan.state import Blocking, Job, Node, Plan, State, Verb

IN_TURN = {Sharing.PRIORITY, Sharing.FIFO}


def gpus(there: Node, model: str = "") -> Node:
    return replace(there, device=Device.GPU, model=model)


class TestKinds:
    def test_a_job_on_a_gpu_that_drains_keeps_it_until_one_elsewhere_has_joined_beside_cpus_too(self) -> None:
        nodes = [gpus(node("g1", 2, 0, Health.DRAINING)), gpus(node("g2", 4)), node("c1", 4)]
        decided = decide(nodes, running(1, {"g1": 2}, head_node="g1"))
        assert (decided.alloc["edt-1"], decided.until_joined) == ({"g2": 2}, {"edt-1": {"g1": 2}})
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


class TestMoving:
    def test_a_job_that_moves_does_not_grow_where_it_is_to_leave(self) -> None:
        nodes = [node("n1", 4, 2), node("n2", 1, 0)]
        moving = replace(running(1, {"n2": 1}, engines=8), until_joined={"n1": 2}, joined={"n1": 2})
        decided = decide(nodes, moving)
        assert (decided.alloc, decided.until_joined) == ({"edt-1": {"n2": 1}}, {"edt-1": {"n1": 2}})

    def test_a_job_that_grows_beyond_its_node_leaves_it_in_one_step(self) -> None:
        nodes = [node("n1", 1, 0), node("n2", 6)]
        decided = decide(nodes, running(1, {"n1": 1}, most=6, engines=6))
        assert (decided.alloc, decided.until_joined) == ({"edt-1": {"n2": 5}}, {"edt-1": {"n1": 1}})


class TestLimits:
    def test_slots_that_nobody_else_can_use_do_not_lift_a_queue_above_its_limit(self) -> None:
        job = in_queue("/b", waiting(1, most=6, engines=6))
        decided = decided_in([Queue("/b", limit=4)], [node("n1", 6)], job)
        assert decided.alloc == {"edt-1": {"n1": 3}}, "4 are no size of it"

    def test_a_limit_counts_what_is_below_at_any_depth(self) -> None:
        jobs = in_queue("/a/x", waiting(1, engines=4)), in_queue("/a/x/1", waiting(2, engines=4))
        decided = decided_in([Queue("/a", limit=5), Queue("/a/x", limit=3)], [node("n1", 8)], *jobs)
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {"n1": 1}}

    def test_who_has_more_than_its_share_gives_back_before_others_lift_the_queue_above_its_limit(self) -> None:
        jobs = in_queue("/a", running(1, {"n1": 3}, most=3)), in_queue("/a", waiting(2, engines=4))
        decided = decided_in([Queue("/a", limit=4)], [node("n1", 8, 5)], *jobs)
        assert decided.alloc == {"edt-1": {"n1": 2}, "edt-2": {"n1": 2}}

    def test_slots_on_a_cordoned_node_count_too(self) -> None:
        nodes = [node("n1", 2, 0, Health.CORDONED), node("n2", 4)]
        jobs = in_queue("/a", running(1, {"n1": 2}, most=2)), in_queue("/a", waiting(2, engines=4))
        assert decided_in([Queue("/a", limit=3)], nodes, *jobs).alloc["edt-2"] == {"n2": 1}


class TestGangsOfOthers:
    def test_many_waiting_jobs_of_one_user_keep_no_gang_of_another_from_its_half(self) -> None:
        jobs = [of_user("a", waiting(number, engines=1)) for number in range(1, 11)]
        decided = decide([node("n1", 4)], *jobs, of_user("b", gang(11, 2)))
        assert {name for name, held in decided.alloc.items() if held} == {"edt-1", "edt-2", "edt-11"}

    def test_running_jobs_above_what_their_user_is_entitled_to_end_for_a_gang_of_another(self) -> None:
        jobs = [of_user("a", running(number, {"n1": 1}, engines=1)) for number in range(1, 5)]
        decided = decide([node("n1", 4, 0)], *jobs, of_user("b", gang(11, 2)))
        assert [(action.job, action.verb, action.cause) for action in decided.actions] == [
            ("edt-3", Verb.PREEMPT, ResizeCause.RECLAIM),
            ("edt-4", Verb.PREEMPT, ResizeCause.RECLAIM),
        ]

    def test_a_job_whose_queue_has_its_limit_keeps_no_gang_of_another_queue_waiting(self) -> None:
        jobs = in_queue("/a", running(1, {"n1": 1}, most=1)), in_queue("/a", waiting(2)), in_queue("/b", gang(3, 3))
        decided = decided_in([Queue("/a", limit=1), Queue("/b")], [node("n1", 4, 3)], *jobs)
        assert decided.alloc == {"edt-1": {"n1": 1}, "edt-2": {}, "edt-3": {"n1": 3}}

    def test_jobs_of_a_lower_priority_end_for_a_gang(self) -> None:
        jobs = [running(number, {"n1": 1}, engines=1) for number in range(1, 5)]
        decided = decide([node("n1", 4, 0)], *jobs, replace(gang(11, 2), priority=5))
        assert [(action.job, action.cause) for action in decided.actions] == [
            ("edt-3", ResizeCause.PRIORITY),
            ("edt-4", ResizeCause.PRIORITY),
        ]


class TestQueues:
    def test_an_owner_gets_its_quota_back_and_no_more(self) -> None:
        borrower = in_queue("/b", running(1, {"n1": 8}, most=8, engines=8))
        owner = in_queue("/a", waiting(2, most=8, engines=8))
        queues = [Queue("/a", quota=4), Queue("/b", quota=4)]
        (action,) = decided_in(queues, [node("n1", 8, 0)], borrower, owner).actions
        assert (action.job, action.before, action.after, action.cause) == ("edt-1", 8, 4, ResizeCause.RECLAIM)

    def test_a_quota_that_nobody_wants_is_lent(self) -> None:
        queues = [Queue("/a", quota=4), Queue("/b", quota=4)]
        job = in_queue("/b", waiting(1, most=8, engines=8))
        assert decided_in(queues, [node("n1", 8)], job).alloc == {"edt-1": {"n1": 8}}

    @pytest.mark.parametrize(
        ("policy", "held"),
        [(Sharing.EFFICIENT, [2, 2]), (Sharing.FAIRSHARE, [2, 2]), (Sharing.PRIORITY, [0, 4]), (Sharing.FIFO, [4, 0])],
    )
    def test_each_policy_shares_four_slots_among_an_early_job_and_a_later_one(
        self, policy: Sharing, held: list[int]
    ) -> None:
        later = in_queue("/q", replace(waiting(2, engines=4), priority=2 if policy in IN_TURN else 1))
        first = in_queue("/q", waiting(1, engines=4))
        decided = decided_in([Queue("/q", policy=policy)], [node("n1", 4)], first, later)
        assert [sum(decided.alloc[name].values()) for name in ("edt-1", "edt-2")] == held

    def test_a_lower_class_shrinks_before_anything_of_it_ends(self) -> None:
        low = [running(number, {"n1": 2}, engines=4) for number in (1, 2)]
        decided = decide([node("n1", 4, 0)], *low, replace(waiting(3, most=2), priority=5, min=2))
        assert [(a.job, a.verb, a.after, a.cause) for a in decided.actions] == [
            ("edt-1", Verb.SHRINK, 1, ResizeCause.PRIORITY),
            ("edt-2", Verb.SHRINK, 1, ResizeCause.PRIORITY),
        ]


class TestReasons:
    def test_what_keeps_a_job_has_a_code_and_words(self) -> None:
        held = running(1, {"n1": 1}, most=1, engines=1)
        for job, code, words in [
            (replace(waiting(2), after=("edt-1",)), Blocking.DEPENDENCY, "edt-1 must be over before it starts"),
            (replace(waiting(2), paused="paused by ada"), Blocking.PAUSED, "paused by ada; `edt resume` lets it go on"),
            (
                replace(waiting(2), locked="its key is missing"),
                Blocking.KEY,
                "its environment cannot be opened: its key is missing",
            ),
            (
                replace(waiting(2), models=("a100",)),
                Blocking.NODES,
                "no node with a GPU a100 takes work, and it asks for one (--gpu-model)",
            ),
            (replace(waiting(2), min=3), Blocking.CAPACITY, "needs 3 slots at once, the cluster has 1"),
        ]:
            told = decide([node("n1", 1, 0)], held, job).explain["edt-2"]
            assert (told.blocking, told.reason) == (code, words)

    def test_a_job_of_a_lower_priority_is_told_who_comes_first(self) -> None:
        first = replace(running(1, {"n1": 1}, most=1, engines=1), priority=5)
        told = decide([node("n1", 1, 0)], first, waiting(2)).explain["edt-2"]
        assert (told.blocking, told.by) == (Blocking.PRIORITY, ("edt-1",))

    def test_a_full_queue_is_named_with_its_limit(self) -> None:
        jobs = in_queue("/a", running(1, {"n1": 1}, most=1)), in_queue("/a", waiting(2))
        told = decided_in([Queue("/a", limit=1)], [node("n1", 4, 3)], *jobs).explain["edt-2"]
        assert (told.blocking, told.reason) == (Blocking.QUOTA, "queue /a has its limit of 1 slot")

    def test_the_limit_of_the_root_holds_for_all_jobs_together(self) -> None:
        jobs = waiting(1, 4, engines=4), in_queue("/a", waiting(2, 4, engines=4)), in_queue("/b", waiting(3))
        decided = decided_in([Queue("", limit=2), Queue("/a")], [node("n1", 8)], *jobs)
        assert sum(sum(slots.values()) for slots in decided.alloc.values()) == 2
        told = decided.explain["edt-3"]
        assert (told.blocking, told.reason) == (Blocking.QUOTA, "the root queue has its limit of 2 slots")


class TestLostWhileMoving:
    def test_a_job_whose_new_engines_are_lost_stays_where_it_was(self) -> None:
        nodes = [node("n1", 2, 0), node("n2", 2, 1, Health.LOST)]
        moving = replace(running(1, {"n2": 1}, most=2), until_joined={"n1": 2}, joined={"n1": 2})
        decided = decide(nodes, moving)
        assert (decided.alloc, decided.until_joined, decided.head_nodes) == ({"edt-1": {"n1": 2}}, {}, {"edt-1": "n1"})

    def test_a_job_gives_up_no_engine_while_there_is_no_place_to_go(self) -> None:
        nodes = [node("n1", 2, 0, Health.DRAINING), node("n2", 4, 0)]
        first, second = running(1, {"n2": 4}, head_node="n2"), running(2, {"n1": 2}, most=2, engines=2)
        assert decide(nodes, first, second).alloc == {"edt-1": {"n2": 2}, "edt-2": {"n1": 2}}

    def test_a_job_that_loses_a_node_and_its_share_is_preempted_and_told_for_whom(self) -> None:
        nodes = [node("n1", 2, 1), node("n2", 1, 0, Health.LOST)]
        jobs = in_queue("/b", running(1, {"n1": 1, "n2": 1})), in_queue("/a", replace(waiting(2, most=2), min=2))
        (action,) = decided_in([Queue("/a", quota=2)], nodes, *jobs).actions
        assert (action.verb, action.cause) == (Verb.PREEMPT, ResizeCause.RECLAIM)


class TestDeadlines:
    def test_a_job_with_a_deadline_on_a_cordoned_node_keeps_what_it_has(self) -> None:
        nodes = [node("n1", 3, 0, Health.CORDONED), node("n2", 1)]
        points = (Point(2, 1, 0.8), Point(8, 1, 0.6))
        job = replace(running(1, {"n1": 3}, most=3, engines=None), points=points, steps_left=1e3, deadline=11e3)
        assert decide(nodes, job).alloc == {"edt-1": {"n1": 3}}


def of_user(user: str, job: Job) -> Job:
    return replace(job, user=user)


def in_queue(path: str, job: Job) -> Job:
    return replace(job, queue=path)


def decided_in(queues: list[Queue], nodes: list[Node], *jobs: Job) -> Plan:
    return plan(State(0.0, tuple(nodes), jobs, tuple(queues)))


def on(device: Device, number: int) -> Job:
    return replace(waiting(number), device=device)
