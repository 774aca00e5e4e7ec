"""Nodes that are pods: for each one a Job of one pod."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from edt_contract.pools import NodeRequest, NodeState, PoolOffer, PoolState, node_token
from edt_provisioner.cluster import ClusterAway
from edt_provisioner.errors import BadSetting
from edt_provisioner.kubernetes import labels, manifest
from edt_provisioner.kubernetes.client import Client, Refused
from edt_provisioner.kubernetes.settings import KubernetesSettings
from edt_provisioner.kubernetes.states import Found, state
from edt_provisioner.kubernetes.template import read_template
from edt_provisioner.settings import join_token

log = logging.getLogger(__name__)

_KUEUE = "kueue.x-k8s.io"
_COUNTS_DELETED_PODS = (1, 26)
"""The first version in which a Job with a deleted pod has failed. Before, it makes another pod at once."""
_LOST_SECONDS = 60.0
"""Seconds beyond its grace after which a pod that is still ending is on a node that is gone."""
_WATCH_SECONDS = 60
_LONGEST_PAUSE = 30.0


class KubernetesCluster:
    """The pods of one pool.

    Args:
        settings: the provisioner's.
        clock: monotonic seconds.

    Raises:
        BadSetting: there are no credentials, or no pod template.
    """

    def __init__(self, settings: KubernetesSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        read_template(settings.kubernetes_pod_template, settings.home)
        self._client = Client(settings)
        self._selector = f"{labels.POOL}={settings.pool}"
        self._version: tuple[int, int] = (0, 0)
        self._pod_groups = False
        self._pods: dict[str, str] = {}
        """Node to the uid of its pod: another pod is not the node."""
        self._ending: dict[str, float] = {}
        """uid of a pod that ends to since when it has been seen to."""
        self._without_job: dict[str, str] = {}
        """Node whose Job is gone to its pod's name; "": the pod is ending."""
        self._stopping = threading.Event()

    def offer(self) -> PoolOffer:
        """The pool that it can be, for the registration."""
        settings = self._settings
        return PoolOffer(
            kind="kubernetes",
            slots=settings.pool_slots,
            max_nodes=settings.pool_max_nodes,
            per_job=True,
            containers=settings.kubernetes_job_images,
            device=settings.pool_device,
            model=settings.pool_model,
            patience_seconds=settings.pool_patience_seconds,
            idle_seconds=settings.pool_idle_seconds,
            note=f"namespace {self._client.namespace} of {self._client.server}",
        )

    def nodes(self) -> list[NodeState]:
        """All nodes of this pool that the API server knows.

        Raises:
            ClusterAway: it does not answer, or does not let us look.
        """
        try:
            self._discover()
            found = self._look()
        except Refused as error:
            raise ClusterAway(f"the API server of Kubernetes: {error}") from error
        states = {each.node: state(each) for each in found}
        silent = {name for name, each in states.items() if each.state == PoolState.PENDING and not each.reason}
        silent |= {each.node for each in found if each.earlier_pod}
        if silent:
            warnings = self._warnings(silent)
            states |= {each.node: state(each, warnings[each.node]) for each in found if each.node in silent}
        return list(states.values())

    def create(self, requests: Sequence[NodeRequest]) -> list[NodeState]:
        """Ask for nodes.

        Returns:
            The nodes that were refused, with the server's reasons.

        Raises:
            ClusterAway: the API server does not answer. Some of the nodes may be asked for.
        """
        refused = []
        for request in requests:
            try:
                self._create(request)
            except Refused as error:
                refused.append(NodeState(request.node, PoolState.REFUSED, str(error)))
            except BadSetting as error:  # the template's file has changed
                refused.append(NodeState(request.node, PoolState.REFUSED, str(error)))
        return refused

    def end(self, nodes: Collection[str]) -> None:
        """End nodes, and remove what is left of them. Pods get their grace.

        Raises:
            ClusterAway: the API server does not answer, or does not let us.
        """
        for node in nodes:
            try:
                if node in self._without_job:
                    if pod := self._without_job[node]:
                        self._client.delete_pod(pod)
                else:
                    self._client.delete_job(node)
            except Refused as error:
                if error.status != 404:
                    raise ClusterAway(f"the API server of Kubernetes: {error}") from error

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed``, from a thread of its own, when a pod has changed."""
        threading.Thread(target=self._watch, args=(changed,), name="watch", daemon=True).start()

    def close(self) -> None:
        """End the thread of ``watch``. The nodes stay."""
        self._stopping.set()
        self._client.close()

    def _discover(self) -> None:
        """Find out once what the server has."""
        if self._version == (0, 0):
            self._pod_groups = _KUEUE in self._client.groups()
            self._version = self._client.version()

    def _look(self) -> list[Found]:
        jobs = {each["metadata"]["name"]: each for each in self._client.jobs(self._selector)}
        pods: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for pod in self._client.pods(self._selector):
            pods[pod["metadata"]["labels"].get(labels.NODE, "")].append(pod)
        now, found = self._clock(), []
        for node in sorted({*jobs, *pods} - {""}):
            found.append(self._found(node, jobs.get(node), pods.get(node, []), now))
        self._pods = {each.node: self._pods[each.node] for each in found if each.node in self._pods}
        seen = {pod["metadata"]["uid"] for each in pods.values() for pod in each}
        self._ending = {uid: since for uid, since in self._ending.items() if uid in seen}
        self._without_job = {
            each.node: "" if _is_ending(each.pod) else each.pod["metadata"]["name"]
            for each in found
            if each.job is None and each.pod is not None
        }
        return found

    def _found(self, node: str, job: dict[str, Any] | None, pods: list[dict[str, Any]], now: float) -> Found:
        pods = sorted(pods, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))
        if not pods:
            return Found(node, job, earlier_pod=node in self._pods)
        pod = pods[0]
        uid = pod["metadata"]["uid"]
        replaced = self._pods.setdefault(node, uid) != uid
        if job is not None and (replaced or _is_ending(pod)) and self._version < _COUNTS_DELETED_PODS:
            # Else the Job makes another pod, which would begin as this node while this one still leaves.
            self.end([node])
        if replaced:
            return Found(node, job, pod, earlier_pod=True)
        given_up = False
        if _is_ending(pod):
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
            given_up = job is None and now - self._ending.setdefault(uid, now) > grace + _LOST_SECONDS
        return Found(node, job, pod, given_up=given_up)

    def _warnings(self, nodes: Collection[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The warnings about nodes' Jobs and pods, whose names begin with the node's. They are a help to people only:
        none if we may not read them."""
        try:
            warnings = self._client.warnings()
        except Refused:
            return defaultdict(list)
        found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for event in warnings:
            about = event.get("involvedObject") or {}
            name = about.get("name", "") if about.get("kind") == "Job" else about.get("name", "").rpartition("-")[0]
            if name in nodes:
                found[name].append(event)
        return found

    def _create(self, request: NodeRequest) -> None:
        settings = self._settings
        self._discover()
        template = read_template(settings.kubernetes_pod_template, settings.home)
        body = manifest.job(request, settings, template, pod_groups=self._pod_groups, owner=self._owner())
        token = node_token(join_token(settings), request.node)
        try:
            job = self._client.create_job(body)
        except Refused as error:
            if error.status != 409:
                raise
            job = self._client.job(request.node)
            if (job["metadata"].get("labels") or {}).get(labels.POOL) != settings.pool:
                raise Refused(409, f"there is another Job {request.node}, which is not of this pool") from error
        owner = manifest.reference({"apiVersion": "batch/v1", "kind": "Job", **job})
        try:
            self._client.create_secret(manifest.secret(request, token, owner, settings))
        except Refused as error:
            if error.status != 409:
                self._client.delete_job(request.node)  # its pod would wait for ever
                raise

    def _owner(self) -> dict[str, Any] | None:
        if self._settings.kubernetes_owner is None:
            return None
        return manifest.reference(self._client.find(*self._settings.kubernetes_owner))

    def _watch(self, changed: Callable[[], None]) -> None:
        pause = 1.0
        while not self._stopping.is_set():
            try:
                for _ in self._client.changes(self._selector, _WATCH_SECONDS):
                    pause = 1.0
                    if self._stopping.is_set():
                        return
                    changed()
            except (ClusterAway, Refused) as error:
                log.debug("the watch ended: %s", error)
                pause = min(pause * 2, _LONGEST_PAUSE)
            self._stopping.wait(pause)


def _is_ending(pod: Mapping[str, Any] | None) -> bool:
    return pod is not None and "deletionTimestamp" in pod["metadata"]
