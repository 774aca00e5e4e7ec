"""The objects that make a node: a Job of one pod, and a Secret with the node's token. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from edt_contract.pools import NodeRequest
from edt_provisioner.kubernetes import labels
from edt_provisioner.kubernetes.labels import label_value, queue_label
from edt_provisioner.kubernetes.settings import KubernetesSettings, queue_name
from edt_provisioner.kubernetes.template import container_of, merged
from edt_provisioner.settings import node_environment

TOKEN_FOLDER = "/var/run/secrets/openedt.io"  # noqa: S105  a path
"""Where the Secret is mounted. The token is in the file ``token``."""
_TOKEN_VOLUME = "openedt-token"  # noqa: S105  a name
GRACE_SECONDS = 120
"""terminationGracePeriodSeconds, if neither the settings nor the template say it."""
_MARGIN = 0.1
"""The agent must be gone by so much of the grace earlier, at least a second and at most 15."""


def job(
    request: NodeRequest,
    settings: KubernetesSettings,
    template: Mapping[str, Any],
    *,
    pod_groups: bool = False,
    owner: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The Job of a node.

    Args:
        request: the node.
        settings: the provisioner's.
        template: a PodTemplateSpec, as ``read_template`` returns it.
        pod_groups: whether the server has Kueue, which starts the pods of a gang together.
        owner: an ownerReference; None: nothing owns the Job.
    """
    own = _labels(request, settings)
    pod_labels, annotations = dict(own), {}
    job_labels = dict(own)
    queue = queue_label(request.queue)
    if kueue := queue_name(settings.kubernetes_kueue_queues, request.queue, queue or "root"):
        if request.group_size and pod_groups and request.job:
            # The pods are queued as a group. With the Job's label each Job would be queued by itself.
            pod_labels |= {labels.KUEUE_QUEUE: kueue, labels.KUEUE_GROUP: _group(request)}
            annotations[labels.KUEUE_GROUP_SIZE] = str(request.group_size)
        else:
            job_labels[labels.KUEUE_QUEUE] = kueue
    if volcano := queue_name(settings.kubernetes_volcano_queues, request.queue, queue or "root"):
        annotations[labels.VOLCANO_QUEUE] = volcano
    metadata: dict[str, Any] = {"name": request.node, "labels": job_labels, "annotations": _words(request)}
    if owner is not None:
        metadata["ownerReferences"] = [dict(owner)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "template": _pod(request, settings, template, pod_labels, {**_words(request), **annotations}),
        },
    }


def secret(request: NodeRequest, token: str, owner: Mapping[str, Any], settings: KubernetesSettings) -> dict[str, Any]:
    """The Secret with a node's token, which goes with the Job.

    Args:
        request: the node.
        token: the node's token.
        owner: an ownerReference to the Job.
        settings: the provisioner's.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": request.node, "labels": _labels(request, settings), "ownerReferences": [dict(owner)]},
        "type": "Opaque",
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }


def reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """An ownerReference to an object that the server has returned."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def leave_seconds(grace: int) -> float:
    """Seconds after SIGTERM within which the agent must be gone: the grace less a margin. 0: there is no grace."""
    return max(grace - max(1.0, min(15.0, grace * _MARGIN)), 0.0)


def _pod(
    request: NodeRequest,
    settings: KubernetesSettings,
    template: Mapping[str, Any],
    pod_labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> dict[str, Any]:
    spec: dict[str, Any] = template["spec"]
    container = container_of(spec)
    grace = settings.kubernetes_grace_seconds
    if grace is None:
        grace = int(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS))
    environ = node_environment(request, settings)
    environ |= {"EDT_TOKEN_FILE": f"{TOKEN_FOLDER}/token", "EDT_LEAVE_SECONDS": f"{leave_seconds(grace):g}"}
    ours: dict[str, Any] = {
        "command": [settings.kubernetes_python, "-P", "-m", "edt_agent.temporary"],
        "args": [],
        "env": [
            *({"name": name, "value": value} for name, value in environ.items()),
            {"name": "EDT_AGENT_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [{"name": _TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}],
        "resources": _resources(request, settings, container.get("resources") or {}),
    }
    if image := _image(request, settings, container):
        ours["image"] = image
    volume = {"secretName": request.node, "defaultMode": _token_mode(spec, container)}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "volumes": [{"name": _TOKEN_VOLUME, "secret": volume}],
    }
    if priority := _priority_class(request, settings):
        pod["priorityClassName"] = priority
    others = {name: value for name, value in spec.items() if name != "containers"}
    # What runs in the pod is a user's code, which needs no access to Kubernetes unless the administrator says so.
    whole: dict[str, Any] = merged({"automountServiceAccountToken": False, "enableServiceLinks": False, **others}, pod)
    whole["containers"] = [
        merged(each, ours) if each["name"] == container["name"] else each for each in spec["containers"]
    ]
    metadata = merged(
        dict(template.get("metadata") or {}),
        {"labels": dict(pod_labels), "annotations": {**annotations, labels.CONTAINER: container["name"]}},
    )
    return {"metadata": metadata, "spec": whole}


def _resources(request: NodeRequest, settings: KubernetesSettings, given: Mapping[str, Any]) -> dict[str, Any]:
    """The template's, and a GPU or a core for each slot where the template does not say."""
    requests, limits = dict(given.get("requests") or {}), dict(given.get("limits") or {})
    if settings.pool_device == "gpu":
        limits.setdefault(settings.kubernetes_gpu_resource, str(request.slots))
    elif "cpu" not in requests and "cpu" not in limits:
        requests["cpu"] = str(request.slots)
    return {name: values for name, values in (("requests", requests), ("limits", limits)) if values}


def _image(request: NodeRequest, settings: KubernetesSettings, container: Mapping[str, Any]) -> str | None:
    """The job's, else that of its framework, else the template's."""
    if request.image and settings.kubernetes_job_images:
        return request.image
    by_framework = {
        "pytorch": settings.kubernetes_image_pytorch,
        "tensorflow": settings.kubernetes_image_tensorflow,
    }
    return by_framework.get(request.framework) or container.get("image") or "openedt/agent:latest"


def _priority_class(request: NodeRequest, settings: KubernetesSettings) -> str | None:
    if not request.first and settings.kubernetes_growth_class:
        return settings.kubernetes_growth_class
    fitting = [number for number in settings.kubernetes_priority_classes if number <= request.priority]
    return settings.kubernetes_priority_classes[max(fitting)] if fitting else None


def _token_mode(spec: Mapping[str, Any], container: Mapping[str, Any]) -> int:
    """The token's file is root's. If the agent is certainly root, only root may read it."""
    contexts = (container.get("securityContext") or {}, spec.get("securityContext") or {})
    user = next((each["runAsUser"] for each in contexts if "runAsUser" in each), None)
    return 0o400 if user == 0 else 0o444


def _labels(request: NodeRequest, settings: KubernetesSettings) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "openedt",
        labels.POOL: settings.pool,
        labels.NODE: request.node,
        labels.JOB: label_value(request.job or ""),
        labels.USER: label_value(request.user or ""),
        labels.QUEUE: queue_label(request.queue),
        labels.FRAMEWORK: label_value(request.framework),
    }


def _words(request: NodeRequest) -> dict[str, str]:
    """What a label cannot hold as it is."""
    said = {labels.USER: request.user or "", labels.QUEUE: request.queue or "/"}
    return {name: value for name, value in said.items() if value}


def _group(request: NodeRequest) -> str:
    return label_value(f"{request.job}.{request.group_size}")
