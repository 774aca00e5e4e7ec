"""The manifests of deploy/kubernetes, by kubectl without a cluster: what they hold, and that a current Kubernetes takes
it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from edt_contract.pools import NodeRequest
from edt_provisioner.kubernetes import KubernetesSettings, manifest
from edt_provisioner.kubernetes.template import read_template
from edt_provisioner.settings import read_settings
from support.kubernetes_schema import faults, faults_of

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
KUSTOMIZATIONS = ("base", *sorted(f"overlays/{each.name}" for each in (KUBERNETES / "overlays").iterdir()))
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")
UNPROBED = {("openedt-agent", "livenessProbe"), ("openedt-migrate", "*")}
"""A restart of an agent would end trainings that go on while the API is away; a Job ends by itself."""

pytestmark = pytest.mark.kubernetes  # for its kubectl


@cache
def built(name: str) -> tuple[dict[str, Any], ...]:
    """All objects that kustomize makes."""
    command = ["kubectl", "kustomize", str(KUBERNETES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "kustomize warns of what it is going to remove"
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(name: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in built(name) if each["kind"] in kinds]


def named(name: str, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in of_kind(name, kind)}


def pods(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of each workload, and the specification of its pods."""
    for each in of_kind(name, *WORKLOADS):
        yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def training_pod(name: str) -> dict[str, Any]:
    """The template of the pods that the provisioner asks for."""
    [found] = [each for key, each in named(name, "ConfigMap").items() if key.startswith("openedt-training-pod")]
    return dict(yaml.safe_load(found["data"]["pod.yaml"]))


def all_pods(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [*pods(name), ("training", training_pod(name)["spec"])]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


everywhere = pytest.mark.parametrize("name", KUSTOMIZATIONS)


@everywhere
def test_a_current_kubernetes_knows_every_kind_and_field(name: str) -> None:
    assert [fault for each in built(name) for fault in faults(each)] == []
    assert faults_of("V1PodTemplateSpec", training_pod(name), "training pod") == []


def test_the_recorded_schema_tells_what_would_be_refused() -> None:
    [budget] = [each for each in of_kind("base", "PodDisruptionBudget") if each["metadata"]["name"] == "openedt-api"]
    assert faults({**budget, "apiVersion": "policy/v1beta1"}) != []
    assert faults({**budget, "spec": {**budget["spec"], "minReady": 1}}) == [
        "PodDisruptionBudget.spec: there is no field minReady"
    ]
    template = training_pod("base")
    template["spec"]["containers"][0].pop("name")
    template["spec"]["terminationGracePeriodSeconds"] = "120"
    assert sorted(faults_of("V1PodTemplateSpec", template, "pod")) == [
        "pod.spec.containers[0]: name is required",
        "pod.spec.terminationGracePeriodSeconds: '120' is no int",
    ]


@everywhere
def test_the_provisioner_takes_its_settings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [settings] = [each["data"] for key, each in named(name, "ConfigMap").items() if key.startswith("openedt-settings")]
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(training_pod(name)))
    for key, value in {**settings, "EDT_KUBERNETES_POD_TEMPLATE": str(tmp_path / "pod.yaml")}.items():
        monkeypatch.setenv(key, value)
    given = read_settings(KubernetesSettings, {})
    job = manifest.job(
        NodeRequest("kubernetes-1", 1, first=False), given, read_template(tmp_path / "pod.yaml", given.home)
    )
    assert faults(job) == []
    classes, pod = named(name, "PriorityClass"), job["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "openedt-growth" and given.kubernetes_priority_classes[0] in classes
    assert given.kubernetes_owner is not None and given.kubernetes_owner[2] in named(name, "ServiceAccount")
    paths = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {str(given.home.parent), str(given.data_fs)} < paths


@everywhere
def test_no_manifest_holds_a_secret(name: str) -> None:
    assert of_kind(name, "Secret") == []
    variables = [
        each for _, pod in all_pods(name) for container in containers(pod) for each in container.get("env", ())
    ]
    assert [each["name"] for each in variables if each["name"].endswith(("PASSWORD", "TOKEN", "KEY"))] == []


def test_the_secrets_that_pods_mount_are_those_that_are_made() -> None:
    kustomization = yaml.safe_load((KUBERNETES / "secrets" / "kustomization.yaml").read_text())
    made = {each["name"]: set(each["files"]) for each in kustomization["secretGenerator"]}
    assert made.keys() == {secret for name in KUSTOMIZATIONS for _, pod in pods(name) for secret in mounted(pod)}
    files = set().union(*made.values())
    named_files = {
        Path(each["value"]).name
        for name in KUSTOMIZATIONS
        for _, pod in pods(name)
        for container in containers(pod)
        for each in container.get("env", ())
        if str(each.get("value", "")).startswith("/run/secrets/")
    }
    assert named_files == files


def mounted(pod: dict[str, Any]) -> set[str]:
    """Names of the Secrets that a pod can read."""
    found = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    projected = [source for volume in pod["volumes"] for source in volume.get("projected", {}).get("sources", ())]
    return found | {source["secret"]["name"] for source in projected}


def test_each_workload_reads_the_secrets_that_it_needs_and_no_others() -> None:
    assert {
        name: {each.removeprefix("openedt-") for each in mounted(pod)} for name, pod in all_pods("overlays/agents")
    } == {
        "openedt-api": {"postgres", "valkey", "secret-key", "admin", "join-token"},
        "openedt-scheduler": {"postgres", "valkey", "secret-key"},
        "openedt-migrate": {"postgres", "secret-key"},
        "openedt-postgres": {"postgres"},
        "openedt-valkey": {"valkey"},
        "openedt-provisioner": {"join-token"},
        "openedt-agent": {"join-token"},
        "training": set(),
    }


@everywhere
def test_only_the_provisioner_may_use_kubernetes_and_no_more_than_it_needs(name: str) -> None:
    accounts = named(name, "ServiceAccount")
    used = {workload: pod["serviceAccountName"] for workload, pod in all_pods(name)}
    assert used == {workload: workload for workload in used if workload != "training"} | {
        "training": "openedt-training"
    }
    assert set(used.values()) == accounts.keys()
    assert not any(account["automountServiceAccountToken"] for account in accounts.values())
    assert [workload for workload, pod in all_pods(name) if pod["automountServiceAccountToken"]] == [
        "openedt-provisioner"
    ]

    assert of_kind(name, "ClusterRole", "ClusterRoleBinding") == []
    [role], [binding] = of_kind(name, "Role"), of_kind(name, "RoleBinding")
    assert [(subject["kind"], subject["name"]) for subject in binding["subjects"]] == [
        ("ServiceAccount", "openedt-provisioner")
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    } == {
        *(("batch", "jobs", verb) for verb in ("create", "delete", "get", "list")),
        *(("", "pods", verb) for verb in ("delete", "list", "watch")),
        ("", "events", "list"),
        ("", "secrets", "create"),
        ("", "serviceaccounts", "get"),
    }


@everywhere
def test_every_container_is_probed_limited_and_confined(name: str) -> None:
    for workload, pod in pods(name):
        for container in pod["containers"]:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                excused = {(workload, probe), (workload, "*")} & UNPROBED
                assert (probe in container) == (not excused), (workload, probe)
    for workload, pod in all_pods(name):
        inside = pod["securityContext"]
        assert inside["runAsNonRoot"] and inside["runAsUser"] > 0 and inside["runAsGroup"] > 0, workload
        assert inside["seccompProfile"] == {"type": "RuntimeDefault"}, workload
        assert pod["enableServiceLinks"] is False, f"{workload}: EDT_ variables could come from names of Services"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), workload
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"secret", "projected", "configMap", "emptyDir", "persistentVolumeClaim"}, workload
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True, workload
            assert context["capabilities"] == {"drop": ["ALL"]}, workload
            asked = {"memory"} if workload == "training" else {"cpu", "memory"}  # what slots need, others know
            assert container["resources"]["requests"].keys() == asked, workload
            if workload != "openedt-agent":  # whose trainings may have all of their machine
                assert "memory" in container["resources"]["limits"], workload


@everywhere
def test_who_may_connect_to_database_and_broker(name: str) -> None:
    policies = named(name, "NetworkPolicy")
    nobody = policies["openedt-nobody"]["spec"]
    assert nobody == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if name != "overlays/own-database":
        assert who(policies["openedt-postgres"]) == {"api", "scheduler", "migrate"}
        assert who(policies["openedt-valkey"]) == {"api", "scheduler", "training", "agent"}
    assert who(policies["openedt-api"]) == {
        "training",
        "agent",
        "provisioner",
        "namespaces openedt.io/reaches-api=true",
    }
    workloads = {each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
                 for each in of_kind(name, *WORKLOADS)}  # fmt: skip
    components = {value for policy in policies.values() for value in components_of(policy["spec"]["podSelector"])}
    assert workloads <= components, "each has a policy of its own"
    assert training_pod(name)["metadata"]["labels"]["app.kubernetes.io/component"] in components


def components_of(selector: dict[str, Any]) -> set[str]:
    labels = selector.get("matchLabels", {})
    found = {labels["app.kubernetes.io/component"]} if "app.kubernetes.io/component" in labels else set()
    return found.union(*(each["values"] for each in selector.get("matchExpressions", ())))


def who(policy: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for rule in policy["spec"]["ingress"]:
        for source in rule["from"]:
            if "podSelector" in source:
                found |= components_of(source["podSelector"])
            else:
                labels = source["namespaceSelector"]["matchLabels"]
                found |= {f"namespaces {key}={value}" for key, value in labels.items()}
    return found


@everywhere
def test_growth_pushes_nobody_out_and_comes_after_everybody(name: str) -> None:
    classes = named(name, "PriorityClass")
    growth = classes["openedt-growth"]
    assert growth["preemptionPolicy"] == "Never" and growth["value"] < 0
    assert growth["value"] < classes["openedt-training"]["value"] < classes["openedt-control"]["value"]
    assert not any(each.get("globalDefault") for each in classes.values())


def test_two_of_api_and_scheduler_share_no_machine_and_one_of_them_always_stays() -> None:
    deployments, budgets = named("base", "Deployment"), named("base", "PodDisruptionBudget")
    for name in ("openedt-api", "openedt-scheduler"):
        spec = deployments[name]["spec"]
        [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spec["replicas"] == 2 and spread["topologyKey"] == "kubernetes.io/hostname"
        assert budgets[name]["spec"]["minAvailable"] == 1
        assert (
            budgets[name]["spec"]["selector"]
            == spec["selector"]
            == {"matchLabels": spread["labelSelector"]["matchLabels"]}
        )
    assert deployments["openedt-provisioner"]["spec"]["replicas"] == 1
    assert deployments["openedt-provisioner"]["spec"]["strategy"] == {"type": "Recreate"}


def test_one_machine_needs_no_volume_that_many_can_write() -> None:
    claims = of_kind("overlays/single-node", "PersistentVolumeClaim")
    assert {mode for claim in claims for mode in claim["spec"]["accessModes"]} == {"ReadWriteOnce"}
    deployments = named("overlays/single-node", "Deployment").values()
    assert {each["spec"]["replicas"] for each in deployments} == {1}
    assert of_kind("overlays/single-node", "PodDisruptionBudget") == []  # one of one would forbid to drain the machine


def test_ones_own_database_leaves_nothing_of_ours() -> None:
    names = {each["metadata"]["name"] for each in built("overlays/own-database")}
    assert not any("postgres" in name or "valkey" in name for name in names)
    [settings] = [
        each["data"]
        for name, each in named("overlays/own-database", "ConfigMap").items()
        if name.startswith("openedt-settings")
    ]
    assert settings["EDT_DATABASE_URL"] == "postgresql://edt@postgres.example.com:5432/edt"
    assert settings["EDT_HOME"] == "/srv/openedt/home"


def test_agents_run_on_machines_that_are_given_to_them_and_have_time_to_leave() -> None:
    [agents] = of_kind("overlays/agents", "DaemonSet")
    pod = agents["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"openedt.io/dedicated": "true"}
    [toleration] = pod["tolerations"]
    assert (toleration["key"], toleration["value"], toleration["effect"]) == (
        "openedt.io/dedicated",
        "true",
        "NoSchedule",
    )
    environ = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] == int(environ["EDT_LEAVE_SECONDS"]) + 30
    assert agents["spec"]["updateStrategy"] == {"type": "OnDelete"}  # another image touches no training
