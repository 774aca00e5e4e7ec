"""The contract of the decision: the state that ``plan`` gets and the plan that it returns. Pure data.

Slots are counted per node. The code that applies the plan chooses the slot of a node and the engine that leaves.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health


class Phase(enum.StrEnum):
    """The phase of a job, for the planner."""

    WAITING = "waiting"  # no attempt: it may start anywhere
    RUNNING = "running"  # its attempt holds slots and may be resized
    ENDING = "ending"  # its attempt is ending: it gets nothing, and its slots come free


@dataclass(frozen=True)
class Node:
    """One node. ``free`` counts slots without an open allocation, so a slot that is being vacated is not free."""

    id: str
    slots: int
    free: int
    health: Health
    containers: bool = False
    """Whether the node runs jobs in containers, so that a job may bring its own image."""
    fixed: bool = False
    """Whether a container keeps the slots that it began with, so that a job that uses this node cannot grow there."""
    alone: bool = False
    """Whether engines on this node cannot reach engines on other nodes. No attempt spans this node and another."""
    device: Device = Device.CPU
    """Kind of its slots. No attempt spans nodes of both kinds."""


@dataclass(frozen=True)
class Job:
    """One job that is not over."""

    id: str
    submit: int
    """Place in the order of submission; it breaks ties."""
    max: int
    """The most slots the job may hold: numWorker × workerDeviceNum."""
    phase: Phase
    engines: int | None = None
    """E, the micro-batches of one step; None until the script has reported it."""
    alloc: Mapping[str, int] = field(default_factory=dict)
    """Node to slots that the job holds and that were not asked back."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Node to slots that were asked back and that the job still uses."""
    head_node: str | None = None
    """Node of the attempt's coordinator and driver. If the job keeps no slot there, the head node moves."""
    avoid: frozenset[str] = frozenset()
    """Nodes that this attempt is leaving. It gets no slot there until its supervisor there has ended."""
    not_before: float | None = None
    """The job gets no new slot before this time, in seconds since the epoch: back-off."""
    paused: str | None = None
    """Why it gets nothing until its user lets it go on; None: it is not paused. The ``not_before`` of a paused job is
    infinite."""
    locked: str | None = None
    """Why its environment cannot be opened; None: it can. The ``not_before`` of a locked job is infinite."""
    cap: int | None = None
    """The most slots until ``cap_until``; None: no cap. Set after a joining engine could not get the weights."""
    cap_until: float | None = None
    """When the cap ends, in seconds since the epoch."""
    image: str | None = None
    """Image for the job's containers; the job then needs nodes that start containers. None: any node will do."""
    device: Device | None = None
    """The only kind of slot that the job may get; None: either kind, but never both at once."""
    last_resize: float | None = None
    """Time of the job's newest resize, in seconds since the epoch; None: there was none."""
    gang: bool = False
    """Whether the job starts whole on ``max`` slots and is never resized. Other jobs are elastic."""
    unit: int = 1
    """Slots of one worker of a gang, which are all on one node: workerDeviceNum. 1 for elastic jobs."""

    @property
    def held(self) -> int:
        """The number of slots that the job holds."""
        return sum(self.alloc.values())


@dataclass(frozen=True)
class State:
    """What ``plan`` decides on: one consistent read of the database, at one instant."""

    now: float
    """Seconds since the epoch."""
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]


class Verb(enum.StrEnum):
    """What a plan does to a job."""

    START = "start"  # its next attempt begins
    GROW = "grow"
    SHRINK = "shrink"
    HAND_OVER = "hand-over"  # its head node moves to another node that it uses; nothing else changes
    MOVE = "move"  # all its nodes are being emptied: its attempt ends, and the job starts again elsewhere
    PAUSE = "pause"  # its user has paused it: its attempt ends


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

    CAPACITY = "capacity"  # other jobs hold the slots, by share or by submit order
    VACATING = "vacating"  # engines that were asked to leave still use the slots that it will get
    COOLDOWN = "cooldown"  # its back-off is not over
    NODES = "nodes"  # no node takes work
    PAUSED = "paused"  # its user has paused it
    KEY = "key"  # its environment is sealed with a key that the platform does not have


@dataclass(frozen=True)
class Explanation:
    """What the plan means for one job, in numbers."""

    target: int
    """The job's share: the slots that it should hold once the plan is carried out."""
    rank: int
    """Place among the waiting jobs; 1 is next; 0: the job does not wait."""
    need: int
    """Slots that the job needs to start; 0: the job does not wait."""
    free: int
    """Slots free now, on nodes that take work."""
    blocking: Blocking | None
    """What keeps the job from starting; None: the job does not wait."""
    reason: str
    """The job's situation in words, for people."""


@dataclass(frozen=True)
class Plan:
    """The planner's answer. ``alloc`` maps every job to the slots that it holds after the actions."""

    alloc: Mapping[str, Mapping[str, int]]
    actions: tuple[Action, ...]
    head_nodes: Mapping[str, str]
    """The head node of every job that holds slots then: the present one, or a successor among the nodes it keeps."""
    explain: Mapping[str, Explanation]
