"""Nodes that are pods of a real Kubernetes, without a platform: what the provisioner's cluster asks for, sees and ends.

In place of the agent each pod runs a few lines of shell, which are mounted over its interpreter.
"""

from __future__ import annotations

import base64
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edt_contract.pools import NodeRequest, NodeState, PoolState, node_token
from edt_provisioner.cluster import ClusterAway
from edt_provisioner.errors import BadSetting
from edt_provisioner.kubernetes import KubernetesCluster, KubernetesSettings
from edt_provisioner.settings import read_settings
from support.kubernetes_cluster import Kubernetes
from support.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]

IMAGE = "openedt-test/base:latest"
AGENT = """#!/bin/sh
trap 'sleep "${LINGER:-0}"; exit 0' TERM
[ -s "$EDT_TOKEN_FILE" ] || exit 9
case "$BEHAVIOUR" in
  fail) exit 3 ;;
  eat) exec python3 -c 'x = bytearray(b"x") * (1 << 28)' ;;
  gone) exit 0 ;;
esac
while :; do sleep 0.1; done
"""


class Nodes:
    """A pool's cluster, in a namespace of its own."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, folder: Path) -> None:
        self.kubernetes, self.namespace, self.folder = kubernetes, namespace, folder
        (folder / "python").write_text(AGENT)
        (folder / "python").chmod(0o755)
        (folder / "join-token").write_text("the join token")
        self.clusters: list[KubernetesCluster] = []
        self.write_template()
        self.cluster = self.connect()

    def connect(self, **more: str) -> KubernetesCluster:
        """Another provisioner's."""
        given = {
            "home": str(self.folder),
            "kubernetes_config": str(self.kubernetes.kubeconfig),
            "kubernetes_namespace": self.namespace,
            "kubernetes_pod_template": str(self.folder / "pod.yaml"),
            "kubernetes_python": str(self.folder / "python"),
            "kubernetes_grace_seconds": "5",
            "kubernetes_request_seconds": "3",
            "pool": "pool",
        }
        cluster = KubernetesCluster(read_settings(KubernetesSettings, {**given, **more}))
        self.clusters.append(cluster)
        return cluster

    def write_template(self, behaviour: str = "", linger: float = 0, **more: Any) -> None:
        container = {
            "name": "edt",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "BEHAVIOUR", "value": behaviour}, {"name": "LINGER", "value": str(linger)}],
            "resources": {"requests": {"cpu": "10m"}},
            "volumeMounts": [{"name": "home", "mountPath": str(self.folder)}],
        }
        volume = {"name": "home", "hostPath": {"path": str(self.folder)}}
        spec = {"containers": [{**container, **more}], "volumes": [volume]}
        (self.folder / "pod.yaml").write_text(json.dumps({"kind": "Pod", "spec": spec}))

    def create(self, *names: str, **more: Any) -> list[NodeState]:
        return self.cluster.create([NodeRequest(name, 1, job="edt-1", user="ana", **more) for name in names])

    def state(self, name: str) -> NodeState | None:
        return next((each for each in self.cluster.nodes() if each.node == name), None)

    def until(self, name: str, state: str, reason: str = "", seconds: float = 60) -> NodeState:
        last: list[NodeState | None] = [None]

        def reached() -> bool:
            last[0] = found = self.state(name)
            return found is not None and found.state == state and reason in found.reason

        until(reached, seconds, f"{name} is {state} {reason!r}; last {last}: {self.describe()}")
        assert last[0] is not None
        return last[0]

    def gone(self, name: str) -> None:
        """End it, as the loop does, until nothing is left of it."""

        def is_gone() -> bool:
            found = self.state(name)
            if found is not None:
                self.cluster.end([name])
            return found is None

        until(is_gone, 100, f"nothing is left of {name}")

    def describe(self) -> str:
        return self.kubectl("get", "jobs,pods,events")

    def kubectl(self, *words: str) -> str:
        return self.kubernetes.kubectl(*words, namespace=self.namespace)

    def names(self, kind: str) -> list[str]:
        return self.kubectl("get", kind, "--selector=openedt.io/pool", "--output=name").split()

    def pod_of(self, name: str) -> dict[str, Any]:
        [pod] = json.loads(self.kubectl("get", "pods", f"--selector=openedt.io/node={name}", "--output=json"))["items"]
        return dict(pod)


@pytest.fixture
def nodes(kubernetes: Kubernetes, namespace: str, tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(kubernetes, namespace, tmp_path)
    yield nodes
    for cluster in nodes.clusters:
        cluster.close()


def test_a_node_comes_and_goes_with_all_that_belongs_to_it(nodes: Nodes) -> None:
    assert nodes.cluster.nodes() == []
    assert nodes.create("pool-1", "pool-2", queue="/lab/vision") == []
    nodes.until("pool-1", PoolState.RUNNING)
    nodes.until("pool-2", PoolState.RUNNING)
    labels = nodes.pod_of("pool-1")["metadata"]["labels"]
    shown = {name.removeprefix("openedt.io/"): value for name, value in labels.items() if "openedt.io" in name}
    assert shown["queue"] == "lab.vision" and shown["job"] == "edt-1" and shown["user"] == "ana"
    nodes.gone("pool-1")
    assert nodes.state("pool-2") == NodeState("pool-2", PoolState.RUNNING)
    nodes.cluster.end(["pool-1", "pool-2"])
    until(lambda: not any(nodes.names(kind) for kind in ("jobs", "pods", "secrets")), 60, "nothing is left")


def test_the_pod_gets_its_nodes_token_and_no_other_credential(nodes: Nodes) -> None:
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.RUNNING)
    pod = nodes.pod_of("pool-1")["metadata"]["name"]
    token = nodes.kubectl("exec", pod, "--", "cat", "/var/run/secrets/openedt.io/token")
    assert token == node_token("the join token", "pool-1")
    assert "serviceaccount" not in nodes.kubectl("exec", pod, "--", "ls", "/var/run/secrets")
    environ = dict(
        line.split("=", 1) for line in nodes.kubectl("exec", pod, "--", "env").splitlines() if line.startswith("EDT_")
    )
    assert environ["EDT_NAME"] == "pool-1" and environ["EDT_LEAVE_SECONDS"] == "4"
    assert environ["EDT_AGENT_HOST"] == nodes.pod_of("pool-1")["status"]["podIP"]
    assert token not in str(environ)


def test_what_is_created_twice_is_there_once(nodes: Nodes) -> None:
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.RUNNING)
    uid = nodes.pod_of("pool-1")["metadata"]["uid"]
    assert nodes.create("pool-1") == []
    again = nodes.connect()
    assert again.create([NodeRequest("pool-1", 1)]) == []
    assert again.nodes() == [NodeState("pool-1", PoolState.RUNNING)]
    assert nodes.pod_of("pool-1")["metadata"]["uid"] == uid
    nodes.kubectl("create", "job", "pool-9", f"--image={IMAGE}", "--", "sleep", "99")
    [refused] = nodes.create("pool-9")
    assert refused == NodeState("pool-9", PoolState.REFUSED, "there is another Job pool-9, which is not of this pool")


def test_a_pending_node_tells_the_schedulers_reason(nodes: Nodes) -> None:
    nodes.write_template(resources={"requests": {"memory": "9000Gi"}})
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.PENDING, "Insufficient memory")
    nodes.gone("pool-1")


@pytest.mark.extended
def test_a_pending_node_tells_that_its_image_cannot_be_had(nodes: Nodes) -> None:
    nodes.write_template(image="127.0.0.1:1/nothing:1")
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.PENDING, "127.0.0.1:1/nothing:1")
    assert nodes.create("pool-2", image="openedt-test/base:latest") == []
    assert nodes.state("pool-2") is not None
    nodes.until("pool-2", PoolState.RUNNING)  # in the image that the job has asked for


def test_a_quota_is_told_in_the_servers_words(nodes: Nodes) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}}
    nodes.kubernetes.apply({**quota, "spec": {"hard": {"pods": "0"}}}, namespace=nodes.namespace)
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.PENDING, "exceeded quota: quota")
    nodes.kubernetes.apply({**quota, "spec": {"hard": {"count/jobs.batch": "1"}}}, namespace=nodes.namespace)

    def refused() -> list[NodeState]:
        return nodes.create("pool-2")

    [state] = until(refused, 30, "the quota counts")
    assert state.state == PoolState.REFUSED and "exceeded quota: quota" in state.reason
    assert nodes.names("jobs") == ["job.batch/pool-1"]


def test_a_pod_that_kubernetes_calls_invalid_is_refused_with_the_reason(nodes: Nodes) -> None:
    nodes.write_template(resources={"limits": {"cpu": "-1"}})
    [state] = nodes.create("pool-1")
    assert state.state == PoolState.REFUSED and "spec.template.spec.containers[0].resources" in state.reason
    (nodes.folder / "pod.yaml").write_text("spec: 1")
    [state] = nodes.create("pool-1")
    assert state.state == PoolState.REFUSED and "pod.yaml: spec is 1; it takes a mapping" in state.reason


def test_running_out_of_memory_is_told_from_a_crash(nodes: Nodes) -> None:
    nodes.write_template("eat", resources={"limits": {"memory": "32Mi", "cpu": "1"}})
    nodes.create("pool-1")
    nodes.write_template("fail")
    nodes.create("pool-2")
    nodes.write_template("gone")
    nodes.create("pool-3")
    eaten = nodes.until("pool-1", PoolState.ENDED)
    assert eaten.oom and "OOMKilled" in eaten.reason
    failed = nodes.until("pool-2", PoolState.ENDED)
    assert (failed.reason, failed.oom) == ("Error: exit status 3", False)
    assert nodes.until("pool-3", PoolState.ENDED).reason == ""
    names = {each.node for each in nodes.cluster.nodes()}
    assert names == {"pool-1", "pool-2", "pool-3"}  # they are told of until they are removed


def test_a_deleted_pod_gets_its_grace_and_its_job_makes_no_other_node(nodes: Nodes) -> None:
    nodes.write_template(linger=3)
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.RUNNING)
    pod = nodes.pod_of("pool-1")["metadata"]["name"]
    nodes.kubectl("delete", "pod", pod, "--wait=false")
    assert nodes.state("pool-1") == NodeState("pool-1", PoolState.RUNNING)  # it has its grace, and works
    ended = nodes.until("pool-1", PoolState.ENDED)
    assert ended.reason in {"", "its pod was deleted"}
    nodes.gone("pool-1")


def test_while_the_api_server_is_away_that_is_what_is_said(nodes: Nodes) -> None:
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.RUNNING)
    changed = threading.Event()
    nodes.cluster.watch(changed.set)
    until(changed.is_set, 10, "the watch tells")
    nodes.kubernetes.signal_api(signal.SIGSTOP)
    try:
        with pytest.raises(ClusterAway, match=r"does not answer: .*timed out"):
            nodes.cluster.nodes()
    finally:
        nodes.kubernetes.signal_api(signal.SIGCONT)
    nodes.kubernetes.stop_api()
    try:
        with pytest.raises(ClusterAway, match="does not answer"):
            nodes.cluster.nodes()
        with pytest.raises(ClusterAway):
            nodes.create("pool-2")
        with pytest.raises(ClusterAway):
            nodes.cluster.end(["pool-1"])
    finally:
        nodes.kubernetes.start_api()
    assert nodes.cluster.nodes() == [NodeState("pool-1", PoolState.RUNNING)]
    until(lambda: nodes.create("pool-2") == [], 30, "it is asked for again")
    changed.clear()
    nodes.until("pool-2", PoolState.RUNNING)
    until(changed.is_set, 40, "the watch goes on")


@pytest.mark.extended
def test_all_nodes_go_with_their_owner(nodes: Nodes) -> None:
    nodes.kubectl("create", "configmap", "owner")
    nodes.cluster = nodes.connect(kubernetes_owner="v1/ConfigMap/owner")
    nodes.create("pool-1")
    nodes.until("pool-1", PoolState.RUNNING)
    nodes.kubectl("delete", "configmap", "owner")
    until(lambda: nodes.cluster.nodes() == [], 60, "all went with it")
    [refused] = nodes.create("pool-2")
    assert refused.reason == 'configmaps "owner" not found'


def test_first_pods_push_growth_out_and_growth_pushes_nobody_out(nodes: Nodes, kubernetes: Kubernetes) -> None:
    def priority(name: str, value: int, policy: str) -> dict[str, Any]:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        return {**kind, "value": value, "preemptionPolicy": policy}

    kubernetes.apply(priority("test-first", 1000, "PreemptLowerPriority"), priority("test-growth", -5, "Never"))
    cpus = json.loads(kubernetes.kubectl("get", "node", "node-1", "--output=json"))["status"]["allocatable"]["cpu"]
    nodes.write_template(resources={"requests": {"cpu": f"{int(cpus) * 700}m"}})  # there is room for one
    nodes.cluster = nodes.connect(
        kubernetes_priority_classes="test-first", kubernetes_growth_class="test-growth", kubernetes_grace_seconds="1"
    )
    nodes.create("pool-1", first=False)
    nodes.until("pool-1", PoolState.RUNNING)
    nodes.create("pool-2", first=False)
    nodes.until("pool-2", PoolState.PENDING, "Insufficient cpu")
    nodes.create("pool-3")
    nodes.until("pool-3", PoolState.RUNNING)
    nodes.until("pool-1", PoolState.ENDED)
    nodes.until("pool-2", PoolState.PENDING)


def test_a_provisioner_with_the_least_rights_works_and_says_what_it_may_not(nodes: Nodes, tmp_path: Path) -> None:
    roles: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "provisioner"}}
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete", "get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    subject = {"kind": "ServiceAccount", "name": "provisioner", "namespace": nodes.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "provisioner"}
    nodes.kubernetes.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "provisioner"}},
        {**roles, "kind": "Role", "rules": rules},
        {**roles, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference},
        namespace=nodes.namespace,
    )
    secret = ("get", "serviceaccount", "provisioner", "--output=jsonpath={.secrets[0].name}")
    until(lambda: nodes.kubectl(*secret), 20, "the account has its token")
    encoded = nodes.kubectl("get", "secret", nodes.kubectl(*secret), "--output=jsonpath={.data.token}")
    config = json.loads(nodes.kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": base64.b64decode(encoded).decode()}
    (tmp_path / "least").write_text(json.dumps(config))
    nodes.cluster = nodes.connect(kubernetes_config=str(tmp_path / "least"))
    assert nodes.create("pool-1") == []
    nodes.until("pool-1", PoolState.RUNNING)
    nodes.gone("pool-1")
    other = nodes.connect(kubernetes_config=str(tmp_path / "least"), kubernetes_namespace="default")
    with pytest.raises(
        ClusterAway, match=r'cannot list resource "jobs" in API group "batch" in the namespace "default"'
    ):
        other.nodes()


def test_without_credentials_it_says_which_setting(nodes: Nodes) -> None:
    with pytest.raises(BadSetting, match=r"EDT_KUBERNETES_CONFIG: .*nothing"):
        nodes.connect(kubernetes_config=str(nodes.folder / "nothing"))
    with pytest.raises(BadSetting, match="EDT_KUBERNETES_CONFIG"):
        nodes.connect(kubernetes_context="another")
