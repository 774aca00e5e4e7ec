"""Thousands of random schedules of engines, without a training: nobody waits for ever, each micro-batch of each step
counts exactly once, the last desired is what stands, and whoever shall leave leaves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from support.simulation import Simulation

SCHEDULES = pytest.mark.parametrize(
    "seeds", [range(200), pytest.param(range(200, 500), marks=pytest.mark.extended)], ids=["first", "more"]
)
"""Of each kind 500. A training of each would take hours."""


def wander(
    simulation: Simulation,
    *,
    deaths: float = 0.0,
    troubles: float = 0.0,
    restarts: float = 0.0,
    interruptions: float = 0.0,
    successors: float = 0.0,
) -> None:
    """Five random desired states, most of them replaced by the next before they are reached, and what happens to the
    training meanwhile, each as likely as given: engines die, connections break, another coordinator takes over, a
    coordinator begins a regroup by itself and, over it, may give way to a successor. Without ``interruptions`` no
    number is drawn for them: the schedules of the tests that have none stay what they are."""
    chance = simulation.chance
    simulation.set_desired((), chance.randint(1, 3))
    for _ in range(5):
        simulation.some(chance.randint(0, 150))
        if chance.random() < troubles:
            simulation.disturb()
            simulation.some(chance.randint(0, 30))
        if interruptions and chance.random() < interruptions:
            interrupt(simulation, successors)
        if chance.random() < restarts and not simulation.over:
            simulation.restart()
            simulation.some(chance.randint(0, 60))
        if simulation.over:
            return
        if chance.random() < deaths:
            living = sorted(simulation.living())
            for name in chance.sample(living, min(chance.randint(1, 2), len(living))):
                simulation.kill(name)
        wanted = sorted(simulation.wanted)
        stay = chance.sample(wanted, chance.randint(min(1, len(wanted)), len(wanted)))
        simulation.set_desired(stay, chance.randint(not stay, max(1, simulation.workers - len(stay))))
        if simulation.over:
            return


def interrupt(simulation: Simulation, successors: float) -> None:
    """A coordinator begins a regroup by itself. As likely as given, a successor takes over meanwhile and does the
    same. Only while an engine has the weights: a successor that finds none ends the attempt."""
    chance = simulation.chance
    while simulation.trains():
        simulation.interrupt()
        simulation.some(chance.randint(0, 40))
        if not simulation.trains() or chance.random() >= successors:
            return
        simulation.restart()
        simulation.some(chance.randint(0, 60))


def came_through(simulation: Simulation) -> str:
    """Reach the last desired state, and then the end; returns how the attempt ended."""
    simulation.run(simulation.calm)
    if not simulation.over:
        assert simulation.living() == simulation.wanted
        assert set(simulation.coordinator.members.current.members) <= simulation.wanted
        simulation.run(lambda: bool(simulation.over))
    if simulation.over == "finished":
        assert all(simulation.applied[step] for step in range(simulation.steps))
    return simulation.over


def simulation_of(seed: int) -> Simulation:
    return Simulation(seed, workers=random.Random(seed).choice([3, 4, 6]))


@SCHEDULES
def test_engines_that_come_and_go_lose_and_repeat_nothing(seeds: Sequence[int]) -> None:
    for seed in seeds:
        simulation = simulation_of(seed)
        wander(simulation, troubles=0.3)
        assert came_through(simulation) == "finished", seed


@SCHEDULES
def test_engines_that_also_die_lose_and_repeat_nothing(seeds: Sequence[int]) -> None:
    """As long as one is left that has the weights: a simulation fails by itself where such a one is given up."""
    ends = Counter[str]()
    for seed in seeds:
        simulation = simulation_of(seed)
        wander(simulation, deaths=0.4, troubles=0.2)
        ends[came_through(simulation)] += 1
    assert ends["finished"] > len(seeds) / 2 and set(ends) <= {"finished", "lost"}, ends


@SCHEDULES
def test_coordinators_that_die_lose_and_repeat_nothing(seeds: Sequence[int]) -> None:
    ends = Counter[str]()
    for seed in seeds:
        simulation = simulation_of(seed)
        wander(simulation, deaths=0.2, restarts=0.4)
        ends[came_through(simulation)] += 1
    assert ends["finished"] > len(seeds) / 2 and set(ends) <= {"finished", "lost"}, ends


@SCHEDULES
def test_regroups_that_coordinators_begin_by_themselves_lose_and_repeat_nothing(seeds: Sequence[int]) -> None:
    """One after the other: each may have called some engines to a regroup of which its successor knows nothing."""
    for seed in seeds:
        simulation = simulation_of(seed)
        wander(simulation, troubles=0.2, interruptions=0.6, successors=0.6)
        assert came_through(simulation) == "finished", seed


@SCHEDULES
def test_deaths_in_regroups_that_coordinators_begin_by_themselves_lose_and_repeat_nothing(
    seeds: Sequence[int],
) -> None:
    ends = Counter[str]()
    for seed in seeds:
        simulation = simulation_of(seed)
        wander(simulation, deaths=0.2, interruptions=0.6, successors=0.6)
        ends[came_through(simulation)] += 1
    assert ends["finished"] > len(seeds) / 2 and set(ends) <= {"finished", "left", "lost"}, ends
