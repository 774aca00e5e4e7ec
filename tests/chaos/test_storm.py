"""A short storm over each database. `make chaos` is the long one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.choices import Kind, choices
from chaos.storm import Plan, storm
from chaos.trainings import Script, Size, scripts
from support.nursery import Nursery

SECONDS, LEAST = 12.0, 4
SIZE = Size(epochs=6, pace=0.05)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Script]]:
    nursery = Nursery()
    try:
        yield scripts(nursery, tmp_path_factory.mktemp("undisturbed"), SIZE)
    finally:
        nursery.close()


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("database", "seed"), [("sqlite", 3), pytest.param("postgresql", 4, marks=pytest.mark.extended)]
)
def test_a_storm_loses_nothing(database: str, seed: int, trainings: list[Script], tmp_path: Path) -> None:
    plan = Plan(seed, SECONDS, 240.0, SIZE, trainings, least=LEAST, jobs=2, others=("second",))
    counts = storm(plan, tmp_path, database, lambda line: None)
    print(counts)
    assert counts.sound, "\n".join([*counts.wrong, str(counts)])
    assert counts.finished
    assert min(counts.blows.total(), counts.polls) >= LEAST


def test_a_seed_replays_its_choices_and_all_kinds_come_up() -> None:
    first, second = (list(itertools.islice(choices(7), 300)) for _ in range(2))
    assert first == second != list(itertools.islice(choices(8), 300))
    assert {blow.kind for choice in first for blow in choice.blows} == set(Kind)
    assert any(len(choice.blows) > 1 for choice in first)


def test_make_chaos_finds_all_it_needs_and_refuses_a_database_that_it_does_not_know() -> None:
    run = subprocess.run(
        ["make", "chaos", "CHAOS_DATABASE=mongodb"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 2 and "'mongodb'; it is both, sqlite, postgresql" in run.stderr
