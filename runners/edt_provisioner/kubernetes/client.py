"""Requests to the API server, with the official client. Objects are plain mappings, as they are sent: so an object that
is newer than the client is no error."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client as official
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from edt_provisioner.cluster import ClusterAway
from edt_provisioner.errors import BadSetting
from edt_provisioner.kubernetes.settings import KubernetesSettings

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NOW = frozenset({401, 408, 429})
"""Statuses below 500 that tell of the server's or our credentials' state, not of a request."""


class Refused(Exception):
    """The API server refuses a request. The text is its sentence.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """One API server, and one namespace there.

    Raises:
        BadSetting: there are no credentials.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        configuration, namespace = _configured(settings)
        configuration.retries = False  # the loop tries again
        self._api = official.ApiClient(configuration)
        self._batch, self._core = official.BatchV1Api(self._api), official.CoreV1Api(self._api)
        self._seconds = settings.kubernetes_request_seconds
        self.server = str(configuration.host)
        self.namespace = settings.kubernetes_namespace or namespace

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def version(self) -> tuple[int, int]:
        """The server's, as in (1, 31)."""
        found = self._json(official.VersionApi(self._api).get_code)["gitVersion"]
        numbers = re.match(r"v(\d+)\.(\d+)", found)
        return (int(numbers[1]), int(numbers[2])) if numbers else (1, 0)

    def groups(self) -> frozenset[str]:
        """The groups of the server's API, as in ``kueue.x-k8s.io``."""
        found = self._json(official.ApisApi(self._api).get_api_versions)
        return frozenset(each["name"] for each in found["groups"])

    def find(self, version: str, kind: str, name: str) -> dict[str, Any]:
        """An object of the namespace. Raises Refused if there is none, and if the server knows no such kind."""
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for each in self._get(root)["resources"]:
            if each["kind"] == kind and each["namespaced"] and "/" not in each["name"]:
                found = self._get(f"{root}/namespaces/{self.namespace}/{each['name']}/{name}")
                return {"apiVersion": version, "kind": kind, **found}
        raise Refused(404, f"the server knows no {kind} of {version} in namespaces")

    def jobs(self, selector: str) -> list[dict[str, Any]]:
        """The Jobs with these labels."""
        return self._items(self._batch.list_namespaced_job, label_selector=selector)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The pods with these labels."""
        return self._items(self._core.list_namespaced_pod, label_selector=selector)

    def warnings(self) -> list[dict[str, Any]]:
        """The namespace's Events that warn, oldest first."""
        found = self._items(self._core.list_namespaced_event, field_selector="type=Warning")
        return sorted(found, key=_when)

    def job(self, name: str) -> dict[str, Any]:
        """A Job."""
        return self._json(self._batch.read_namespaced_job, name, self.namespace)

    def create_job(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a Job; what the server made of it."""
        return self._json(self._batch.create_namespaced_job, self.namespace, dict(body))

    def create_secret(self, body: Mapping[str, Any]) -> None:
        """Create a Secret."""
        self._json(self._core.create_namespaced_secret, self.namespace, dict(body))

    def delete_job(self, name: str) -> None:
        """Delete a Job, and with it, soon after, what it owns."""
        options = {"propagationPolicy": "Background"}
        self._json(self._batch.delete_namespaced_job, name, self.namespace, body=options)

    def delete_pod(self, name: str) -> None:
        """Delete a pod, which gets its grace."""
        self._json(self._core.delete_namespaced_pod, name, self.namespace)

    def changes(self, selector: str, seconds: int) -> Iterator[bytes]:
        """What the server tells of pods with these labels, as it comes, for some seconds."""
        with _answered():
            answer = self._core.list_namespaced_pod(
                self.namespace,
                label_selector=selector,
                watch=True,
                timeout_seconds=seconds,
                _preload_content=False,
                _request_timeout=(self._seconds, seconds + self._seconds),
            )
            try:
                yield from answer.stream(1 << 16)
            finally:
                answer.close()

    def _get(self, path: str) -> dict[str, Any]:
        return self._json(self._api.call_api, path, "GET", auth_settings=["BearerToken"])

    def _items(self, call: Callable[..., Any], **words: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._json(call, self.namespace, **words)["items"]
        return found

    def _json(self, call: Callable[..., Any], *arguments: Any, **words: Any) -> dict[str, Any]:
        with _answered():
            answer = call(*arguments, **words, _preload_content=False, _request_timeout=self._seconds)
            raw = answer[0] if isinstance(answer, tuple) else answer
            found: dict[str, Any] = json.loads(raw.data)
            return found


@contextmanager
def _answered() -> Iterator[None]:
    """Turns the client's errors into ours: ClusterAway and Refused."""
    try:
        yield
    except ApiException as error:
        sentence = _sentence(error)
        if error.status in _NOW or not error.status or error.status >= 500:
            raise ClusterAway(f"the API server of Kubernetes: {sentence}") from error
        raise Refused(error.status, sentence) from error
    except (urllib3.exceptions.HTTPError, OSError, ValueError, config.ConfigException) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise ClusterAway(f"the API server of Kubernetes does not answer: {words}") from error


def _sentence(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"


def _when(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times: Sequence[Any] = (
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return max((str(each) for each in times if each), default="")


def _configured(settings: KubernetesSettings) -> tuple[official.Configuration, str]:
    """The client's configuration and the namespace that goes with it."""
    configuration = official.Configuration()
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and _NAMESPACE_FILE.exists()
    try:
        if settings.kubernetes_config is None and settings.kubernetes_context is None and in_pod:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, _NAMESPACE_FILE.read_text().strip()
        path = str(settings.kubernetes_config) if settings.kubernetes_config else None
        contexts, current = config.list_kube_config_contexts(path)
        config.load_kube_config(path, settings.kubernetes_context, configuration)
        name = settings.kubernetes_context or current["name"]
        [context] = [each["context"] for each in contexts if each["name"] == name]
    except (config.ConfigException, OSError, ValueError) as error:
        raise BadSetting(f"EDT_KUBERNETES_CONFIG: {settings.kubernetes_config or 'not set'}: {error}") from error
    return configuration, str(context.get("namespace") or "default")
