"""The control plane of deploy/kubernetes in a test's Kubernetes, from its own kustomize base.

What differs from a site's: images of this checkout, folders of this machine as volumes, addresses instead of names
(nothing resolves names there), small pods, and older API versions where the server has no newer ones.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import yaml

from support.cluster import EXECS, ROOT, eventually, run
from support.kubernetes_cluster import SERVICE_NETWORK, Kubernetes
from support.kubernetes_undo import TAG
from support.service_proxy import forget

NAMESPACE = "openedt"
IMAGES = ("api", "scheduler", "provisioner", "agent")
OWNERS = {"home": 10001, "data": 10001, "database": 999}
"""Folders that stand for volumes, and whose they are: nobody gives a folder of the machine to a pod's group."""
_RANGE = SERVICE_NETWORK.rpartition(".")[0]
ADDRESSES = {"openedt-api": f"{_RANGE}.50", "openedt-postgres": f"{_RANGE}.51", "openedt-valkey": f"{_RANGE}.52"}


class ControlPlane:
    """Applied on enter. It goes with the Kubernetes that it is in."""

    def __init__(self, kubernetes: Kubernetes, folder: Path) -> None:
        self.kubernetes, self.folder = kubernetes, folder
        self.url = f"http://{ADDRESSES['openedt-api']}:9280"
        self.api = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        self._proxy: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ControlPlane:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.api.close()
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait(30)
        forget(SERVICE_NETWORK)

    def _start(self) -> None:
        self._proxy = subprocess.Popen(
            [sys.executable, "-m", "support.service_proxy", self.kubernetes.kubeconfig],
            env={**os.environ, "EDT_TAG": TAG, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, owner in OWNERS.items():
            (self.folder / name).mkdir(parents=True)
            os.chown(self.folder / name, owner, owner)
        deploy = self.folder / "deploy"
        shutil.copytree(ROOT / "deploy" / "kubernetes", deploy, ignore=shutil.ignore_patterns("*-password", "*-token"))
        (deploy / "secrets" / "secret-key").unlink(missing_ok=True)
        run(sys.executable, ROOT / "deploy" / "prepare.py", "--kubernetes", deploy / "secrets")
        self.kubernetes.kubectl("apply", f"--kustomize={deploy / 'secrets'}")
        overlay = deploy / "overlays" / "test"
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text(json.dumps(self._overlay()))
        pod = yaml.safe_load((deploy / "base" / "training-pod.yaml").read_text())
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "200m", "memory": "64Mi"}}
        (overlay / "pod.yaml").write_text(json.dumps(pod))
        (overlay / "volumes.yaml").write_text("\n---\n".join(map(json.dumps, self._volumes())))
        self.kubernetes.kubectl("apply", f"--kustomize={overlay}")
        self.api.auth = ("admin", (deploy / "secrets" / "admin-password").read_text().strip())

    def _overlay(self) -> dict[str, Any]:
        database, broker = (f"{ADDRESSES[name]}" for name in ("openedt-postgres", "openedt-valkey"))
        settings = {
            "EDT_DATABASE_URL": f"postgresql://edt@{database}:5432/edt",
            "EDT_BROKER_URL": f"redis://{broker}:6379/0",
            "EDT_NODES_BROKER_URL": f"redis://{broker}:6379/0",
            "EDT_API": self.url,
            "EDT_KUBERNETES_IMAGE_PYTORCH": "openedt/agent:test",
            "EDT_GRACE_SECONDS": "10",
            "EDT_POOL_IDLE_SECONDS": "10",
            "EDT_MEASURED_SPEEDS": "false",  # tests' scripts decide how long steps take
        }
        agent = {"EDT_LEAVE_SECONDS": "30", "EDT_CPU_SLOTS": "2", "EDT_DEVICES": "cpu", "EDT_WARM": "0"}
        grace = "terminationGracePeriodSeconds"
        images = [{"name": f"openedt/{name}", "newTag": "test"} for name in IMAGES]
        images += [{"name": "postgres", "newName": "openedt-test/postgres", "newTag": "latest"}]
        images += [{"name": "valkey/valkey", "newName": "openedt-test/valkey", "newTag": "latest"}]
        pod = "/spec/template/spec"
        local = _add(f"{pod}/containers/0/imagePullPolicy", "IfNotPresent")
        patches = [
            *(_patch("Service", [_add("/spec/clusterIP", address)], name) for name, address in ADDRESSES.items()),
            _patch("Deployment|StatefulSet|Job", [local]),
            # Beside a pod that ends there has to be room for the one that replaces it, or a training pod is preempted.
            _patch("Deployment", [_replace(f"{pod}/containers/0/resources/requests/cpu", "100m")]),
            _patch("PersistentVolumeClaim", [_add("/spec/storageClassName", "")]),
            _patch("PersistentVolumeClaim", [_add("/spec/volumeName", "home")], "openedt-home"),
            _patch("PersistentVolumeClaim", [_add("/spec/volumeName", "data")], "openedt-data"),
            _patch("StatefulSet", [_add("/spec/volumeClaimTemplates/0/spec/volumeName", "database")]),
            _patch("DaemonSet", [*_environ(f"{pod}/containers/0", agent), _replace(f"{pod}/{grace}", 40)]),
            _patch(
                "DaemonSet", [_replace(f"{pod}/containers/0/resources/requests", {"cpu": "200m", "memory": "64Mi"})]
            ),
        ]
        if "policy/v1" not in self.kubernetes.kubectl("api-versions").split():
            patches.append(_patch("PodDisruptionBudget", [_replace("/apiVersion", "policy/v1beta1")]))
        return {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": NAMESPACE,
            "resources": ["../../base", "volumes.yaml"],
            "components": ["../../components/agents"],  # which run nowhere before a machine has their label
            "images": images,
            "configMapGenerator": [
                {
                    "name": "openedt-settings",
                    "behavior": "merge",
                    "literals": [f"{name}={value}" for name, value in settings.items()],
                },
                {"name": "openedt-training-pod", "behavior": "replace", "files": ["pod.yaml"]},
            ],
            "patches": patches,
        }

    def _volumes(self) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                    "capacity": {"storage": "100Gi"},
                    "hostPath": {"path": str(self.folder / name), "type": "Directory"},
                },
            }
            for name in OWNERS
        ]

    # ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────
    def get(self, kind: str, name: str = "", /, **labels: str) -> Any:
        """An object, or the list of those of a kind that have these labels."""
        words = [name] if name else []
        if labels:
            words.append("--selector=" + ",".join(f"app.kubernetes.io/{key}={value}" for key, value in labels.items()))
        found = json.loads(self.kubernetes.kubectl("get", kind, *words, "--output=json", namespace=NAMESPACE))
        return found if name else found["items"]

    def ready(self, component: str) -> list[str]:
        """Names of a component's pods that are ready and not being deleted."""
        return [
            pod["metadata"]["name"]
            for pod in self.get("pods", component=component)
            if "deletionTimestamp" not in pod["metadata"]
            and {"type": "Ready", "status": "True"}.items()
            <= next((c for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"), {}).items()
        ]

    def log(self, pod: str) -> str:
        return str(self.kubernetes.kubectl("logs", pod, namespace=NAMESPACE))

    def delete_pod(self, pod: str) -> None:
        self.kubernetes.kubectl("delete", "pod", pod, "--wait=false", namespace=NAMESPACE)

    def story(self) -> str:
        """What a person would look at when something does not come up."""
        kubectl = self.kubernetes.kubectl
        parts = [kubectl("get", "pods,jobs", "--output=wide", namespace=NAMESPACE)]
        parts.append(kubectl("get", "events", "--sort-by=.lastTimestamp", namespace=NAMESPACE)[-4000:])
        for pod in self.get("pods"):
            name = pod["metadata"]["name"]
            parts.append(f"--- {name}\n{self._asked('logs', name, '--all-containers', '--tail=15')}")
        return "\n".join(parts)

    def may(self, verb: str, resource: str, who: str) -> bool:
        """Whether Kubernetes lets somebody do that in the namespace."""
        return self._asked("auth", "can-i", verb, resource, who).strip() == "yes"

    def _asked(self, *words: str) -> str:
        """What kubectl said, whether it failed or not."""
        command = ("kubectl", f"--kubeconfig={self.kubernetes.kubeconfig}", f"--namespace={NAMESPACE}", *words)
        return run(*command, check=False)

    # ── the platform in it ────────────────────────────────────────────────────────────────────────────────────────
    def serves(self) -> bool:
        try:
            return self.api.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def log_in(self) -> None:
        """A password is made to be slow to check, so it is shown once."""
        self.api.headers["X-Auth-Token"] = str(self.ask("/auth/v1/logon")["accessToken"])
        self.api.auth = httpx.Auth()

    def ask(self, path: str, **params: Any) -> Any:
        """What the API answers. It is asked again where a pod of it has just gone."""
        for attempt in itertools.count():
            try:
                answer = self.api.get(path, params=params)
                answer.raise_for_status()
                return answer.json()
            except httpx.HTTPError:
                if attempt == 20:
                    raise
                time.sleep(0.5)
        raise AssertionError

    def node(self) -> dict[str, Any]:
        """The only one that there is."""
        [found] = self.ask("/api/v1/nodes")["items"]
        return dict(found)

    def submit(self, script: Path, options: str, arguments: str) -> str:
        """POST a script as WMLA's clients do; its exec id."""
        args = f"--exec-start edtPyTorch --model-main {script.name} {options} {arguments}"
        archive = self.folder / "model.tar"
        run("tar", "-cf", archive, "-C", script.parent, script.name)
        answer = self.api.post(EXECS, params={"args": args}, files={"file": ("model.tar", archive.read_bytes())})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait. What does not come is told with what a person would look at."""
        try:
            eventually(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None

    def until_up(self) -> None:
        """Wait until two of API and scheduler, and one of everything else are ready."""
        wanted = {"postgres": 1, "valkey": 1, "api": 2, "scheduler": 2, "provisioner": 1}
        self.until(lambda: all(len(self.ready(name)) == count for name, count in wanted.items()), "all are ready", 200)


def _patch(kind: str, changes: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    return {"target": {"kind": kind, **({"name": name} if name else {})}, "patch": json.dumps(changes)}


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _environ(container: str, variables: dict[str, str]) -> list[dict[str, Any]]:
    """Of two variables of one name the later one counts."""
    return [_add(f"{container}/env/-", {"name": name, "value": value}) for name, value in variables.items()]


def _replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}
