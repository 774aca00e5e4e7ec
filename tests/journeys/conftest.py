"""Journeys: the whole platform, from POST to the trained model, on real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.baselines import Baselines
from support.journey import SEED, platform_in, visit
from support.nursery import Nursery
from support.running_platform import Platform


@pytest.fixture(scope="module")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Of all tests of a file: four CPU slots."""
    folder = tmp_path_factory.mktemp("platform")
    with platform_in(folder, EDT_AGENT_TICK_SECONDS="10") as platform:  # what happens sooner is a notification's work
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    """The file's platform; a test may kill all of it and start it again."""
    with visit(shared_platform) as platform:
        yield platform


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``undisturbed(epochs)``: the digest of the script ``conv`` on one engine without a platform, trained once."""
    baselines = Baselines(nursery, lambda: tmp_path_factory.mktemp("undisturbed"))

    def digest(epochs: int = 20, framework: str = "pytorch") -> str:
        return baselines.digest("conv", "--epochs", epochs, seed=SEED, framework=framework)

    return digest
