"""Pods of a test's Kubernetes that are nodes of a platform on this machine: agents of this checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from support.journey import platform_in
from support.kubernetes_cluster import Kubernetes
from support.nursery import RUNNERS, TESTS
from support.places import ROOT
from support.pools import Provisioner
from support.running_platform import Platform

AGENT_IMAGE = "openedt/agent:test"
"""The product's. It sees this checkout's packages in place of its own."""
BASE_IMAGE = "openedt-test/base:latest"
"""Debian and Python alone, small enough for a second node. It sees this checkout and its virtual environment."""
_INSIDE = "/opt/openedt/lib/python3.11/site-packages"
_PACKAGES = ("callbacks", "edt_agent", "edt_contract", "edt_runner", "emetrics", "fabric_model", "openedt", "pyedt")


def reachable_platform(folder: Path, kubernetes: Kubernetes, **environ: str) -> Platform:
    """A platform with one slot of its own, which pods reach: all growth is over pods."""
    here = {"EDT_HOST": "0.0.0.0", "EDT_AGENT_HOST": kubernetes.address, "GLOO_SOCKET_IFNAME": ""}  # noqa: S104
    return platform_in(folder, 1, one_core=True, **{**here, **environ})


class PodPool(Provisioner):
    """A provisioner of Kubernetes beside a platform, in a namespace of its own.

    Args:
        platform: a ``reachable_platform``.
        kubernetes: the Kubernetes.
        image: ``AGENT_IMAGE`` or ``BASE_IMAGE``.
        environ: further settings.
    """

    def __init__(self, platform: Platform, kubernetes: Kubernetes, image: str = AGENT_IMAGE, **environ: str) -> None:
        self.kubernetes, self.namespace = kubernetes, kubernetes.new_namespace("pool")
        template = platform.folder / "pod.json"
        template.write_text(json.dumps(_template(platform, image)))
        settings = {
            "EDT_NODE_API": f"http://{kubernetes.address}:{platform.port}",
            "EDT_KUBERNETES_CONFIG": str(kubernetes.kubeconfig),
            "EDT_KUBERNETES_NAMESPACE": self.namespace,
            "EDT_KUBERNETES_POD_TEMPLATE": str(template),
            "EDT_KUBERNETES_PYTHON": "python" if image == AGENT_IMAGE else sys.executable,
            "EDT_KUBERNETES_GRACE_SECONDS": "30",
            "EDT_KUBERNETES_REQUEST_SECONDS": "3",
        }
        super().__init__(platform, "kubernetes", **{**settings, **environ})
        self._most = int(environ.get("EDT_POOL_MAX_NODES", "3"))

    def __enter__(self) -> PodPool:
        super().__enter__()
        self.set(max_nodes=self._most)  # a test before this one has set another number
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            sys.stderr.write(
                f"--- what Kubernetes says ---\n{self.kubectl('get', 'jobs,pods,events', '--output=wide')}\n"
            )
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.kubernetes.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *words: str) -> str:
        return self.kubernetes.kubectl(*words, namespace=self.namespace)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Node to its pod."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        # An old server makes another pod when one is deleted; the node is the first.
        found.sort(key=lambda each: each["metadata"]["creationTimestamp"], reverse=True)
        return {each["metadata"]["labels"]["openedt.io/node"]: each for each in found}

    def pod(self, node: str) -> str:
        """The name of a node's pod."""
        return str(self.pods()[node]["metadata"]["name"])

    def nodes_on(self, place: str) -> list[str]:
        """The nodes that are there and whose pod is on this Kubernetes node."""
        pods = self.pods()
        return [node for node in self.nodes() if node in pods and pods[node]["spec"].get("nodeName") == place]

    def kill(self, node: str) -> None:
        """SIGKILL to all of a node's processes, as a machine's end would be. Its Kubernetes node is node-1."""
        [status] = self.pods()[node]["status"]["containerStatuses"]
        container = str(status["containerID"]).removeprefix("docker://")
        subprocess.run(["docker", "kill", container], check=True, capture_output=True, timeout=60)


def _template(platform: Platform, image: str) -> dict[str, Any]:
    mounts = {str(platform.folder): str(platform.folder), str(TESTS): str(TESTS)}
    if image == AGENT_IMAGE:
        mounts |= {f"{RUNNERS}/{name}": f"{_INSIDE}/{name}" for name in _PACKAGES}
    else:
        mounts |= {place: place for place in {str(ROOT), sys.base_prefix} if place != "/usr"}
    names = {source: f"v{number}" for number, source in enumerate(mounts)}
    environ = {"PYTHONPATH": f"{TESTS}:{RUNNERS}" if image == BASE_IMAGE else str(TESTS), "EDT_TAG": platform.tag}
    environ["EDT_AGENT_POLL_SECONDS"] = "1"
    container = {
        "name": "edt",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in environ.items()],
        "resources": {"requests": {"cpu": "10m"}},
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [
            {"name": names[source], "mountPath": target, "readOnly": source != str(platform.folder)}
            for source, target in mounts.items()
        ],
    }
    volumes = [{"name": name, "hostPath": {"path": source}} for source, name in names.items()]
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container], "volumes": volumes}}
