"""The settings of a pool on Kubernetes: EDT_KUBERNETES_*, besides those of all provisioners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict

from edt_provisioner.settings import Place, PoolName, Settings, needs

_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
"""What Kubernetes takes as an object's name."""


def _pairs(given: Any) -> Any:
    """Read ``key=value,key=value``. A value without a key counts for all, under the key ""."""
    if not isinstance(given, str):
        return given
    return dict(_pair(each.strip()) for each in given.split(",") if each.strip())


def _pair(given: str) -> tuple[str, str]:
    key, equals, value = given.rpartition("=")
    if equals and not key:
        raise ValueError(given)
    return key, value


def _owner(given: Any) -> Any:
    """Read ``apps/v1/Deployment/name`` or ``v1/ConfigMap/name``."""
    if not isinstance(given, str):
        return given
    version, kind, name = given.rsplit("/", 2)
    return version, kind, name


def _paths(given: Mapping[str, str]) -> Mapping[str, str]:
    if not all(path == "" or path.startswith("/") for path in given):
        raise ValueError(given)
    return given


Name = Annotated[
    str, Field(pattern=f"^{_NAME}$"), needs("a name of Kubernetes: lower-case letters, digits, '-' and '.'")
]
Image = Annotated[
    str,
    Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]{0,254}$"),
    needs("the name of an image, such as openedt/agent:latest"),
]
PriorityClasses = Annotated[
    Mapping[Annotated[int, Field(ge=0)], Annotated[str, Field(pattern=f"^{_NAME}$")]],
    NoDecode,
    BeforeValidator(
        lambda given: {key or "0": value for key, value in pairs.items()} if (pairs := _pairs(given)) else {}
    ),
    needs("the name of a PriorityClass, or such names by priority, as in 1=low,5=high"),
]
Queues = Annotated[
    Mapping[str, Annotated[str, Field(pattern=r"^[-a-z0-9.{}]{1,253}$")]],
    NoDecode,
    BeforeValidator(_pairs),
    AfterValidator(_paths),
    needs("the name of a queue, in which {queue} stands for OpenEDT's, or such names by queue, as in /=rest,/lab=lab"),
]
Owner = Annotated[
    tuple[
        Annotated[str, Field(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")],
        Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]+$")],
        Annotated[str, Field(pattern=f"^{_NAME}$")],
    ],
    NoDecode,
    BeforeValidator(_owner),
    needs("apiVersion/Kind/name of an object in the namespace, as in apps/v1/Deployment/edt-provisioner"),
]


class KubernetesSettings(Settings):
    """What a provisioner of Kubernetes is told."""

    model_config = SettingsConfigDict(env_prefix="EDT_")

    pool: PoolName = "kubernetes"
    kubernetes_config: Place | None = None
    """Kubeconfig file. None: the pod's service account if the provisioner runs in a pod, else KUBECONFIG or
    ``~/.kube/config``."""
    kubernetes_context: str | None = None
    """Context of the kubeconfig file. None: the current one."""
    kubernetes_namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    """Namespace of the pods. None: that of the service account or of the context."""
    kubernetes_pod_template: Place
    """YAML file with the pod of a node, as a PodTemplateSpec or a Pod: volumes, image, resources, tolerations …"""
    kubernetes_python: Annotated[str, Field(min_length=1)] = "python"
    """The interpreter inside the image."""
    kubernetes_image_pytorch: Image | None = None
    """Image of nodes for PyTorch jobs. None: that of the pod template."""
    kubernetes_image_tensorflow: Image | None = None
    """Image of nodes for TensorFlow jobs. None: that of the pod template."""
    kubernetes_job_images: bool = True
    """Whether a job may ask for an image of its own, which must have the agent in it."""
    kubernetes_gpu_resource: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9./_-]{1,253}$"), needs("the name of a resource, as nvidia.com/gpu")
    ] = "nvidia.com/gpu"
    """The resource that is a GPU, where the pool's slots are GPUs."""
    kubernetes_grace_seconds: (
        Annotated[int, Field(ge=0, le=86_400), needs("a whole number of seconds from 0 to 86400")] | None
    ) = None
    """The pods' terminationGracePeriodSeconds. None: that of the pod template, else 120."""
    kubernetes_priority_classes: PriorityClasses = Field(default_factory=dict)
    """PriorityClass of the pods that a job needs to start, by the job's priority: that of the greatest number that is
    not above it. Empty: that of the pod template."""
    kubernetes_growth_class: Name | None = None
    """PriorityClass of the pods by which a job only grows. None: as the others."""
    kubernetes_kueue_queues: Queues = Field(default_factory=dict)
    """Kueue's LocalQueue, by OpenEDT's queue: that of the longest path that leads to it."""
    kubernetes_volcano_queues: Queues = Field(default_factory=dict)
    """Volcano's queue, in the same way."""
    kubernetes_owner: Owner | None = None
    """An object with which all nodes go when it is removed. None: they stay."""
    kubernetes_request_seconds: Annotated[float, Field(gt=0, le=300), needs("a number of seconds above 0")] = 10.0
    """Seconds after which a request to the API server is given up."""


def queue_name(queues: Mapping[str, str], queue: str, label: str) -> str | None:
    """The other queue's name for one of OpenEDT's queues; None: none.

    Args:
        queues: names by path, as in the settings.
        queue: the path; "": the root.
        label: the path as it may stand in a name, for ``{queue}``.
    """
    path = queue or "/"
    while path:
        if path in queues:
            return queues[path].replace("{queue}", label)
        path = path.rpartition("/")[0] or ("/" if path != "/" else "")
    return queues[""].replace("{queue}", label) if "" in queues else None
