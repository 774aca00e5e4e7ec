"""A pool of Kubernetes: nodes are pods that the cluster's own scheduler places.

``manifest`` makes a node's objects out of the administrator's pod template (``template``), ``states`` reads what has
become of them; both are pure. ``client`` sends requests, ``cluster`` joins all of it to what a provisioner needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from edt_provisioner.kubernetes.cluster import KubernetesCluster
from edt_provisioner.kubernetes.settings import KubernetesSettings
from edt_provisioner.settings import read_settings

__all__ = ["KubernetesCluster", "KubernetesSettings", "cluster"]


def cluster(arguments: Mapping[str, str | None]) -> tuple[KubernetesSettings, KubernetesCluster]:
    """The settings and the cluster manager, for the command.

    Raises:
        BadSetting: a setting cannot be used.
    """
    settings = read_settings(KubernetesSettings, arguments)
    return settings, KubernetesCluster(settings)
