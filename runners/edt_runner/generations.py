"""Generations of a training, and the change from one to the next, as plain data. Room: runners; pure.

A change passes through building, committed (or retracting, when it is being taken back) and settled; see
``membership``, which decides.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Phase(enum.Enum):
    """Where the training of this attempt stands."""

    RECOVERING = "recovering"  # this coordinator is not the first: it waits for all to say where they are
    WAITING = "waiting"  # for the driver to reach train(), or for a first engine that is ready
    STARTING = "starting"  # the driver hands the initial state to the first engine
    RUNNING = "running"
    ENDING = "ending"  # all ticks committed; the first engine hands the weights to the driver
    SUSPENDED = "suspended"  # the last engine has left; the next attempt goes on from its checkpoint
    DONE = "done"  # the driver has the weights
    FAILED = "failed"


class Step(enum.Enum):
    """How far a change has come."""

    BUILDING = "building"
    COMMITTED = "committed"
    RETRACTING = "retracting"


@dataclass(frozen=True)
class Generation:
    """One membership: its number and its engines in rank order."""

    number: int
    members: tuple[str, ...]


@dataclass
class Change:
    """The one change under way."""

    new: Generation
    old: Generation
    deadline: float
    step: Step = Step.BUILDING
    built: set[str] = field(default_factory=set)
    switched: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    retracting: set[str] = field(default_factory=set)
    complaining: set[str] = field(default_factory=set)
    tick: int | None = None

    @property
    def stayers(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.members if name in self.old.members)

    @property
    def newcomers(self) -> tuple[str, ...]:
        return tuple(name for name in self.new.members if name not in self.old.members)

    @property
    def leavers(self) -> tuple[str, ...]:
        return tuple(name for name in self.old.members if name not in self.new.members)

    @property
    def everybody(self) -> tuple[str, ...]:
        return self.old.members + self.newcomers


@dataclass(frozen=True)
class Send:
    """An effect: one message to ``driver``, ``supervisors``, ``leader`` or an engine by name."""

    to: str
    message: Mapping[str, Any]
