"""Real processes: one nursery for all elastic tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.baselines import Baselines
from support.nursery import Nursery
from support.training import Elastic, spec_for


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def baselines(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    return Baselines(nursery, lambda: tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def undisturbed(baselines: Baselines, framework: str) -> Callable[..., str]:
    """``undisturbed(script, *arguments)``: the digest that one engine alone ends with, trained once a session."""
    return partial(baselines.digest, framework=framework)


@pytest.fixture
def attempt(nursery: Nursery, tmp_path: Path, framework: str) -> Callable[..., Elastic]:
    """``attempt(script, *arguments, **spec)``: a training below ``tmp_path``; ``folder=`` names a part of it."""

    def make(script: str | Path, *arguments: object, folder: str = "job", **changes: Any) -> Elastic:
        changes = {"framework": framework, **changes}
        return Elastic(spec_for(tmp_path / folder, script, *arguments, **changes), nursery.start)

    return make


@pytest.fixture
def framework(request: pytest.FixtureRequest) -> str:
    """PyTorch, save in tests that name frameworks. Of no wider scope than a test: pytest would sort the tests by all
    that is named beside it."""
    return str(getattr(request, "param", "pytorch"))
