"""Fixtures of the API's tests: one API for a module, or one of a test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.served_api import ServedApi, served


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """What the developer's own environment says of EDT_ is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EDT_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """One API for a module's tests, with users ``admin``, ``ana`` and ``bob``."""
    with served(tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    """One that believes what this machine says as a proxy."""
    with served(tmp_path_factory.mktemp("home"), forwarded_allow_ips="127.0.0.1") as opened:
        yield opened


@pytest.fixture
def fresh_api(tmp_path: Path) -> Iterator[ServedApi]:
    """An API that nobody has used yet."""
    with served(tmp_path / "home") as opened:
        yield opened
