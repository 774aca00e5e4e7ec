"""What pools are asked for, given up and used by: small clusters whose numbers a person can check."""

from __future__ import annotations

from dataclasses import replace

from tests.scheduler.test_gang_plans import gang
from tests.scheduler.test_plan import node, running, waiting

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Ask, Blocking, GiveUp, Job, Node, Plan, Pool, Refusal, Requested, State

NOW = 1000.0
KUBERNETES = Pool("k8s", slots=1, most=4)
SLURM = Pool("slurm", slots=4, most=3, per_job=False)


def decided(pool: Pool, nodes: list[Node], *jobs: Job, now: float = NOW) -> Plan:
    return plan(State(now, tuple(nodes), jobs, pools=(pool,)))


def pending(name: str, job: int | None = 1, asked_at: float = NOW - 10, reason: str = "") -> Requested:
    return Requested(name, asked_at, f"edt-{job}" if job is not None else None, reason=reason)


def granted(name: str, job: int | None = 1) -> Requested:
    return replace(pending(name, job), granted=True)


def pod(name: str, job: int = 1, slots: int = 1, free: int | None = None, health: Health = Health.UP) -> Node:
    return replace(node(name, slots, free, health), only_for=f"edt-{job}")


def with_requests(pool: Pool, *requested: Requested) -> Pool:
    return replace(pool, requested=requested)


class TestAsking:
    def test_a_job_without_a_slot_asks_for_the_one_that_it_starts_on(self) -> None:
        found = decided(KUBERNETES, [], waiting(1))
        assert found.asks == (Ask("k8s", "edt-1", 1, first=True),)
        told = found.explain["edt-1"]
        assert told.blocking is Blocking.ASKED
        assert told.reason.startswith("k8s was asked for a node; no node takes work")

    def test_a_job_that_trains_asks_for_what_it_grows_by(self) -> None:
        found = decided(KUBERNETES, [node("n1", 1, 0)], running(1, {"n1": 1}))
        assert found.asks == (Ask("k8s", "edt-1", 3, first=False),)
        assert found.explain["edt-1"].reason == "holds 1 slot of its share 1; k8s was asked for 3 nodes"

    def test_what_was_asked_for_is_not_asked_for_twice(self) -> None:
        pool = with_requests(KUBERNETES, *(pending(f"k8s-{n}") for n in range(3)))
        found = decided(pool, [node("n1", 1, 0)], running(1, {"n1": 1}))
        assert (found.asks, found.give_ups) == ((), ())

    def test_no_job_waits_for_a_pool_while_slots_are_idle(self) -> None:
        pool = with_requests(KUBERNETES, pending("k8s-1"))
        found = decided(pool, [node("n1", 4)], waiting(1, most=4, engines=4))
        assert found.alloc["edt-1"] == {"n1": 4}
        assert found.give_ups == (GiveUp("k8s-1", "edt-1 has no use for it any more"),)

    def test_the_most_that_is_allowed_is_shared_by_worth_as_a_node_is(self) -> None:
        found = decided(KUBERNETES, [], *(waiting(n, most=8, engines=8) for n in (1, 2)))
        assert sorted((ask.job, ask.nodes) for ask in found.asks if ask.first) == [("edt-1", 1), ("edt-2", 1)]
        total = sum(ask.nodes for ask in found.asks)
        assert total == 4

    def test_a_node_of_several_slots_is_asked_for_whole(self) -> None:
        pool = replace(KUBERNETES, slots=2)
        found = decided(pool, [], waiting(1, most=3, engines=3))
        assert sum(ask.nodes for ask in found.asks) == 2

    def test_a_job_with_a_least_size_needs_as_many_to_start(self) -> None:
        found = decided(KUBERNETES, [], replace(waiting(1, most=4, engines=4), min=2))
        assert found.asks == (Ask("k8s", "edt-1", 2, first=True), Ask("k8s", "edt-1", 2, first=False))

    def test_a_gang_asks_for_all_its_nodes_at_once(self) -> None:
        found = decided(KUBERNETES, [], gang(1, 3))
        assert found.asks == (Ask("k8s", "edt-1", 3, first=True, group=3),)

    def test_a_gang_whose_worker_is_larger_than_a_node_does_not_ask(self) -> None:
        found = decided(KUBERNETES, [], replace(gang(1, 4), unit=2))
        assert found.asks == ()

    def test_a_gang_larger_than_the_most_does_not_ask(self) -> None:
        assert decided(KUBERNETES, [], gang(1, 5)).asks == ()

    def test_jobs_of_another_kind_of_slot_do_not_ask(self) -> None:
        wants_gpu = replace(waiting(1), device=Device.GPU)
        assert decided(KUBERNETES, [], wants_gpu).asks == ()
        found = decided(replace(KUBERNETES, device=Device.GPU), [node("n1", 1, 0)], wants_gpu)
        assert [ask.job for ask in found.asks] == ["edt-1"]

    def test_a_job_with_an_image_asks_only_where_nodes_start_in_it(self) -> None:
        job = replace(waiting(1), image="own/image")
        assert decided(KUBERNETES, [], job).asks == ()
        assert decided(replace(KUBERNETES, containers=True), [], job).asks

    def test_a_pool_whose_provisioner_is_silent_is_asked_for_nothing_and_keeps_what_it_was_asked_for(self) -> None:
        pool = replace(with_requests(KUBERNETES, pending("k8s-1")), away=True)
        found = decided(pool, [], waiting(1), waiting(2))
        assert (found.asks, found.give_ups) == ((), ())

    def test_no_job_is_moved_from_its_nodes_to_a_pool_that_would_hold_it_on_fewer(self) -> None:
        nodes = [node("n1", 2, 0), node("n2", 2, 0)]
        pool = Pool("k8s", slots=4, most=1)
        found = decided(pool, nodes, running(1, {"n1": 2, "n2": 2}, most=4, engines=4))
        assert found.asks == ()


class TestPatience:
    def test_a_node_that_does_not_come_is_given_up_with_the_cluster_managers_reason(self) -> None:
        late = pending("k8s-1", asked_at=NOW - 121, reason="0/3 nodes are available")
        found = decided(with_requests(KUBERNETES, late), [], waiting(1))
        why = "it did not come within 120 s: 0/3 nodes are available"
        assert found.give_ups == (GiveUp("k8s-1", why, refused=True),)
        assert found.asks == (), "another one would not come either"

    def test_its_job_asks_again_only_after_a_while_and_says_so(self) -> None:
        refused = {"edt-1": Refusal(NOW + 100, "Unschedulable")}
        pool = replace(KUBERNETES, refused=refused)
        found = decided(pool, [], waiting(1), waiting(2))
        assert [ask.job for ask in found.asks if ask.first] == ["edt-2"]
        assert "k8s gave no node within 120 s and is asked again later: Unschedulable" in found.explain["edt-1"].reason
        assert [ask.job for ask in decided(pool, [], waiting(1), now=NOW + 101).asks if ask.first] == ["edt-1"]

    def test_a_job_that_trains_goes_on_when_its_growth_is_given_up(self) -> None:
        late = pending("k8s-2", asked_at=NOW - 200)
        pool = with_requests(KUBERNETES, granted("k8s-1"), late)
        found = decided(pool, [pod("k8s-1", free=0)], running(1, {"k8s-1": 1}, head_node="k8s-1"))
        assert [each.node for each in found.give_ups] == ["k8s-2"]
        assert found.alloc["edt-1"] == {"k8s-1": 1}


class TestOwnNodes:
    def test_a_node_is_used_by_the_job_that_asked_for_it_alone(self) -> None:
        pool = with_requests(KUBERNETES, granted("k8s-1", 2))
        found = decided(pool, [pod("k8s-1", 2)], waiting(1), waiting(2))
        assert found.alloc == {"edt-1": {}, "edt-2": {"k8s-1": 1}}

    def test_a_job_takes_its_own_nodes_before_others(self) -> None:
        pool = with_requests(KUBERNETES, granted("k8s-1"), granted("k8s-2"))
        nodes = [node("a", 2), pod("k8s-1"), pod("k8s-2")]
        found = decided(pool, nodes, waiting(1, most=2, engines=2), waiting(2, most=2, engines=2))
        assert found.alloc == {"edt-1": {"k8s-1": 1, "k8s-2": 1}, "edt-2": {"a": 2}}

    def test_its_own_nodes_take_nothing_from_what_others_share(self) -> None:
        pool = with_requests(replace(KUBERNETES, most=2), granted("k8s-1"), granted("k8s-2"))
        nodes = [node("a", 4, 0), pod("k8s-1"), pod("k8s-2")]
        first = running(1, {"a": 4}, most=4, engines=4, head_node="a")
        found = decided(pool, nodes, first, waiting(2, most=4, engines=4))
        assert found.alloc["edt-1"] == {"a": 2, "k8s-1": 1, "k8s-2": 1}, "it makes room on the shared node"

    def test_a_gang_starts_once_all_its_nodes_are_there(self) -> None:
        some = with_requests(KUBERNETES, granted("k8s-1"), pending("k8s-2"))
        assert decided(some, [pod("k8s-1")], gang(1, 2)).alloc["edt-1"] == {}
        all_there = with_requests(KUBERNETES, granted("k8s-1"), granted("k8s-2"))
        found = decided(all_there, [pod("k8s-1"), pod("k8s-2")], gang(1, 2))
        assert found.alloc["edt-1"] == {"k8s-1": 1, "k8s-2": 1}
        assert (found.asks, found.give_ups) == ((), ())

    def test_nodes_of_a_job_that_is_over_are_given_up(self) -> None:
        pool = with_requests(KUBERNETES, granted("k8s-1", 9), pending("k8s-2", 9))
        found = decided(pool, [pod("k8s-1", 9)], waiting(1))
        assert [(each.node, each.why) for each in found.give_ups] == [
            ("k8s-1", "edt-9 is over"),
            ("k8s-2", "edt-9 is over"),
        ]

    def test_nodes_of_a_job_that_starts_again_soon_are_kept(self) -> None:
        pool = with_requests(KUBERNETES, granted("k8s-1"))
        found = decided(pool, [pod("k8s-1")], replace(waiting(1), not_before=NOW + 5))
        assert found.give_ups == ()

    def test_nodes_of_a_paused_job_are_given_up(self) -> None:
        pool = with_requests(KUBERNETES, granted("k8s-1"))
        job = replace(waiting(1), paused="paused by its user", not_before=float("inf"))
        assert [each.node for each in decided(pool, [pod("k8s-1")], job).give_ups] == ["k8s-1"]

    def test_a_job_gives_up_nodes_to_which_another_one_is_entitled(self) -> None:
        pool = with_requests(KUBERNETES, *(granted(f"k8s-{n}") for n in range(1, 5)))
        nodes = [pod(f"k8s-{n}", free=0) for n in range(1, 5)]
        first = running(1, {f"k8s-{n}": 1 for n in range(1, 5)}, head_node="k8s-1")
        found = decided(pool, nodes, first, waiting(2, engines=4))
        assert [each.node for each in found.give_ups] == ["k8s-2", "k8s-3"]
        assert found.asks == (), "the most are there until they are gone"

    def test_a_lower_most_takes_nodes_that_nobody_uses_and_then_of_the_job_that_has_most(self) -> None:
        pool = with_requests(
            replace(KUBERNETES, most=2), *(granted(f"k8s-{n}") for n in (1, 2, 3)), granted("k8s-4", 2)
        )
        nodes = [*(pod(f"k8s-{n}", free=0) for n in (1, 2)), pod("k8s-3"), pod("k8s-4", 2, free=0)]
        first = running(1, {"k8s-1": 1, "k8s-2": 1}, most=2, engines=2, head_node="k8s-1")
        second = running(2, {"k8s-4": 1}, most=1, engines=1, head_node="k8s-4")
        found = decided(pool, nodes, first, second)
        assert [each.node for each in found.give_ups] == ["k8s-3", "k8s-2"]
        assert found.give_ups[0].why == "k8s may have 2 nodes at most"

    def test_nothing_changes_when_all_have_what_they_wish(self) -> None:
        pool = with_requests(KUBERNETES, *(granted(f"k8s-{n}") for n in range(1, 4)))
        nodes = [node("a", 1, 0), *(pod(f"k8s-{n}", free=0) for n in range(1, 4))]
        job = running(1, {"a": 1, **{f"k8s-{n}": 1 for n in range(1, 4)}}, head_node="a")
        found = decided(pool, nodes, job)
        assert (found.actions, found.asks, found.give_ups) == ((), (), ())


class TestSharedNodes:
    def test_as_many_nodes_are_asked_for_as_hold_what_jobs_could_use(self) -> None:
        found = decided(SLURM, [], waiting(1, most=6))
        assert found.asks == (Ask("slurm", None, 1),), "until E is known a job has one slot"
        found = decided(SLURM, [node("a", 1, 0)], running(1, {"a": 1}, most=6, engines=6, head_node="a"))
        assert found.asks == (Ask("slurm", None, 2),)

    def test_the_fewest_nodes_are_kept_without_a_job(self) -> None:
        assert decided(replace(SLURM, least=2), []).asks == (Ask("slurm", None, 2),)
        there = with_requests(replace(SLURM, least=2), granted("slurm-1", None), granted("slurm-2", None))
        nodes = [node("slurm-1", 4), node("slurm-2", 4)]
        assert decided(there, nodes).asks == ()

    def test_a_node_that_nobody_has_use_for_any_more_is_given_up_before_it_comes(self) -> None:
        pool = with_requests(SLURM, pending("slurm-1", None))
        assert decided(pool, []).give_ups == (GiveUp("slurm-1", "no job has use for it any more"),)

    def test_any_job_uses_a_node_that_is_there(self) -> None:
        pool = with_requests(SLURM, granted("slurm-1", None))
        found = decided(pool, [node("slurm-1", 4)], waiting(1, most=2, engines=2), waiting(2, most=2, engines=2))
        assert found.alloc == {"edt-1": {"slurm-1": 2}, "edt-2": {"slurm-1": 2}}

    def test_the_reason_of_who_waits_for_a_node_names_the_cluster_managers(self) -> None:
        pool = with_requests(SLURM, pending("slurm-1", None, reason="Priority"))
        told = decided(pool, [node("a", 1, 0)], running(1, {"a": 1}, most=1, engines=1, head_node="a"), waiting(2))
        assert told.explain["edt-2"].reason.startswith("slurm was asked for a node: Priority")

    def test_after_a_node_did_not_come_none_is_asked_for_a_while(self) -> None:
        pool = replace(SLURM, refused={"": Refusal(NOW + 100, "Resources")})
        found = decided(pool, [], waiting(1))
        assert found.asks == ()
        assert "slurm gave no node within 120 s and is asked again later: Resources" in found.explain["edt-1"].reason
        late = with_requests(SLURM, pending("slurm-1", None, asked_at=NOW - 200))
        assert [ask.nodes for ask in decided(late, [], waiting(1)).asks] == []
