"""Pools settle: from any state, plans that are carried out by a cluster manager that gives what it is asked for come to
an end after which nothing is asked for and nothing given up, and no more than the most is ever there."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import carried_out, with_free
from edt_scheduler.plan.policy import plan
from edt_scheduler.plan.state import Job, Node, Phase, Plan, Pool, Requested, State

LOOKS = 40


class Cluster:
    """A cluster manager that gives at once what it is asked for, and takes what is given up."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._named = 0

    def carry_out(self, decided: Plan) -> None:
        state = carried_out(self.state, decided)
        gone = {each.node for each in decided.give_ups}
        drained = {node.id for node in state.nodes if node.id in gone}
        used = Counter[str]()
        for job in state.jobs:
            used.update(job.used)
        over = {name for name in drained if not used[name]} | (gone - drained)
        nodes = [
            replace(node, health=Health.DRAINING) if node.id in drained else node
            for node in state.nodes
            if node.id not in over
        ]
        pools = []
        for pool in state.pools:
            requested = [
                replace(each, ending=each.ending or each.node in gone)
                for each in pool.requested
                if each.node not in over and not (each.ending and not used[each.node])
            ]
            nodes = [node for node in nodes if not (node.health is Health.DRAINING and not used[node.id])]
            for ask in decided.asks:
                for _ in range(ask.nodes if ask.pool == pool.id else 0):
                    self._named += 1
                    name = f"{pool.id}-{self._named}"
                    requested.append(Requested(name, state.now, ask.job, granted=True))
                    nodes.append(
                        Node(name, pool.slots, pool.slots, Health.UP, containers=pool.containers, only_for=ask.job)
                    )
            asked = any(ask.pool == pool.id for ask in decided.asks)
            assert len(requested) <= pool.most or not asked, "never more than the most"
            pools.append(replace(pool, requested=tuple(requested)))
        self.state = with_free(replace(state, nodes=tuple(nodes), pools=tuple(pools)))

    def settle(self) -> Plan:
        """The first plan that changes nothing."""
        for _ in range(LOOKS):
            decided = plan(self.state)
            if not (decided.actions or decided.asks or decided.give_ups):
                return decided
            self.carry_out(decided)
        raise AssertionError(f"{decided.actions} {decided.asks} {decided.give_ups}")


def mixed(seed: int) -> State:
    chance = random.Random(seed)
    nodes = tuple(Node(f"n{n}", 4, 4, Health.UP) for n in range(chance.choice([0, 0, 1, 2])))
    jobs = []
    for number in range(1, chance.randint(2, 7)):
        most, gang = chance.randint(1, 6), chance.random() < 0.2
        engines = None if gang else chance.choice([2, 4, 6, 8])
        least = 1 if gang else chance.choice([1, 1, 1, 2])
        job = Job(f"edt-{number}", number, most, Phase.WAITING, engines, gang=gang, min=min(least, most))
        jobs.append(replace(job, priority=chance.choice([1, 1, 2]), user=chance.choice("ab")))
    pools = [Pool("k8s", chance.choice([1, 1, 2]), chance.randint(1, 6))]
    if chance.random() < 0.5:
        pools.append(Pool("slurm", 2, chance.randint(1, 3), least=chance.choice([0, 1]), per_job=False))
    return State(1000.0, nodes, tuple(jobs), pools=tuple(pools))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_cluster_manager_that_gives_what_it_is_asked_for_is_soon_asked_for_nothing(first: int) -> None:
    for seed in range(first, first + 20):
        cluster = Cluster(mixed(seed))
        try:
            cluster.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        cluster.state = replace(cluster.state, jobs=cluster.state.jobs[1:])  # a job ends
        cluster.state = with_free(cluster.state)
        try:
            cluster.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after a job has ended: {error}") from error
        fewer = tuple(replace(pool, most=pool.most // 2, least=0) for pool in cluster.state.pools)
        cluster.state = replace(cluster.state, pools=fewer)
        try:
            cluster.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, with half the most: {error}") from error
        assert all(len(pool.requested) <= pool.most for pool in cluster.state.pools), seed


def test_a_job_grows_over_its_pods_and_gives_them_to_another_one_by_its_share() -> None:
    first = Job("edt-1", 1, 4, Phase.WAITING, 4)
    cluster = Cluster(State(1000.0, (), (first,), pools=(Pool("k8s", 1, 4),)))
    held = cluster.settle().alloc["edt-1"]
    assert sum(held.values()) == 4
    cluster.state = replace(cluster.state, jobs=(*cluster.state.jobs, Job("edt-2", 2, 4, Phase.WAITING, 4)))
    settled = cluster.settle()
    assert [sum(settled.alloc[job].values()) for job in ("edt-1", "edt-2")] == [2, 2]
