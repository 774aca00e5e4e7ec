"""Journeys over pods of a real Kubernetes: jobs grow and shrink over them, and end with the bits of an undisturbed run,
whatever becomes of pods, of Kubernetes' nodes and of its API server.

The platform has one slot of its own, on this machine. All other engines are in pods.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.journey import PATIENCE, Job, submit, visit
from support.kubernetes_cluster import Kubernetes
from support.kubernetes_pods import BASE_IMAGE, PodPool, reachable_platform
from support.kubernetes_undo import second_docker
from support.paging import every
from support.running_platform import Platform
from support.waiting import until

Undisturbed = Callable[[], str]
pytestmark = [pytest.mark.kubernetes, pytest.mark.docker, pytest.mark.timeout(600)]
EPOCHS = "--epochs 10"
QUICK = {"EDT_POOL_PATIENCE_SECONDS": "60", "EDT_POOL_IDLE_SECONDS": "3"}


@pytest.fixture(scope="module")
def one_slot(tmp_path_factory: pytest.TempPathFactory, kubernetes: Kubernetes) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    with reachable_platform(folder, kubernetes, EDT_LEASE_SECONDS="20") as platform:
        yield platform


@pytest.fixture(scope="module")
def undisturbed(one_slot: Platform) -> Undisturbed:
    """The digest of the same training on the platform's own slot alone, trained once. How many threads an engine has
    comes from the cores of a node and its slots, so it is no other platform's."""
    found: list[str] = []

    def digest() -> str:
        if not found:
            found.append(submit(one_slot, "undisturbed", "--numWorker 1", EPOCHS).finish()["digest"])
        return found[0]

    return digest


@pytest.fixture
def platform(one_slot: Platform) -> Iterator[Platform]:
    with visit(one_slot) as platform:
        yield platform


def train_for(job: Job, seconds: float) -> None:
    """Let a step through every second or so, and see that each is made."""
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        job.gate.allow(job.gate.allowed + 1)
        job.gate.close()
        time.sleep(1)


def test_a_job_grows_and_shrinks_over_real_pods(
    platform: Platform, kubernetes: Kubernetes, undisturbed: Undisturbed
) -> None:
    """World sizes 1 → 4 → 3 → 4 → 3 → 4 → 2: pods come, one is deleted and leaves, one is killed, and two are given
    back."""
    with PodPool(platform, kubernetes, EDT_POOL_MAX_NODES="3", **QUICK) as pool:
        job = submit(platform, "grows", arguments=EPOCHS)
        job.until_slots(4)
        assert len(pool.nodes()) == 3

        leaving = pool.nodes()[0]
        pool.kubectl("delete", "pod", pool.pod(leaving), "--wait=false")
        job.gate.until(lambda: leaving not in pool.nodes(), PATIENCE, sparing=True)
        job.until_slots(4)
        assert not any(each["cause"] == "node-lost" for each in platform.resizes(job.id))

        killed = pool.nodes()[0]
        pool.kill(killed)
        job.gate.until(lambda: killed not in pool.nodes(), PATIENCE, sparing=True)
        job.until_slots(4)

        pool.set(max_nodes=1)
        job.until_slots(2)
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed(), 1)
        until(lambda: not pool.nodes(), 60, "nodes of a job that is over leave")
    until(lambda: not pool.pods(), 60, "and so do their pods")


def test_what_a_pod_waits_for_is_shown_to_the_jobs_user(
    platform: Platform, kubernetes: Kubernetes, undisturbed: Undisturbed
) -> None:
    with PodPool(platform, kubernetes, EDT_POOL_PATIENCE_SECONDS="12", EDT_POOL_IDLE_SECONDS="3") as pool:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one-pod"}}
        kubernetes.apply({**quota, "spec": {"hard": {"pods": "1"}}}, namespace=pool.namespace)
        job = submit(platform, "waits", "--numWorker 4", EPOCHS)
        job.until_slots(2)
        until(lambda: "exceeded quota: one-pod" in pool.explained(job.id), 30, "the reason is shown")
        until(lambda: "is asked again later" in pool.explained(job.id), 40, "it is given up")
        assert job.finish()["digest"] == undisturbed()


@pytest.mark.extended  # test_kubernetes_nodes
@pytest.mark.parametrize("seconds", [15, 60])
def test_training_goes_on_while_the_api_server_is_away(
    platform: Platform, kubernetes: Kubernetes, undisturbed: Undisturbed, seconds: int
) -> None:
    with PodPool(platform, kubernetes, EDT_POOL_MAX_NODES="1", **QUICK) as pool:
        job = submit(platform, "goes-on", "--numWorker 4", EPOCHS)
        job.until_slots(2)
        [there] = pool.nodes()
        kubernetes.stop_api()
        try:
            pool.set(max_nodes=3)
            until(lambda: "does not answer" in str(pool.view()), 30, "administrators are told")
            train_for(job, seconds)
            assert pool.nodes() == [there] and job.slots() == 2
        finally:
            kubernetes.start_api()
        job.until_slots(4)
        end = job.finish()
        assert (end["digest"], end["attempts"]) == (undisturbed(), 1)
        held = every(platform.api, f"/api/v1/jobs/{job.id}/allocations")
        assert sum(each["node"] == there for each in held) == 1  # its slot was never taken back


@pytest.mark.extended  # the first journey, whose pods are deleted and killed
def test_nodes_are_drained_and_lost_as_kubernetes_says(
    platform: Platform, kubernetes: Kubernetes, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """A pod is on the second node. ``kubectl drain`` evicts it, and another one comes on the first. Then a pod on the
    second node goes on without its kubelet, and ends with its machine."""
    kubernetes.add_node(BASE_IMAGE)
    kubernetes.kubectl("cordon", "node-1")
    try:
        with PodPool(platform, kubernetes, BASE_IMAGE, EDT_POOL_MAX_NODES="2", **QUICK) as pool:
            job = submit(platform, "drained", "--numWorker 2", EPOCHS)
            job.until_slots(2)
            assert pool.nodes() == pool.nodes_on("node-2")
            drained = pool.nodes()
            kubernetes.kubectl("uncordon", "node-1")
            with subprocess.Popen(
                kubernetes.command("drain", "node-2", "--timeout=180s"), stdout=subprocess.DEVNULL
            ) as drain:
                job.gate.until(lambda: not set(drained) & set(pool.nodes()), PATIENCE, sparing=True)
                assert drain.wait(180) == 0
            job.until_slots(2)
            assert pool.nodes() == pool.nodes_on("node-1")
            assert not any(each["cause"] == "node-lost" for each in platform.resizes(job.id))

            kubernetes.kubectl("uncordon", "node-2")
            kubernetes.kubectl("cordon", "node-1")
            pool.kubectl("delete", "pod", pool.pod(pool.nodes()[0]), "--wait=false")
            job.gate.until(lambda: bool(pool.nodes_on("node-2")), PATIENCE, sparing=True)
            job.gate.until(lambda: job.joined() == 2 and not pool.nodes_on("node-1"), PATIENCE, sparing=True)
            job.until_slots(2)
            [there] = pool.nodes_on("node-2")
            kubernetes.kill_kubelet("node-2")
            kubernetes.kubectl("uncordon", "node-1")
            train_for(job, 22)
            assert there in pool.nodes() and job.slots() == 2  # Kubernetes knows that node-2 does not answer

            command = ["docker", f"--host={second_docker(kubernetes.folder)}"]
            containers = subprocess.run([*command, "ps", "-q"], check=True, capture_output=True, text=True).stdout
            subprocess.run([*command, "kill", *containers.split()], check=True, capture_output=True)
            job.gate.until(lambda: there not in pool.nodes() and bool(pool.nodes()), PATIENCE, sparing=True)
            job.until_slots(2)
            assert pool.nodes() == pool.nodes_on("node-1")
            end = job.finish()
            assert (end["digest"], end["attempts"]) == (undisturbed(), 1)
            kubernetes.start_kubelet("node-2")
    finally:
        kubernetes.kubectl("uncordon", "node-1")
        kubernetes.kubectl("cordon", "node-2")  # other tests have one node
