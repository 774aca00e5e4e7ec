"""What Kubernetes' objects say of a node. Pure: mappings in, as the API server sends them, and a NodeState out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edt_contract.pools import NodeState, PoolState
from edt_provisioner.kubernetes.labels import CONTAINER

_WITHOUT_WORDS = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that say nothing. The newest warning says more."""
_OOM = "OOMKilled"
_LONGEST = 500


@dataclass(frozen=True)
class Found:
    """What there is of one node."""

    node: str
    job: Mapping[str, Any] | None = None
    """The Job; None: it is gone, and its pod ends."""
    pod: Mapping[str, Any] | None = None
    """The pod, or the first of several."""
    earlier_pod: bool = False
    """Whether another pod of this Job was seen before, which is gone."""
    given_up: bool = False
    """Whether the pod has been ending for longer than it may, so that its Kubernetes node is gone."""


def state(found: Found, warnings: Sequence[Mapping[str, Any]] = ()) -> NodeState:
    """The state of a node.

    Args:
        found: what there is of it.
        warnings: Events of its Job and its pods, oldest first.
    """
    node, pod = found.node, found.pod
    if found.earlier_pod:
        return NodeState(node, PoolState.ENDED, _last(warnings) or "its pod was deleted")
    if pod is not None:
        return _of_pod(found, pod, warnings)
    job = found.job or {}
    for condition in _conditions(job):
        if condition.get("status") != "True":
            continue
        if condition.get("type") in {"Failed", "Complete"}:
            return NodeState(node, PoolState.ENDED, _short(_words(condition)) or "its pod was deleted")
        if condition.get("type") == "Suspended":
            return NodeState(node, PoolState.PENDING, _short(f"suspended: {_words(condition)}"))
    status = job.get("status") or {}
    if status.get("failed") or status.get("succeeded"):
        return NodeState(node, PoolState.ENDED, "its pod was deleted")
    if (job.get("spec") or {}).get("suspend"):
        return NodeState(node, PoolState.PENDING, "suspended, until its queue admits it")
    return NodeState(node, PoolState.PENDING, _last(warnings))


def _of_pod(found: Found, pod: Mapping[str, Any], warnings: Sequence[Mapping[str, Any]]) -> NodeState:
    node = found.node
    status = pod.get("status") or {}
    container = _container(pod)
    phase = status.get("phase")
    ended = (container.get("state") or {}).get("terminated")
    if phase in {"Succeeded", "Failed"} or ended:
        oom = (ended or {}).get("reason") == _OOM
        return NodeState(node, PoolState.ENDED, _how_it_ended(pod, ended), oom)
    if found.given_up:
        where = (pod.get("spec") or {}).get("nodeName", "")
        return NodeState(node, PoolState.ENDED, f"{where} does not answer, so nobody knows of the pod's end")
    if (container.get("state") or {}).get("running") is not None:
        return NodeState(node, PoolState.RUNNING)
    return NodeState(node, PoolState.PENDING, _short(_why_it_waits(status) or _last(warnings)))


def _why_it_waits(status: Mapping[str, Any]) -> str:
    """Why a pod is pending. "": it does not say."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(condition)
    for container in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _WITHOUT_WORDS:
            return _words(waiting)
    return ""


def _how_it_ended(pod: Mapping[str, Any], ended: Mapping[str, Any] | None) -> str:
    """Why a pod has ended. "": it ended by itself, without an error."""
    status = pod.get("status") or {}
    if ended and ended.get("reason") == _OOM:
        return f"{_OOM}: it used more memory than it may"
    for condition in _conditions(pod):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _short(_words(condition))
    if status.get("reason") or status.get("message"):  # Evicted, Preempting, DeadlineExceeded, NodeLost …
        return _short(_words(status))
    if not ended or ended.get("exitCode") == 0:
        return ""
    if number := ended.get("signal"):
        return f"ended by signal {number}"
    reason = ended.get("reason", "Error")
    detail = ended.get("message") or f"exit status {ended.get('exitCode')}"
    return _short(f"{reason}: {detail}")


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of the container with the agent."""
    statuses: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or []
    name = ((pod.get("metadata") or {}).get("annotations") or {}).get(CONTAINER)
    return next((each for each in statuses if each.get("name") == name), {})


def _conditions(thing: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    conditions: Sequence[Mapping[str, Any]] = (thing.get("status") or {}).get("conditions") or []
    return conditions


def _last(warnings: Sequence[Mapping[str, Any]]) -> str:
    return _short(_words(warnings[-1])) if warnings else ""


def _words(thing: Mapping[str, Any]) -> str:
    """Reason and message, as Kubernetes puts them."""
    return ": ".join(each for each in (thing.get("reason"), thing.get("message")) if each)


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"
