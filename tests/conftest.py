"""Rules for the whole suite: hardware that is missing deselects, nothing else is skipped unnoticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("edt", deadline=None)  # machines are as slow as they are
hypothesis.settings.load_profile("edt")

_REQUIRE_ALL = os.environ.get("EDT_REQUIRE_ALL") == "1"


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_kubernetes() -> bool:
    return "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ


def _has_memory_cgroup() -> bool:
    from support.memory_cgroup import has_memory_cgroup

    return has_memory_cgroup()


def _has_docker() -> bool:
    from support.places import has_docker

    return has_docker()


def _has_chromium() -> bool:
    from support.browser import chromium

    return chromium() is not None


_HARDWARE = {
    "chromium": _has_chromium,
    "cuda": _has_cuda,
    "kubernetes": _has_kubernetes,
    "memory_cgroup": _has_memory_cgroup,
    "docker": _has_docker,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what needs hardware that this machine lacks, and say so in one line."""
    for mark, present in _HARDWARE.items():
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not present():
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if item not in marked]
            print(f"\n{len(marked)} tests need {mark} and are deselected: there is none on this machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """EDT_REQUIRE_ALL=1: a skip is a failure."""
    report = yield
    if _REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped under EDT_REQUIRE_ALL=1: {report.longrepr}"
    return report
