"""One served API for the tests of WMLA's clients that change nothing of each other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.served_api import ServedApi, served


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    with served(tmp_path_factory.mktemp("home")) as api:
        yield api


@pytest.fixture
def fresh_api(tmp_path: Path) -> Iterator[ServedApi]:
    """An API that nobody has used yet."""
    with served(tmp_path / "home") as opened:
        yield opened
