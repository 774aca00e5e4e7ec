"""Real clusters, one of a kind for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kubernetes_cluster import Kubernetes


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A Kubernetes of one node. A test takes a namespace of its own, and puts back what it does to the cluster."""
    with Kubernetes(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture
def namespace(kubernetes: Kubernetes) -> Iterator[str]:
    """A namespace that is removed after the test."""
    name = kubernetes.new_namespace()
    yield name
    kubernetes.kubectl("delete", "namespace", name, "--wait=false")
