"""Pools: what their provisioners tell, which nodes they are to ask for, and what becomes of nodes that end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from edt_contract.gang import GangCommand, Processes, Rendezvous
from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState
from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import NodeNotWanted, NoSuchNode, NoSuchPool, PoolInUse, PoolInvalid
from edt_scheduler.model.jobs import OUT_OF_MEMORY, job_number
from edt_scheduler.model.states import Health, JobState
from edt_scheduler.operations import agents, fleet, history, pools, queues
from edt_scheduler.operations.pool_views import AskedNodeView, PoolView
from edt_scheduler.periodic.rollups import REQUEST_DAYS, forget_requests
from edt_scheduler.store import nodes as node_store
from edt_scheduler.store import pools as store
from edt_scheduler.store.usage import DAY_SECONDS
from support.databases import sqlite_first
from support.puppets import Puppet, Stage

database_url = sqlite_first()

OFFER = PoolOffer(kind="process", slots=2, max_nodes=3, per_job=False)
RUNNING, PENDING, ENDED, REFUSED = PoolState.RUNNING, PoolState.PENDING, PoolState.ENDED, PoolState.REFUSED


class Provisioner:
    """A pool's provisioner, with a cluster manager in which a node is what the test says."""

    def __init__(self, stage: Stage, name: str = "gpu", offer: PoolOffer = OFFER) -> None:
        self.stage, self.name = stage, name
        self.found: dict[str, NodeState] = {}
        pools.register(stage.platform, name, offer)
        self._allow_no_more()

    @property
    def view(self) -> PoolView:
        return next(each for each in pools.pools(self.stage.platform) if each.name == self.name)

    def asked(self, node: str) -> AskedNodeView:
        return next(each for each in self.view.nodes if each.node == node)

    def ask(self, nodes: int = 1, job: str | None = None, group_size: int = 0) -> list[str]:
        """What a plan does that wants nodes."""
        with self.stage.platform.database.transaction() as tx:
            number = job_number(job) if job is not None else None
            pool = store.get(tx, self.name)
            asked = store.ask(tx, pool.id, number, nodes, True, group_size, self.stage.clock())
        self._allow_no_more()
        return asked

    def _allow_no_more(self) -> None:
        """Plans ask for no nodes, so that only the test does."""
        with self.stage.platform.database.transaction() as tx:
            pool = store.get(tx, self.name)
            store.change(tx, pool.id, max_nodes=len(store.open_of(tx, pool.id)))

    def give_up(self, node: str, why: str = "nobody waits for it", *, refused: bool = False) -> None:
        with self.stage.platform.database.transaction() as tx:
            store.give_up(tx, node, why, refused, self.stage.clock())

    def sync(self, trouble: str | None = None) -> dict[str, NodeRequest]:
        states = list(self.found.values()) if trouble is None else None
        requests = pools.sync(self.stage.platform, self.name, states, trouble)
        self._allow_no_more()
        return {each.node: each for each in requests}

    def say(self, node: str, state: str, reason: str = "", *, oom: bool = False) -> dict[str, NodeRequest]:
        self.found[node] = NodeState(node, state, reason, oom)
        return self.sync()

    def run(self, node: str, slots: int = 2) -> Puppet:
        """The node is started and registers."""
        self.say(node, RUNNING)
        return self.stage.node(node, slots=slots)

    def lose(self, node: str) -> dict[str, NodeRequest]:
        """The cluster manager knows it no more."""
        del self.found[node]
        return self.sync()


@pytest.fixture
def provisioner(sqlite_stage: Stage) -> Provisioner:
    return Provisioner(sqlite_stage)


def nodes_of(stage: Stage) -> dict[str, Health]:
    return {node.name: node.health for node in fleet.nodes(stage.platform)}


def events(stage: Stage, job: str) -> str:
    return "\n".join(each.message for each in history.events(stage.platform, job, viewer=stage.admin))


# ── registration, and what administrators set ────────────────────────────────────────────────────────────────────────


def test_a_second_registration_replaces_the_first_but_for_what_an_administrator_has_set(stage: Stage) -> None:
    platform = stage.platform
    provisioner = Provisioner(stage)
    pools.put(platform, "gpu", max_nodes=1, patience_seconds=5)
    offer = replace(OFFER, slots=4, max_nodes=9, patience_seconds=60.0, idle_seconds=7.0, model="NVIDIA H200")
    pools.register(platform, "gpu", offer)
    view = provisioner.view
    assert (view.slots, view.max_nodes, view.patience_seconds, view.idle_seconds) == (4, 1, 5.0, 7.0)
    assert (view.max_set, view.min_set, view.patience_set, view.model) == (True, False, True, "nvidia h200")


@pytest.mark.parametrize(
    ("name", "offer", "message"),
    [
        ("Gpu", OFFER, "name: got 'Gpu', takes lower-case letters"),
        ("g" * 41, OFFER, "name: got"),
        ("gpu", replace(OFFER, kind="mesos"), "kind: got 'mesos', takes kubernetes, slurm, process"),
        ("gpu", replace(OFFER, slots=0), "slots: got 0, takes a whole number from 1"),
        ("gpu", replace(OFFER, max_nodes=-1), "max_nodes: got -1, takes a whole number of nodes from 0"),
        ("gpu", replace(OFFER, min_nodes=4), "min_nodes: got 4, takes at most the pool's max_nodes, 3"),
        ("gpu", replace(OFFER, min_nodes=1, per_job=True), "min_nodes: got 1, takes 0: each node"),
        ("gpu", replace(OFFER, device="tpu"), "device: got 'tpu', takes cpu or gpu"),
        ("gpu", replace(OFFER, patience_seconds=0.0), "patience_seconds: got 0, takes a number of seconds above 0"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_with_its_field(
    sqlite_stage: Stage, name: str, offer: PoolOffer, message: str
) -> None:
    with pytest.raises(PoolInvalid, match=message):
        pools.register(sqlite_stage.platform, name, offer)
    assert pools.pools(sqlite_stage.platform) == []


def test_numbers_of_an_administrator_are_checked(provisioner: Provisioner) -> None:
    platform = provisioner.stage.platform
    pools.put(platform, "gpu", max_nodes=3)
    for values, message in (
        ({"max_nodes": -1}, "max_nodes: got -1"),
        ({"min_nodes": 4}, "min_nodes: got 4, takes at most the pool's max_nodes, 3"),
        ({"patience_seconds": 0.0}, "patience_seconds: got 0"),
    ):
        with pytest.raises(PoolInvalid, match=message):
            pools.put(platform, "gpu", **values)  # type: ignore[arg-type]
    with pytest.raises(NoSuchPool, match="no pool 'tpu'"):
        pools.put(platform, "tpu", max_nodes=1)
    assert pools.put(platform, "gpu", max_nodes=8, min_nodes=5).min_nodes == 5


def test_a_maximum_below_the_least_number_counts_for_the_plan(provisioner: Provisioner) -> None:
    pools.put(provisioner.stage.platform, "gpu", max_nodes=2, min_nodes=2)
    pools.put(provisioner.stage.platform, "gpu", max_nodes=0)
    with provisioner.stage.platform.database.snapshot() as tx:
        (row,) = store.for_the_plan(tx)
    assert (row.max_nodes, row.min_nodes) == (0, 0)


# ── requests and what the cluster manager says of them ───────────────────────────────────────────────────────────────


def test_nodes_are_named_by_their_pool_and_no_name_comes_twice(stage: Stage) -> None:
    provisioner = Provisioner(stage)
    stage.node("gpu-2")
    assert provisioner.ask(3) == ["gpu-1", "gpu-3", "gpu-4"], "a machine has the name gpu-2"
    provisioner.say("gpu-11", RUNNING)  # of a database of before
    assert provisioner.ask() == ["gpu-12"]
    for node in ("gpu-1", "gpu-3", "gpu-4", "gpu-12"):
        provisioner.give_up(node)
    assert provisioner.sync() == {}
    stage.clock.pass_(pools.SILENT_SECONDS + 1)
    pools.remove(stage.platform, "gpu")
    stage.clock.pass_(REQUEST_DAYS * DAY_SECONDS + 1)
    assert forget_requests(stage.platform) == 4
    assert Provisioner(stage).ask() == ["gpu-13"]


def test_a_request_tells_whose_job_it_is_for(sqlite_stage: Stage) -> None:
    provisioner = Provisioner(sqlite_stage, offer=replace(OFFER, per_job=True, idle_seconds=9.0))
    queues.put_queue(sqlite_stage.platform, "/research")
    job = sqlite_stage.submit(2, queue="/research/vision", priority=3)
    (node,) = provisioner.ask(job=job, group_size=2)
    request = provisioner.sync()[node]
    assert (request.job, request.user, request.queue, request.priority) == (job, "admin", "/research", 3)
    assert (request.slots, request.first, request.group_size, request.idle_seconds) == (2, True, 2, 9.0)
    assert (request.end, request.created) == (False, False)


def test_a_request_that_waits_tells_why_in_the_cluster_managers_words(provisioner: Provisioner) -> None:
    (node,) = provisioner.ask()
    assert provisioner.asked(node).state == "asked"
    provisioner.stage.clock.pass_(7)
    request = provisioner.say(node, PENDING, "0/3 nodes are available")[node]
    assert (request.created, request.end) == (True, False)
    asked = provisioner.asked(node)
    assert (asked.state, asked.reason, asked.waits_seconds) == ("pending", "0/3 nodes are available", 7.0)
    assert (provisioner.view.asked, provisioner.view.there) == (1, 0)


def test_a_node_that_is_refused_is_no_node_that_was_created(provisioner: Provisioner) -> None:
    (node,) = provisioner.ask()
    request = provisioner.say(node, REFUSED, "exceeded quota")[node]
    assert not request.created and provisioner.asked(node).reason == "exceeded quota"
    assert provisioner.lose(node)[node].end is False, "it is asked for until it is given up"
    provisioner.give_up(node)
    assert provisioner.sync() == {}


def test_a_cluster_manager_that_does_not_answer_changes_nothing_but_is_shown(provisioner: Provisioner) -> None:
    (node,) = provisioner.ask()
    provisioner.run(node)
    provisioner.found.clear()
    assert list(provisioner.sync(trouble="connection refused")) == [node]
    assert provisioner.view.trouble == "connection refused"
    assert nodes_of(provisioner.stage) == {node: Health.UP}
    provisioner.found[node] = NodeState(node, RUNNING)
    provisioner.sync()
    assert provisioner.view.trouble is None


def test_states_that_are_none_and_pools_that_are_not_there_are_refused(provisioner: Provisioner) -> None:
    with pytest.raises(PoolInvalid, match="nodes: gpu-1: got state 'lost', takes refused, pending, running, ended"):
        provisioner.say("gpu-1", "lost")
    with pytest.raises(NoSuchPool):
        pools.sync(provisioner.stage.platform, "tpu", [], None)


# ── nodes come ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_was_asked_for_registers_as_its_pools(sqlite_stage: Stage) -> None:
    provisioner = Provisioner(sqlite_stage, offer=replace(OFFER, per_job=True))
    job = sqlite_stage.submit(2)
    (node,) = provisioner.ask(job=job)
    provisioner.run(node)
    found = fleet.node(sqlite_stage.platform, node)
    assert (found.pool, found.only_for, found.leaving_why) == ("gpu", job, None)
    assert provisioner.asked(node).granted_at == sqlite_stage.clock()
    assert provisioner.view.there == 1
    sqlite_stage.node("machine")
    other = fleet.node(sqlite_stage.platform, "machine")
    assert (other.pool, other.only_for) == (None, None)


def test_a_node_that_is_not_wanted_any_more_is_told_so_and_why(provisioner: Provisioner) -> None:
    first, second = provisioner.ask(2)
    provisioner.give_up(first, "it did not come within 120 s", refused=True)
    provisioner.say(first, PENDING)
    with pytest.raises(NodeNotWanted, match=f"node '{first}' is not wanted any more: it did not come within 120 s"):
        provisioner.stage.node(first)
    provisioner.say(second, RUNNING)
    provisioner.lose(second)
    with pytest.raises(NodeNotWanted, match="it has ended, it is gone"):
        provisioner.stage.node(second)
    assert nodes_of(provisioner.stage) == {}
    with provisioner.stage.platform.database.snapshot() as tx:
        assert [row.job_id for row in store.refused_since(tx, provisioner.stage.clock() - 1)] == [None] * 2
        assert store.refused_since(tx, provisioner.stage.clock()) == []


def test_a_node_that_was_given_up_is_drained_and_ends_when_nothing_of_a_job_is_on_it(provisioner: Provisioner) -> None:
    stage = provisioner.stage
    (node,) = provisioner.ask()
    puppet = provisioner.run(node)
    machine = stage.node("machine", slots=2)
    job = stage.submit(4)
    stage.settle()
    assert stage.holding() == {job: 4}
    provisioner.give_up(node, "an administrator has lowered the maximum")
    assert provisioner.sync()[node].end is False
    assert fleet.node(stage.platform, node).leaving_why == "an administrator has lowered the maximum"
    puppet.join()  # its agent was restarted
    stage.settle()
    assert stage.holding() == {job: 2} and machine.running
    assert provisioner.sync()[node].end is True
    assert provisioner.lose(node) == {}
    assert nodes_of(stage) == {"machine": Health.UP}


# ── nodes end ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_ended_loses_its_engines_at_once_and_the_job_reads_why(stage: Stage) -> None:
    provisioner = Provisioner(stage)
    stage.node("machine", slots=2)
    job = stage.submit(4)
    stage.settle()
    (node,) = provisioner.ask()
    provisioner.run(node)
    stage.settle()
    assert stage.holding() == {job: 4}
    assert provisioner.say(node, ENDED, "Evicted: the node was low on memory") == {}
    assert nodes_of(stage) == {"machine": Health.UP}, "it leaves the lists by itself"
    assert stage.holding() == {job: 2}
    assert f"node {node} has ended: Evicted: the node was low on memory" in events(stage, job)
    with pytest.raises(NoSuchNode):
        agents.assignments(stage.platform, node)
    look(stage.platform)
    assert stage.job(job).state is JobState.RUNNING


def test_a_node_that_ended_before_it_came_counts_as_refused_and_one_that_was_there_does_not(
    provisioner: Provisioner,
) -> None:
    stage = provisioner.stage
    first, second = provisioner.ask(2)
    provisioner.run(first)
    agents.leaving(stage.platform, first, "it was evicted", gone=True)
    provisioner.say(first, ENDED)
    with stage.platform.database.snapshot() as tx:
        assert store.refused_since(tx, stage.clock() - 1) == []
    provisioner.say(second, ENDED, "ErrImagePull")
    with stage.platform.database.snapshot() as tx:
        assert len(store.refused_since(tx, stage.clock() - 1)) == 1


def test_a_job_with_all_its_engines_on_a_node_that_ended_is_started_again(sqlite_stage: Stage) -> None:
    provisioner = Provisioner(sqlite_stage)
    (node,) = provisioner.ask()
    provisioner.run(node)
    job = sqlite_stage.submit(2)
    sqlite_stage.settle()
    sqlite_stage.puppets.clear()
    provisioner.lose(node)
    assert (sqlite_stage.job(job).state, sqlite_stage.job(job).slots) == (JobState.PENDING, 0)
    assert f"node {node} has ended: it is gone" in events(sqlite_stage, job)


def test_a_node_that_ran_out_of_memory_is_told_as_that_and_twice_is_the_scripts_fault(sqlite_stage: Stage) -> None:
    stage, provisioner = sqlite_stage, Provisioner(sqlite_stage)
    job, told = stage.submit(2), []
    for _ in range(2):
        (node,) = provisioner.ask()
        provisioner.run(node)
        stage.settle()
        assert stage.holding() == {job: 2}
        stage.puppets.clear()
        provisioner.say(node, ENDED, "OOMKilled", oom=True)
        told.append(f"node {node} ran out of memory: OOMKilled" in events(stage, job))
        stage.clock.pass_(3600)
    assert told[0]
    assert (stage.job(job).state, stage.job(job).message) == (JobState.ERROR, OUT_OF_MEMORY)


def test_a_gang_that_ran_out_of_memory_is_not_started_again_to_do_the_same(sqlite_stage: Stage) -> None:
    stage, provisioner = sqlite_stage, Provisioner(sqlite_stage)
    (node,) = provisioner.ask()
    provisioner.run(node)
    command = GangCommand(("{python}", "-u", "{main}"), Processes.DEVICE, (Rendezvous.TORCH,), {})
    job = stage.submit(2, framework="distPyTorch", gang=command)
    stage.settle()
    assert stage.holding() == {job: 2}
    stage.puppets.clear()
    provisioner.say(node, ENDED, "OOMKilled", oom=True)
    message = f"node {node} ran out of memory: OOMKilled"
    assert (stage.job(job).state, stage.job(job).message) == (JobState.ERROR, message)


def test_who_used_too_much_of_a_shared_nodes_memory_is_not_known(sqlite_stage: Stage) -> None:
    stage, provisioner = sqlite_stage, Provisioner(sqlite_stage)
    (node,) = provisioner.ask()
    provisioner.run(node)
    jobs = [stage.submit(1), stage.submit(1)]
    stage.settle()
    assert stage.holding() == dict.fromkeys(jobs, 1)
    stage.puppets.clear()
    provisioner.say(node, ENDED, "OUT_OF_MEMORY", oom=True)
    with stage.platform.database.snapshot() as tx:
        assert list(tx.execute(text("SELECT ooms FROM jobs")).scalars()) == [0, 0]


def test_a_node_that_is_started_again_as_itself_is_granted_again(stage: Stage) -> None:
    """As Slurm does with what it requeues."""
    provisioner = Provisioner(stage)
    (node,) = provisioner.ask()
    puppet = provisioner.run(node)
    job = stage.submit(2)
    stage.settle()
    agents.leaving(stage.platform, node, "it was preempted")
    puppet.cut = True
    stage.clock.pass_(10)
    provisioner.say(node, PENDING, "BeginTime")
    asked = provisioner.asked(node)
    assert (asked.granted_at, asked.asked_at, asked.give_up_at) == (None, stage.clock(), None)
    assert nodes_of(stage) == {node: Health.LOST}
    assert stage.holding() == {}
    assert f"node {node} waits to be started again: BeginTime" in events(stage, job)
    provisioner.say(node, RUNNING)
    puppet.running.clear()
    puppet.hosting.clear()
    puppet.reboot()
    assert provisioner.asked(node).granted_at == stage.clock()
    assert fleet.node(stage.platform, node).health is Health.UP and fleet.node(stage.platform, node).leaving_why is None
    stage.clock.pass_(3600)
    stage.settle()
    assert stage.holding() == {job: 2}


def test_a_list_from_before_a_node_came_does_not_lose_it(provisioner: Provisioner) -> None:
    (node,) = provisioner.ask()
    provisioner.say(node, PENDING)
    provisioner.stage.node(node)
    provisioner.sync()
    assert nodes_of(provisioner.stage) == {node: Health.UP}


# ── nodes leave ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_wants_to_leave_is_emptied_and_says_when_it_is_gone(provisioner: Provisioner) -> None:
    stage = provisioner.stage
    stage.node("machine", slots=2)
    (node,) = provisioner.ask()
    provisioner.run(node)
    job = stage.submit(4)
    stage.settle()
    assert agents.leaving(stage.platform, node, "it was evicted")
    found = fleet.node(stage.platform, node)
    assert (found.health, found.leaving_why) == (Health.DRAINING, "it was evicted")
    stage.settle()
    assert stage.holding() == {job: 2}
    assert agents.leaving(stage.platform, node, "it was evicted", gone=True)
    assert nodes_of(stage)[node] is Health.LOST
    assert provisioner.sync()[node].end is False, "its cluster manager may start it again"
    assert provisioner.say(node, ENDED) == {}
    assert list(nodes_of(stage)) == ["machine"]
    assert "lost" not in events(stage, job)


def test_what_a_node_that_is_gone_left_behind_is_over_without_a_lease(provisioner: Provisioner) -> None:
    stage = provisioner.stage
    (node,) = provisioner.ask()
    provisioner.run(node)
    job = stage.submit(2)
    stage.settle()
    stage.puppets.clear()
    agents.leaving(stage.platform, node, "its time limit ends it", gone=True)
    assert stage.holding() == {}
    assert f"node {node} has left: its time limit ends it" in events(stage, job)


def test_an_idle_node_leaves_if_its_pool_keeps_its_least_number(sqlite_stage: Stage) -> None:
    stage, provisioner = sqlite_stage, Provisioner(sqlite_stage, offer=replace(OFFER, max_nodes=2, min_nodes=1))
    first, second = provisioner.ask(2)
    provisioner.run(first)
    second_puppet = provisioner.run(second)
    job = stage.submit(2)
    stage.settle()
    busy, idle = (second, first) if second_puppet.running else (first, second)
    assert not agents.leaving(stage.platform, busy, "idle", if_idle=True)
    assert fleet.node(stage.platform, busy).health is Health.UP
    assert agents.leaving(stage.platform, idle, "no job has used it for 60 s", if_idle=True)
    assert provisioner.sync()[idle].end is True
    assert provisioner.asked(idle).give_up_why == "no job has used it for 60 s"
    next(each for each in stage.puppets if each.name == busy).end((job, 1), ExitKind.FINISHED)
    assert not agents.leaving(stage.platform, busy, "idle", if_idle=True), "it is the last"
    assert agents.leaving(stage.platform, idle, "idle", if_idle=True), "it was told so before"


def test_a_node_of_no_pool_does_not_leave_because_it_is_idle(sqlite_stage: Stage) -> None:
    sqlite_stage.node("machine")
    assert not agents.leaving(sqlite_stage.platform, "machine", "idle", if_idle=True)
    with pytest.raises(NoSuchNode):
        agents.leaving(sqlite_stage.platform, "nobody", "idle")


def test_a_node_of_no_pool_that_has_left_takes_work_again_when_it_is_started_again(sqlite_stage: Stage) -> None:
    machine = sqlite_stage.node("machine")
    agents.leaving(sqlite_stage.platform, "machine", "its pod is replaced")
    assert fleet.node(sqlite_stage.platform, "machine").health == Health.DRAINING
    agents.leaving(sqlite_stage.platform, "machine", "its pod is replaced", gone=True)
    machine.join()
    assert fleet.node(sqlite_stage.platform, "machine").health == Health.UP

    fleet.drain(sqlite_stage.platform, "machine")
    machine.join()
    assert fleet.node(sqlite_stage.platform, "machine").health == Health.DRAINING, "an administrator has asked for it"


def test_an_administrators_uncordon_lets_a_leaving_node_work_again(provisioner: Provisioner) -> None:
    (node,) = provisioner.ask()
    provisioner.run(node)
    agents.leaving(provisioner.stage.platform, node, "it was evicted")
    found = fleet.uncordon(provisioner.stage.platform, node)
    assert (found.health, found.leaving_why) == (Health.UP, None)


# ── pools are removed, requests are forgotten, and what the schema refuses ───────────────────────────────────────────


def test_a_pool_is_removed_once_its_provisioner_and_its_nodes_are_gone(provisioner: Provisioner) -> None:
    stage, platform = provisioner.stage, provisioner.stage.platform
    node, other = provisioner.ask(2)
    provisioner.run(node)
    with pytest.raises(PoolInUse, match="its provisioner was heard from 0 s ago: end it"):
        pools.remove(platform, "gpu")
    stage.clock.pass_(pools.SILENT_SECONDS)
    with pytest.raises(PoolInUse, match=f"its node {node} is there"):
        pools.remove(platform, "gpu")
    look(platform, stage.silence(node))
    pools.remove(platform, "gpu")
    assert pools.pools(platform) == [] and nodes_of(stage) == {}
    with pytest.raises(NoSuchPool):
        provisioner.sync()
    with pytest.raises(NodeNotWanted, match="pool gpu was removed"):
        stage.node(other)


def test_the_schema_keeps_names_requests_and_their_ends(stage: Stage) -> None:
    provisioner = Provisioner(stage)
    first, second = provisioner.ask(2)
    provisioner.give_up(first)
    provisioner.sync()
    provisioner.give_up(second)
    assert (first, second) == ("gpu-1", "gpu-2")
    for statement, why in (
        ("UPDATE pools SET named = 1", "only grows"),
        ("UPDATE pools SET slots = 0", "constraint"),
        ("INSERT INTO pools SELECT * FROM pools", "unique"),
        ("UPDATE node_requests SET node = 'gpu-1'", "unique"),
        ("UPDATE node_requests SET state = 'asleep' WHERE node = 'gpu-2'", "constraint"),
        ("UPDATE node_requests SET ended_at = NULL WHERE node = 'gpu-1'", "a request ends once"),
        ("UPDATE node_requests SET give_up_at = 5 WHERE node = 'gpu-2'", "a request is given up once"),
        ("DELETE FROM node_requests WHERE node = 'gpu-2'", "not over is never deleted"),
    ):
        with pytest.raises(DBAPIError, match=f"(?i){why}"), stage.platform.database.transaction() as tx:
            tx.execute(text(statement))


def test_a_node_that_left_is_not_read_for_plans_any_more(stage: Stage) -> None:
    provisioner = Provisioner(stage)
    (node,) = provisioner.ask()
    provisioner.run(node)
    provisioner.say(node, ENDED)
    with stage.platform.database.snapshot() as tx:
        assert node_store.for_the_plan(tx) == [] and node_store.slots_for_the_plan(tx) == []
        assert [row.name for row in node_store.every(tx)] == [node]


def test_the_feed_of_changes_tells_that_a_node_leaves_and_is_gone(stage: Stage) -> None:
    provisioner = Provisioner(stage)
    (node,) = provisioner.ask()
    provisioner.run(node)
    cursor = history.newest_change(stage.platform)
    agents.leaving(stage.platform, node, "it was evicted")
    found = history.changes_since(stage.platform, cursor)
    assert [each.leaving_why for each in found.nodes] == ["it was evicted"]
    provisioner.say(node, ENDED)
    assert history.changes_since(stage.platform, found.cursor).removed_nodes == (node,)
