"""Real processes: one nursery for all elastic tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nursery import Nursery
from support.training import Elastic, letter_for


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def attempt(nursery: Nursery, tmp_path: Path, framework: str) -> Callable[..., Elastic]:
    """``attempt(script, *arguments, **letter)``: a training below ``tmp_path``; ``folder=`` names a part of it."""

    def make(script: str | Path, *arguments: object, folder: str = "job", **changes: Any) -> Elastic:
        changes = {"framework": framework, **changes}
        return Elastic(letter_for(tmp_path / folder, script, *arguments, **changes), nursery.start)

    return make


@pytest.fixture(scope="session")
def framework(request: pytest.FixtureRequest) -> str:
    """PyTorch, save in tests ``ON_BOTH_FRAMEWORKS``."""
    return str(getattr(request, "param", "pytorch"))
