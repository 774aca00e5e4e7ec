"""Journeys: the whole house, from POST to the trained model, on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.house import House
from support.journey import house_in
from support.nursery import Nursery


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A platform of four CPU slots, in a home of its own."""
    with house_in(tmp_path, EDT_AGENT_TICK_SECONDS="10") as house:  # what happens sooner is a doorbell's work
        yield house


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()
