"""Pools: nodes that another cluster manager gives for a while. Here it is one that runs nodes as processes of this
machine; the same over Kubernetes and Slurm is in tests/clusters.

Platforms have one slot of their own, so all growth is over nodes of the pool.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from support.journey import platform_in, submit, visit
from support.pools import Provisioner
from support.running_platform import Platform
from support.waiting import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform_in(tmp_path_factory.mktemp("platform"), slots=1, one_core=True) as platform:
        yield platform


@pytest.fixture(scope="module")
def undisturbed(one_slot: Platform) -> str:
    """The digest of the script ``conv`` on the platform's own slot: how many threads it has is part of the bits."""
    with visit(one_slot) as platform:
        return str(submit(platform, "undisturbed", "--numWorker 1").finish()["digest"])


@pytest.fixture
def platform(one_slot: Platform) -> Iterator[Platform]:
    with visit(one_slot) as platform:
        yield platform


@pytest.fixture
def pool(platform: Platform) -> Iterator[Provisioner]:
    with Provisioner(platform, "process", EDT_POOL_PATIENCE_SECONDS="60", EDT_POOL_IDLE_SECONDS="2") as provisioner:
        provisioner.set(max_nodes=3)
        yield provisioner


def process_of(pool: Provisioner, node: str) -> int:
    """The init of a node."""
    known = json.loads((pool.platform.home / "pools" / pool.pool / f"{node}.json").read_text())
    return int(known["pid"])


def test_a_job_grows_over_nodes_that_it_asked_for_and_gives_them_back(
    platform: Platform, pool: Provisioner, undisturbed: str
) -> None:
    """World sizes 1 → 4 → 3 → 4 → 2. A node is asked to leave, and another one is killed."""
    job = submit(platform, "grows")
    job.until_slots(4)
    assert len(pool.nodes()) == 3
    shown = platform.job(job.id)
    assert shown["state"] == "RUNNING"

    leaving = pool.nodes()[0]
    os.kill(process_of(pool, leaving), signal.SIGTERM)
    job.gate.until(lambda: leaving not in pool.nodes(), 60, sparing=True)
    job.until_slots(4)
    assert leaving not in pool.nodes(), "a new one has come in its place"

    killed = pool.nodes()[0]
    for pid in (process_of(pool, killed), *platform.processes(EDT_NODE=killed)):
        os.kill(pid, signal.SIGKILL)
    job.gate.until(lambda: killed not in {node["name"] for node in platform.nodes()}, 60, sparing=True)
    job.until_slots(4)

    pool.set(max_nodes=1)
    job.until_slots(2)
    end = job.finish()
    assert (end["digest"], end["attempts"]) == (undisturbed, 1)
    until(lambda: not pool.nodes(), 60, "nodes of a job that is over leave")


@pytest.mark.extended  # scheduler/test_asking, scheduler/test_pools
def test_a_node_that_does_not_come_is_shown_with_the_reason_and_given_up(platform: Platform, undisturbed: str) -> None:
    room = {"EDT_POOL": "narrow", "EDT_PROCESS_POOL_ROOM": "1", "EDT_POOL_PATIENCE_SECONDS": "12"}
    with Provisioner(platform, "process", **room) as pool:
        first = submit(platform, "first", "--numWorker 4")
        first.until_slots(2)
        why = "this machine has room for 1 nodes, and 1 run"
        until(lambda: why in pool.explained(first.id), 30, "the reason is shown")
        assert why in str(pool.waiting())
        until(lambda: "is asked again later" in pool.explained(first.id), 30, "it is given up")
        assert len(pool.nodes()) == 1
        assert first.finish()["digest"] == undisturbed


@pytest.mark.extended  # provisioner/test_provisioner
def test_a_provisioner_that_is_killed_costs_no_training(
    platform: Platform, pool: Provisioner, undisturbed: str
) -> None:
    job = submit(platform, "goes-on", "--numWorker 2")
    job.until_slots(2)
    there = pool.nodes()
    pool.stop(signal.SIGKILL)
    pool.start()
    until(lambda: pool.view()["silent_seconds"] < 2, 30, "it is heard from again")
    assert pool.nodes() == there
    end = job.finish()
    assert (end["digest"], end["attempts"]) == (undisturbed, 1)


@pytest.mark.extended  # agent/test_temporary, scheduler/test_pools
def test_nodes_that_any_job_may_use_leave_when_they_are_idle_but_for_the_fewest(platform: Platform) -> None:
    shared = {"EDT_PROCESS_POOL_PER_JOB": "false", "EDT_POOL_IDLE_SECONDS": "1", "EDT_POOL_MIN_NODES": "1"}
    with Provisioner(platform, "process", EDT_POOL="shared", EDT_POOL_MAX_NODES="3", **shared) as pool:
        until(lambda: len(pool.nodes()) == 1, 60, "the fewest come without a job")
        job = submit(platform, "uses")
        job.until_slots(4)
        assert len(pool.nodes()) == 3
        job.finish()
        until(lambda: len(pool.nodes()) == 1, 60, "one is left")
