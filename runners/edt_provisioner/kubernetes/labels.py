"""Labels and annotations of what this provisioner makes, and what Kubernetes takes as their values."""

from __future__ import annotations

import hashlib
import re

POOL = "openedt.io/pool"
NODE = "openedt.io/node"
JOB = "openedt.io/job"
USER = "openedt.io/user"
QUEUE = "openedt.io/queue"
FRAMEWORK = "openedt.io/framework"

CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation with the name of the container that the agent is in: the one that ``kubectl logs`` shows, too."""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"

_LONGEST = 63


def label_value(text: str) -> str:
    """A valid value of a label that is like the text. Different texts have different values."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", text).strip("-_.")
    if plain == text and len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - 9].rstrip('-_.')}-{digest}".lstrip("-")


def queue_label(queue: str) -> str:
    """A queue's path as the value of a label, and as a part of a name: ``lab.vision`` for ``/lab/vision``."""
    return label_value(queue.strip("/").replace("/", "."))
