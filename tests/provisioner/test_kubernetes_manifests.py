"""What the provisioner asks Kubernetes for: the administrator's pod and what OpenEDT needs, valid today."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edt_contract.pools import NodeRequest
from edt_provisioner.errors import BadSetting
from edt_provisioner.kubernetes import manifest
from edt_provisioner.kubernetes.labels import label_value, queue_label
from edt_provisioner.kubernetes.settings import KubernetesSettings, queue_name
from edt_provisioner.kubernetes.template import merged, read_template
from edt_provisioner.settings import read_settings
from support.kubernetes_schema import faults

TEMPLATE = """
apiVersion: v1
kind: Pod
metadata:
  name: the Job chooses another one
  labels: {team: vision, openedt.io/pool: mine}
  annotations: {example.org/note: kept}
spec:
  restartPolicy: Always
  priorityClassName: of-the-template
  nodeSelector: {accelerator: a100}
  tolerations: [{key: gpu, operator: Exists}]
  securityContext: {runAsNonRoot: true, fsGroup: 10001}
  initContainers: [{name: first, image: busybox}]
  containers:
  - {name: logs, image: example.org/logs}
  - name: edt
    image: example.org/agent:1
    command: [sleep]
    args: [infinity]
    env: [{name: HTTP_PROXY, value: "http://proxy"}, {name: EDT_NAME, value: mine}]
    resources: {limits: {memory: 8Gi}}
    volumeMounts: [{name: home, mountPath: /srv}]
  volumes: [{name: home, persistentVolumeClaim: {claimName: openedt}}]
"""
REQUEST = NodeRequest(
    "kubernetes-7", slots=2, job="edt-12", user="ana@example.org", queue="/lab/vision", framework="pytorch", priority=3
)
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "kubernetes-7", "uid": "1-2-3"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_text(TEMPLATE)
    return path


def settings(path: Path, **more: str) -> KubernetesSettings:
    given = {"api": "http://api:9280", "home": "/srv/openedt", "kubernetes_pod_template": str(path), **more}
    return read_settings(KubernetesSettings, given)


def job_of(path: Path, request: NodeRequest = REQUEST, *, pod_groups: bool = False, **more: str) -> dict[str, Any]:
    chosen = settings(path, **more)
    job = manifest.job(request, chosen, read_template(path, chosen.home), pod_groups=pod_groups)
    assert faults(job) == []
    return job


def pod_of(path: Path, request: NodeRequest = REQUEST, **more: str) -> dict[str, Any]:
    pod: dict[str, Any] = job_of(path, request, **more)["spec"]["template"]
    return pod


def agent_of(path: Path, request: NodeRequest = REQUEST, **more: str) -> dict[str, Any]:
    return next(each for each in pod_of(path, request, **more)["spec"]["containers"] if each["name"] == "edt")


def environ_of(path: Path, request: NodeRequest = REQUEST, **more: str) -> Mapping[str, str]:
    return {each["name"]: each.get("value", "") for each in agent_of(path, request, **more)["env"]}


def test_a_node_is_a_job_of_one_pod_that_is_never_started_again(path: Path) -> None:
    job = job_of(path)
    assert job["metadata"]["name"] == "kubernetes-7"
    assert (job["spec"]["parallelism"], job["spec"]["completions"], job["spec"]["backoffLimit"]) == (1, 1, 0)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_what_the_administrator_says_of_the_pod_stays(path: Path) -> None:
    pod = pod_of(path)
    assert pod["spec"]["nodeSelector"] == {"accelerator": "a100"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "fsGroup": 10001}
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["first"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["logs", "edt"]
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"]["example.org/note"] == "kept"
    agent = agent_of(path)
    assert agent["image"] == "example.org/agent:1" and agent["resources"]["limits"] == {"memory": "8Gi"}
    assert {"name": "home", "mountPath": "/srv"} in agent["volumeMounts"]
    assert environ_of(path)["HTTP_PROXY"] == "http://proxy"


def test_what_the_agent_needs_wins_over_the_template(path: Path) -> None:
    agent, pod = agent_of(path), pod_of(path)
    assert agent["command"] == ["python", "-P", "-m", "edt_agent.temporary"] and agent["args"] == []
    assert pod["metadata"]["labels"]["openedt.io/pool"] == "kubernetes"
    environ = environ_of(path)
    assert environ["EDT_NAME"] == "kubernetes-7" and environ["EDT_TEMPORARY"] == "true"
    assert environ["EDT_HOME"] == "/srv/openedt" and environ["EDT_API"] == "http://api:9280"
    assert (environ["EDT_DEVICES"], environ["EDT_CPU_SLOTS"]) == ("cpu", "2")
    assert [each["name"] for each in agent["env"]].count("EDT_NAME") == 1


def test_the_token_is_a_file_and_no_variable(path: Path) -> None:
    secret = manifest.secret(REQUEST, "a node's token", OWNER, settings(path))
    assert faults(secret) == []
    assert base64.b64decode(secret["data"]["token"]) == b"a node's token"
    assert secret["metadata"]["ownerReferences"] == [OWNER]
    assert secret["metadata"]["name"] == "kubernetes-7"
    environ, pod = environ_of(path), pod_of(path)
    [volume] = [each for each in pod["spec"]["volumes"] if "secret" in each]
    [mount] = [each for each in agent_of(path)["volumeMounts"] if each["name"] == volume["name"]]
    assert environ["EDT_TOKEN_FILE"] == f"{mount['mountPath']}/token" and mount["readOnly"]
    assert volume["secret"]["secretName"] == "kubernetes-7"
    assert "a node's token" not in str(job_of(path))


def test_a_users_code_gets_no_access_to_kubernetes_unless_the_template_says_so(path: Path) -> None:
    assert pod_of(path)["spec"]["automountServiceAccountToken"] is False
    path.write_text(TEMPLATE.replace("  restartPolicy: Always", "  automountServiceAccountToken: true"))
    assert pod_of(path)["spec"]["automountServiceAccountToken"] is True


def test_a_slot_is_a_gpu_or_a_core_where_the_template_does_not_say(path: Path) -> None:
    assert agent_of(path)["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}}
    gpus = agent_of(path, pool_device="gpu")
    assert gpus["resources"] == {"limits": {"memory": "8Gi", "nvidia.com/gpu": "2"}}
    others = agent_of(path, pool_device="gpu", kubernetes_gpu_resource="amd.com/gpu")
    assert others["resources"]["limits"]["amd.com/gpu"] == "2"
    path.write_text(TEMPLATE.replace("{memory: 8Gi}", '{cpu: "12"}'))
    assert agent_of(path)["resources"] == {"limits": {"cpu": "12"}}


def test_the_image_is_the_jobs_then_its_frameworks_then_the_templates(path: Path) -> None:
    mine = NodeRequest("n", 1, image="example.org/mine:2")
    keras = NodeRequest("n", 1, framework="tensorflow")
    assert agent_of(path, mine)["image"] == "example.org/mine:2"
    assert agent_of(path, mine, kubernetes_job_images="false")["image"] == "example.org/agent:1"
    assert agent_of(path, keras, kubernetes_image_tensorflow="tf:3")["image"] == "tf:3"
    assert agent_of(path, REQUEST, kubernetes_image_tensorflow="tf:3")["image"] == "example.org/agent:1"


@pytest.mark.parametrize(("grace", "leave"), [("0", "0"), ("1", "0"), ("30", "27"), ("600", "585")])
def test_the_agent_leaves_within_the_grace_less_a_margin(path: Path, grace: str, leave: str) -> None:
    assert pod_of(path, kubernetes_grace_seconds=grace)["spec"]["terminationGracePeriodSeconds"] == int(grace)
    assert environ_of(path, kubernetes_grace_seconds=grace)["EDT_LEAVE_SECONDS"] == leave


def test_the_grace_is_the_templates_or_two_minutes(path: Path) -> None:
    assert environ_of(path)["EDT_LEAVE_SECONDS"] == "108"
    path.write_text(TEMPLATE.replace("  restartPolicy: Always", "  terminationGracePeriodSeconds: 40"))
    assert environ_of(path)["EDT_LEAVE_SECONDS"] == "36"


def test_first_pods_have_the_jobs_priority_and_growth_a_class_of_its_own(path: Path) -> None:
    def priority(request: NodeRequest, **more: str) -> str:
        return str(pod_of(path, request, **more)["spec"]["priorityClassName"])

    first, growth = NodeRequest("n", 1, priority=4), NodeRequest("n", 1, priority=4, first=False)
    both = {"kubernetes_priority_classes": "1=low,4=high,9=higher", "kubernetes_growth_class": "growth"}
    assert (priority(first, **both), priority(growth, **both)) == ("high", "growth")
    assert priority(NodeRequest("n", 1, priority=1), **both) == "low"
    assert priority(first) == priority(growth) == "of-the-template"
    assert priority(growth, kubernetes_priority_classes="one-for-all") == "one-for-all"


def test_queues_of_kueue_and_volcano_are_named(path: Path) -> None:
    job = job_of(path, kubernetes_kueue_queues="/=rest,/lab=the-lab", kubernetes_volcano_queues="edt-{queue}")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "the-lab"
    pod = job["spec"]["template"]["metadata"]
    assert pod["annotations"]["scheduling.volcano.sh/queue-name"] == "edt-lab.vision"
    assert "kueue.x-k8s.io/queue-name" not in pod["labels"]


def test_a_gang_is_a_pod_group_where_the_server_has_kueue(path: Path) -> None:
    gang = NodeRequest("n", 1, job="edt-12", group_size=3)
    job = job_of(path, gang, pod_groups=True, kubernetes_kueue_queues="mine")
    pod = job["spec"]["template"]["metadata"]
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    assert pod["labels"]["kueue.x-k8s.io/queue-name"] == "mine"
    assert pod["labels"]["kueue.x-k8s.io/pod-group-name"]
    assert pod["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"
    alone = job_of(path, gang, pod_groups=False, kubernetes_kueue_queues="mine")
    assert alone["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "mine"
    assert "kueue.x-k8s.io/pod-group-name" not in alone["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("queues", "queue", "name"),
    [
        ({"": "all"}, "/lab", "all"),
        ({"": "all", "/lab": "lab"}, "/lab/vision", "lab"),
        ({"/": "rest", "/lab": "lab"}, "/labs", "rest"),
        ({"/lab/vision": "v", "/lab": "lab"}, "/lab/vision", "v"),
        ({"/lab": "lab"}, "", None),
        ({"/": "rest"}, "", "rest"),
        ({}, "/lab", None),
    ],
)
def test_a_queue_is_that_of_the_longest_path(queues: Mapping[str, str], queue: str, name: str | None) -> None:
    assert queue_name(queues, queue, "label") == name


@given(st.text(max_size=100), st.text(max_size=100))
def test_any_text_makes_a_valid_label_and_different_texts_different_ones(text: str, other: str) -> None:
    assert LABEL.fullmatch(label_value(text)) and len(label_value(text)) <= 63
    assert text == other or label_value(text) != label_value(other)


def test_plain_words_are_labels_as_they_are() -> None:
    assert [label_value(each) for each in ("", "edt-12", "Ana.B_c")] == ["", "edt-12", "Ana.B_c"]
    assert label_value("ana@example.org").startswith("ana-example.org-")
    assert queue_label("/lab/vision") == "lab.vision"


def test_lists_are_merged_by_name_and_others_replaced() -> None:
    mine = {"a": [{"name": "x", "value": "1"}, {"name": "y"}], "b": [1, 2], "c": {"d": 1}}
    ours = {"a": [{"name": "x", "value": "2"}, {"name": "z"}], "b": [3], "c": {"e": 2}}
    assert merged(mine, ours) == {
        "a": [{"name": "x", "value": "2"}, {"name": "y"}, {"name": "z"}],
        "b": [3],
        "c": {"d": 1, "e": 2},
    }
    assert mine["b"] == [1, 2]


def test_all_forms_of_a_template_are_the_same_pod(path: Path) -> None:
    pod = yaml.safe_load(TEMPLATE)
    expected = pod_of(path)
    spec = {"metadata": pod["metadata"], "spec": pod["spec"]}
    for form in (spec, {"apiVersion": "v1", "kind": "PodTemplate", "template": spec}):
        path.write_text(yaml.safe_dump(form))
        assert pod_of(path) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is not YAML"),
        ("", "has 0 documents"),
        ("kind: Deployment", "kind is 'Deployment'; it takes Pod"),
        ("kind: Pod", "spec is None; it takes a mapping"),
        ("spec: {containers: []}", r"spec.containers is \[\]"),
        ("spec: {containers: [{image: a}]}", "each takes a name"),
        ("spec: {containers: [{name: edt}]}", r"no path; one has to hold EDT_HOME \(/srv/openedt\)"),
        ("spec: {containers: [{name: edt, volumeMounts: [{mountPath: /srv/ope}]}]}", "are at /srv/ope; one has to"),
    ],
)
def test_a_template_that_cannot_be_used_says_where(path: Path, text: str, words: str) -> None:
    path.write_text(text)
    with pytest.raises(BadSetting, match=words):
        read_template(path, Path("/srv/openedt"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kubernetes_priority_classes", "high=5", "names by priority, as in 1=low,5=high"),
        ("kubernetes_growth_class", "Growth", "a name of Kubernetes"),
        ("kubernetes_kueue_queues", "lab=x", "names by queue, as in /=rest,/lab=lab"),
        ("kubernetes_grace_seconds", "-1", "a whole number of seconds from 0 to 86400"),
        ("kubernetes_owner", "deployment", "as in apps/v1/Deployment/edt-provisioner"),
        ("kubernetes_image_pytorch", "a b", "the name of an image"),
    ],
)
def test_a_setting_that_cannot_be_used_says_what_it_takes(path: Path, name: str, value: str, words: str) -> None:
    with pytest.raises(BadSetting, match=words) as error:
        settings(path, **{name: value})
    assert repr(value) in str(error.value) and name.replace("_", "-") in str(error.value)
