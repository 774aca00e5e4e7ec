"""Thousands of random schedules of engines, without a training: nobody waits for ever, each micro-batch of each step
counts exactly once, the last wish is what stands, and whoever shall leave leaves."""

from __future__ import annotations

import random
from collections import Counter

from support.simulation import Simulation

SCHEDULES = 500
"""Of each kind. A training of each would take hours."""


def wander(play: Simulation, *, deaths: float = 0.0, troubles: float = 0.0, restarts: float = 0.0) -> None:
    """Five random wishes, most of them overtaken by the next before they are fulfilled, and what befalls the training
    meanwhile, each as likely as told: engines die, lines break, another coordinator takes over."""
    chance = play.chance
    play.wish((), chance.randint(1, 3))
    for _ in range(5):
        play.some(chance.randint(0, 150))
        if chance.random() < troubles:
            play.disturb()
            play.some(chance.randint(0, 30))
        if chance.random() < restarts and not play.over:
            play.restart()
            play.some(chance.randint(0, 60))
        if play.over:
            return
        if chance.random() < deaths:
            living = sorted(play.living())
            for name in chance.sample(living, min(chance.randint(1, 2), len(living))):
                play.kill(name)
        wanted = sorted(play.wanted)
        stay = chance.sample(wanted, chance.randint(min(1, len(wanted)), len(wanted)))
        play.wish(stay, chance.randint(not stay, max(1, play.workers - len(stay))))
        if play.over:
            return


def came_through(play: Simulation) -> str:
    """Come to what was wished last, and then to the end; how that was."""
    play.run(play.calm)
    if not play.over:
        assert play.living() == play.wanted
        assert set(play.mind.current.members) <= play.wanted
        play.run(lambda: bool(play.over))
    if play.over == "finished":
        assert all(play.applied[step] for step in range(play.steps))
    return play.over


def play_of(seed: int) -> Simulation:
    return Simulation(seed, workers=random.Random(seed).choice([3, 4, 6]))


def test_engines_that_come_and_go_lose_and_repeat_nothing() -> None:
    for seed in range(SCHEDULES):
        play = play_of(seed)
        wander(play, troubles=0.3)
        assert came_through(play) == "finished", seed


def test_engines_that_also_die_lose_and_repeat_nothing() -> None:
    """As long as one is left that has the weights: a simulation fails by itself where such a one is given up."""
    ends = Counter[str]()
    for seed in range(SCHEDULES):
        play = play_of(seed)
        wander(play, deaths=0.4, troubles=0.2)
        ends[came_through(play)] += 1
    assert ends["finished"] > SCHEDULES / 2 and set(ends) <= {"finished", "lost"}, ends


def test_coordinators_that_die_lose_and_repeat_nothing() -> None:
    ends = Counter[str]()
    for seed in range(SCHEDULES):
        play = play_of(seed)
        wander(play, deaths=0.2, restarts=0.4)
        ends[came_through(play)] += 1
    assert ends["finished"] > SCHEDULES / 2 and set(ends) <= {"finished", "lost"}, ends
