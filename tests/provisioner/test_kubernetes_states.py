"""What Kubernetes' objects say of a node. An old server that tests can run says most of it by itself
(tests/clusters/test_kubernetes_nodes.py); here is what only newer ones, other schedulers and lost machines say."""

from __future__ import annotations

from typing import Any

import pytest

from edt_contract.pools import NodeState, PoolState
from edt_provisioner.kubernetes.labels import CONTAINER
from edt_provisioner.kubernetes.states import Found, state


def pod(container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "sidecar", "state": {"running": {}}}]
    if container is not None:
        statuses.append({"name": "edt", "state": container})
    metadata = {"annotations": {CONTAINER: "edt"}, "name": "n-abcde", "uid": "1"}
    return {"metadata": metadata, "spec": {"nodeName": "gpu-4"}, "status": {"containerStatuses": statuses, **status}}


def job(condition: str = "", message: str = "", *, suspend: bool = False, **status: Any) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "reason": "Because", "message": message}] if condition else []
    return {"spec": {"suspend": suspend}, "status": {"conditions": conditions, **status}}


@pytest.mark.parametrize(
    ("found", "expected", "reason"),
    [
        (job(), PoolState.PENDING, ""),
        (job("Suspended", "Not admitted"), PoolState.PENDING, "suspended: Because: Not admitted"),
        (job(suspend=True), PoolState.PENDING, "suspended, until its queue admits it"),
        (job("Failed", "limit"), PoolState.ENDED, "Because: limit"),
        (job("Complete"), PoolState.ENDED, "Because"),
        (job(failed=1), PoolState.ENDED, "its pod was deleted"),
    ],
)
def test_a_job_without_a_pod_is_waited_for_or_over(found: dict[str, Any], expected: str, reason: str) -> None:
    assert state(Found("n", found)) == NodeState("n", expected, reason)


def test_a_pod_runs_when_the_agents_container_does() -> None:
    assert state(Found("n", job(), pod({"running": {}}, phase="Running"))).state == PoolState.RUNNING
    assert state(Found("n", job(), pod({"waiting": {}}, phase="Running"))).state == PoolState.PENDING
    ended = state(Found("n", job(), pod({"terminated": {"exitCode": 0}}, phase="Running")))
    assert ended == NodeState("n", PoolState.ENDED)  # a sidecar still runs


def test_the_newest_warning_is_the_reason_where_the_pod_says_nothing() -> None:
    warnings = [{"reason": "FailedMount", "message": "first"}, {"reason": "FailedMount", "message": "no\n  volume"}]
    waiting = pod({"waiting": {"reason": "ContainerCreating"}}, phase="Pending")
    assert state(Found("n", job(), waiting), warnings).reason == "FailedMount: no volume"
    pulled = pod({"waiting": {"reason": "ImagePullBackOff", "message": "m"}}, phase="Pending")
    assert state(Found("n", job(), pulled), warnings).reason == "ImagePullBackOff: m"


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_the_schedulers_reason_is_told(reason: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/4 nodes are available"}
    told = state(Found("n", job(), pod(phase="Pending", conditions=[condition])))
    assert told == NodeState("n", PoolState.PENDING, f"{reason}: 0/4 nodes are available")


def test_a_disruption_is_told_before_the_exit_status() -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "for a pod of higher priority",
    }
    ended = pod({"terminated": {"exitCode": 137, "reason": "Error"}}, phase="Failed", conditions=[condition])
    assert state(Found("n", job(), ended)).reason == "PreemptionByScheduler: for a pod of higher priority"
    evicted = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert state(Found("n", job(), evicted)).reason == "Evicted: The node was low on resource: memory."


@pytest.mark.parametrize(
    ("ended", "reason", "oom"),
    [
        ({"exitCode": 0}, "", False),
        ({"exitCode": 2, "reason": "Error"}, "Error: exit status 2", False),
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled: it used more memory than it may", True),
        ({"exitCode": 139, "signal": 11}, "ended by signal 11", False),
        (
            {"exitCode": 128, "reason": "ContainerCannotRun", "message": "no python"},
            "ContainerCannotRun: no python",
            False,
        ),
    ],
)
def test_how_the_agents_container_ended_is_told(ended: dict[str, Any], reason: str, oom: bool) -> None:
    told = state(Found("n", job(), pod({"terminated": ended}, phase="Failed")))
    assert told == NodeState("n", PoolState.ENDED, reason, oom)


def test_a_pod_on_a_machine_that_is_gone_is_given_up_and_another_pod_is_not_the_node() -> None:
    running = pod({"running": {}}, phase="Running")
    lost = state(Found("n", None, running, given_up=True))
    assert lost.state == PoolState.ENDED and "gpu-4 does not answer" in lost.reason
    assert state(Found("n", job(), running, earlier_pod=True)) == NodeState("n", PoolState.ENDED, "its pod was deleted")


def test_a_long_reason_is_cut() -> None:
    assert len(state(Found("n", job("Failed", "x" * 9000))).reason) <= 510
