"""What a storm does next. Pure: a seed gives the same choices for ever, whatever they hit."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """What can be done to a platform. The first ones hit processes; the last three are what users do."""

    ENGINE = "engine"
    ENGINE_STOP = "engine-stop"  # SIGSTOP: it neither works nor dies
    DRIVER = "driver"
    COORDINATOR = "coordinator"
    RANK = "rank"  # a process of a gang
    SUPERVISOR = "supervisor"
    AGENT = "agent"
    SCHEDULER = "scheduler"
    API = "api"
    BROKER = "broker"
    DATABASE = "database"  # PostgreSQL: killed, or stopped at once
    PLATFORM = "platform"  # `edt up` with all its children
    FREEZE = "freeze"  # agent, scheduler or API stands still, longer than a lease or not, and goes on
    DRAIN = "drain"  # a node, for a while
    STOP = "stop"  # a job
    AGAIN = "again"  # a submit that was answered is sent again


WEIGHTS = {
    Kind.ENGINE: 5.0,
    Kind.ENGINE_STOP: 1.0,
    Kind.DRIVER: 1.5,
    Kind.COORDINATOR: 1.5,
    Kind.RANK: 1.5,
    Kind.SUPERVISOR: 1.5,
    Kind.AGENT: 2.0,
    Kind.SCHEDULER: 1.5,
    Kind.API: 1.5,
    Kind.BROKER: 1.0,
    Kind.DATABASE: 1.0,
    Kind.PLATFORM: 0.5,
    Kind.FREEZE: 1.5,
    Kind.DRAIN: 1.0,
    Kind.STOP: 0.4,
    Kind.AGAIN: 0.6,
}
HITS = [kind for kind in Kind if kind not in {Kind.DRAIN, Kind.STOP, Kind.AGAIN}]
TOGETHER = 0.15
"""So often several die at once."""
PAUSE_SECONDS = (0.3, 2.5)


@dataclass(frozen=True)
class Blow:
    """One thing to do. ``aim`` in [0, 1) says to which of those there are."""

    kind: Kind
    aim: float


@dataclass(frozen=True)
class Choice:
    """What is done at once, and after how many seconds since the last."""

    pause: float
    blows: tuple[Blow, ...]

    def __str__(self) -> str:
        return "+".join(blow.kind for blow in self.blows)


def choices(seed: int) -> Iterator[Choice]:
    """The choices of a seed, without end."""
    dice = random.Random(seed)
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    while True:
        pause = dice.uniform(*PAUSE_SECONDS)
        if dice.random() < TOGETHER:
            several = dice.sample(HITS, dice.randint(2, 4))
            yield Choice(pause, tuple(Blow(kind, dice.random()) for kind in several))
        else:
            [kind] = dice.choices(kinds, weights)
            yield Choice(pause, (Blow(kind, dice.random()),))
