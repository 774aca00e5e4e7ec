"""The contract of the decision: what it is shown and what it answers. Pure data.

Slots are counted per node; which slot of a node, and which engine leaves, is the business of whoever applies.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from edt_scheduler.model.states import Health


class Phase(enum.StrEnum):
    """Where a job stands, for the planner."""

    WAITING = "waiting"  # no attempt: it may start anywhere
    RUNNING = "running"  # its attempt holds slots and may be resized
    ENDING = "ending"  # its attempt is on its way out: it gets nothing, what it holds comes free


@dataclass(frozen=True)
class Node:
    """One node. ``free`` slots carry no open allocation: what is being vacated is not free."""

    id: str
    slots: int
    free: int
    health: Health
    containers: bool = False
    """It runs jobs in containers, so a job may bring an image of its own."""
    fixed: bool = False
    """A container keeps the slots that it begins with: a job that is there cannot grow there."""
    alone: bool = False
    """Engines there and engines of other nodes cannot reach each other, so no attempt spans it and another."""


@dataclass(frozen=True)
class Job:
    """One job that is not over."""

    id: str
    submit: int
    """Place in the order of submission: ties are broken by it."""
    max: int
    """numWorker × workerDeviceNum."""
    phase: Phase
    engines: int | None = None
    """E, the micro-batches of one step; None until the script has told it."""
    alloc: Mapping[str, int] = field(default_factory=dict)
    """Node to slots that it holds and that were not asked back."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Node to slots that were asked back and are still in use."""
    head_node: str | None = None
    """Node of the attempt's coordinator and driver. It holds a slot there; without one the head node moves."""
    avoid: frozenset[str] = frozenset()
    """Nodes that this attempt is leaving: until its supervisor there has ended, no other can take its place."""
    not_before: float | None = None
    """No new slot before this time: back-off."""
    locked: str | None = None
    """Why its environment cannot be opened, so that nothing of it may start; its ``not_before`` is infinite then."""
    cap: int | None = None
    """No more slots than this until ``cap_until``: its joining engines could not get the weights."""
    cap_until: float | None = None
    image: str | None = None
    """Image that its containers are to be made of: only nodes that start containers will do."""
    last_resize: float | None = None

    @property
    def held(self) -> int:
        return sum(self.alloc.values())


@dataclass(frozen=True)
class State:
    """What a plan is made of: one consistent read, at one instant."""

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]


class Verb(enum.StrEnum):
    """What is done to a job."""

    START = "start"  # its next attempt begins
    GROW = "grow"
    SHRINK = "shrink"
    HAND_OVER = "hand-over"  # its head node moves to another of its nodes, and nothing else changes
    MOVE = "move"  # all its nodes are being emptied: it leaves everywhere and starts again elsewhere


@dataclass(frozen=True)
class Action:
    """One change, with its reason in words. ``before`` and ``after`` count slots."""

    job: str
    verb: Verb
    before: int
    after: int
    reason: str


class Blocking(enum.StrEnum):
    """What keeps a waiting job from starting."""

    CAPACITY = "capacity"  # others hold the slots, by share or by submit order
    VACATING = "vacating"  # slots are on their way to it: engines that were asked to leave still use them
    COOLDOWN = "cooldown"  # it waits out a back-off
    NODES = "nodes"  # no node takes work
    KEY = "key"  # its environment is sealed with a key that is not there


@dataclass(frozen=True)
class Explanation:
    """What the plan means for one job, with numbers."""

    target: int
    """Its share: the slots it should hold once everything decided has happened."""
    rank: int
    """Place among the waiting jobs, 1 is next; 0: it does not wait."""
    need: int
    """Slots that would let it start; 0: it does not wait."""
    free: int
    """Slots free now, on nodes that take work."""
    blocking: Blocking | None
    reason: str


@dataclass(frozen=True)
class Plan:
    """The answer. ``alloc`` names every job of the state: what it holds once the actions are applied."""

    alloc: Mapping[str, Mapping[str, int]]
    actions: tuple[Action, ...]
    head_nodes: Mapping[str, str]
    """The head node of every job that holds slots then: where it was, or a successor among the nodes it keeps."""
    explain: Mapping[str, Explanation]
