"""Nodes of pools as places where supervisors run: a pod of a real Kubernetes, a step of a real Slurm. The agent there
is this checkout's, and hears of its work from a test's small API."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edt_contract.pools import NodeRequest, node_token
from edt_provisioner.cluster import Cluster
from edt_provisioner.kubernetes import KubernetesCluster, KubernetesSettings
from edt_provisioner.settings import read_settings
from edt_provisioner.slurm import SlurmCluster, SlurmSettings, connect
from support.fake_api import JOIN_TOKEN
from support.kubernetes_cluster import Kubernetes
from support.nursery import RUNNERS, TESTS
from support.places import ROOT, Place
from support.slurm_cluster import SlurmOnThisMachine
from support.tagged import kill_bearers
from support.waiting import until

IMAGE = "openedt-test/base:latest"


class PoolPlace(Place):
    """A node that a cluster manager was asked for.

    Args:
        kind: ``kubernetes`` or ``slurm``.
        node: the node of the test, whose agent is nobody's child here.
        cluster: the cluster manager.
    """

    def __init__(self, kind: str, node: Any, cluster: Cluster) -> None:
        super().__init__(kind, node)
        self._cluster = cluster
        (node.home / "agent.out").touch()  # what the agent says, the cluster manager keeps

    def start(self, **environ: str) -> None:
        """Ask for the node, and wait until its agent has registered."""
        assert not environ, "a pool's nodes have the environment that its settings give"
        self.api.join_token = node_token(JOIN_TOKEN, self.node.name)
        refused = self._cluster.create([NodeRequest(self.node.name, slots=2, job="edt-1", user="ann")])
        assert not refused, refused
        until(lambda: self.api.registrations, 60, f"{self.node.name} has registered: {self._cluster.nodes()}")

    def close(self) -> None:
        self._cluster.end([self.node.name])
        self._cluster.close()
        kill_bearers(self.node.tag)


@contextmanager
def pod(node: Any, kubernetes: Kubernetes, folder: Path) -> Iterator[PoolPlace]:
    """A pod that shares the machine's network, so that it reaches the test's API."""
    namespace = kubernetes.new_namespace("place")
    template = folder / "pod.json"
    mounts = [str(folder), str(ROOT), *([sys.base_prefix] if sys.base_prefix != "/usr" else [])]
    environ = {"PYTHONPATH": f"{TESTS}:{RUNNERS}", "EDT_TAG": node.tag, "EDT_AGENT_POLL_SECONDS": "1"}
    container = {
        "name": "edt",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in environ.items()],
        "resources": {"requests": {"cpu": "10m"}},
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": f"v{n}", "mountPath": path} for n, path in enumerate(mounts)],
    }
    volumes = [{"name": f"v{n}", "hostPath": {"path": path}} for n, path in enumerate(mounts)]
    spec = {"containers": [container], "volumes": volumes, "hostNetwork": True}
    template.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": spec}))
    given = {
        "EDT_KUBERNETES_CONFIG": str(kubernetes.kubeconfig),
        "EDT_KUBERNETES_NAMESPACE": namespace,
        "EDT_KUBERNETES_POD_TEMPLATE": str(template),
        "EDT_KUBERNETES_PYTHON": sys.executable,
        "EDT_KUBERNETES_GRACE_SECONDS": "10",
    }
    with _environment({**_common(node), **given}):
        cluster = KubernetesCluster(read_settings(KubernetesSettings, {}))
    place = PoolPlace("kubernetes", node, cluster)
    try:
        yield place
    finally:
        place.close()
        kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


@contextmanager
def step(node: Any, slurm: SlurmOnThisMachine, folder: Path) -> Iterator[PoolPlace]:
    """A step of a Slurm job."""
    prologue = folder / "prologue.sh"
    lines = {"PYTHONPATH": f"{TESTS}:{RUNNERS}", "EDT_TAG": node.tag, "EDT_AGENT_POLL_SECONDS": "1"}
    lines |= {"EDT_AGENT_HOST": "127.0.0.1"}
    prologue.write_text("".join(f"export {name}={value}\n" for name, value in lines.items()))
    given = {
        "SLURM_CONF": str(slurm.conf),
        "EDT_SLURM_PROLOGUE": str(prologue),
        "EDT_SLURM_PYTHON": sys.executable,
        "EDT_SLURM_PARTITIONS": "low",
        "EDT_SLURM_CPUS": "4",
    }
    with _environment({**_common(node), **given}):
        settings = read_settings(SlurmSettings, {})
        cluster = SlurmCluster(settings, connect(settings))
    place = PoolPlace("slurm", node, cluster)
    try:
        yield place
    finally:
        place.close()


def _common(node: Any) -> dict[str, str]:
    return {
        "EDT_API": node.api.url,
        "EDT_HOME": str(node.home),
        "EDT_TOKEN_FILE": str(node.home / "join-token"),
        "EDT_POOL": node.name.rpartition("-")[0],
        "EDT_POOL_SLOTS": "2",
    }


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in before:
        if name.startswith(("EDT_", "SLURM_", "SBATCH_")):
            del os.environ[name]
    os.environ.update(given)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
