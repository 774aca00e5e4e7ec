"""The contract of the decision: the state that ``plan`` gets and the plan that it returns. Pure data.

Shares are decided in numbers of slots of each node. Which slots these are is decided last, by name, if the state names
them: the database's states do, a simulator's need not.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health, ResizeCause
from edt_scheduler.plan.curves import Point
from edt_scheduler.plan.queues import Queue
from edt_scheduler.plan.worth import Weights


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
    model: str = ""
    """Model of its GPUs, in lower case; "": they are all alike, or not GPUs. No attempt spans two models."""
    free_slots: tuple[str, ...] = ()
    """The names of its free slots, in the node's order. Empty also where a state names no slots."""
    only_for: str | None = None
    """The only job that may use it: its pool's cluster manager was asked for it by this job. None: any job may."""


@dataclass(frozen=True)
class Requested:
    """One node that a pool's cluster manager was asked for and that is not gone."""

    node: str
    """The node's name, also before it is there."""
    asked_at: float
    """When, in seconds since the epoch."""
    job: str | None = None
    """The job that asked for it; None: it is for any job."""
    granted: bool = False
    """Whether it is there: its agent has registered."""
    ending: bool = False
    """Whether it is given up already."""
    reason: str = ""
    """Why it is not there, in the cluster manager's own words."""


@dataclass(frozen=True)
class Refusal:
    """A node that did not come within its pool's patience."""

    until: float
    """When its job may ask the pool again, in seconds since the epoch."""
    reason: str = ""
    """Why it did not come, in the cluster manager's own words."""


@dataclass(frozen=True)
class Pool:
    """Nodes that another cluster manager gives and takes: Kubernetes, Slurm."""

    id: str
    slots: int
    """Slots of each node."""
    most: int
    """The most nodes, as an administrator has set it."""
    least: int = 0
    """The fewest nodes, idle ones too."""
    per_job: bool = True
    """Whether each node is asked for by one job and used by no other."""
    device: Device = Device.CPU
    model: str = ""
    """Model of its GPUs, in lower case; "": they are all alike, or not GPUs."""
    containers: bool = False
    """Whether a node starts in the image that a job asks for."""
    patience: float = 120.0
    """Seconds after which a node that does not come is given up."""
    requested: tuple[Requested, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Job ("": any) to why a node did not come in time, and when it may ask again."""
    away: bool = False
    """Whether its provisioner is not heard from, or the cluster manager does not answer: nothing new is asked for."""


@dataclass(frozen=True)
class Freed:
    """Who held a slot that has just become free."""

    job: str
    at: float
    """When, in seconds since the epoch."""
    ended: str | None = None
    """What has become of the job if it needs the slot no more: "is FINISHED" or "has finished training"."""
    lost: bool = False
    """Whether the engine there was lost or failed, so that another one may come in its place."""


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
    allowed: tuple[int, ...] = ()
    """The only sizes that the job may have, smallest first; empty: those at which a step takes fewer rounds."""
    points: tuple[Point, ...] = ()
    """The step times that were measured, of the job itself or of earlier jobs like it."""
    steps_left: float | None = None
    """How many steps its training still has; None: its script has not said."""
    speeds: tuple[tuple[int, float], ...] | None = None
    """Its sizes and its speed at each beside one worker, where they are known otherwise than by ``points``. Then
    ``steps_left`` counts seconds of one worker."""
    attained: float = 0.0
    """Slot-seconds that it has held so far."""
    user: str = ""
    queue: str = ""
    """Path of its queue; "": the root."""
    priority: int = 1
    """Its priority class. Jobs of a higher class get their least size before all others, and what they can use."""
    min: int = 1
    """The fewest slots with which it trains. It starts with as many, and has either so many or none."""
    submitted: float = 0.0
    """When it was submitted, in seconds since the epoch."""
    after: tuple[str, ...] = ()
    """Jobs that must be over before it starts, and are not."""
    deadline: float | None = None
    """When its user wants it to be done, in seconds since the epoch. Its least size is raised to what that takes."""
    ends_by: float | None = None
    """When its time limit ends it at the latest, in seconds since the epoch; None: it has none, or has not started."""
    time_limit: float | None = None
    """For how many seconds it may still train; None: for as long as it takes."""
    models: tuple[str, ...] = ()
    """The only models of GPUs that it may get, in lower case; empty: any."""
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node to the names of the slots in ``alloc`` and ``until_joined``, in the order in which they are given back:
    first those that the node does not have any more, then the youngest. Empty also where a state names no slots."""
    attempts: int = 0
    """How many attempts it has had."""
    engines_at: float | None = None
    """When its script has reported E, in seconds since the epoch."""
    pause: float = 0.5
    """Seconds that a resize costs it: the mean of its own, or of all jobs."""
    until_joined: Mapping[str, int] = field(default_factory=dict)
    """Node to slots that it leaves as soon as an engine on those in ``alloc`` has joined its training."""
    joined: Mapping[str, int] | None = None
    """Node to the engines of the job there that have joined its training; None: all have."""

    @property
    def held(self) -> int:
        """The number of slots that the job holds."""
        return sum(self.alloc.values())

    @property
    def used(self) -> Counter[str]:
        """Node to all slots that the job uses: those that it holds, that it keeps for now, and that it is leaving."""
        used = Counter(self.alloc)
        used.update(self.until_joined)
        used.update(self.leaving)
        return used


@dataclass(frozen=True)
class State:
    """What ``plan`` decides on: one consistent read of the database, at one instant."""

    now: float
    """Seconds since the epoch."""
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    queues: tuple[Queue, ...] = ()
    usage: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(queue, user) to the slot-seconds of the past, decayed."""
    pools: tuple[Pool, ...] = ()
    freed: Mapping[tuple[str, str], Freed] = field(default_factory=dict)
    """(node, slot) to who has just left it, for the slots that are free again since a minute or so."""
    weights: Weights = field(default_factory=Weights)
    """The parameters of the policy."""
    still: bool = False
    """Whether no job is gathered on fewer nodes: the state holds nodes that are not there yet (asking.py)."""


class Verb(enum.StrEnum):
    """What a plan does to a job."""

    START = "start"  # its next attempt begins
    GROW = "grow"
    SHRINK = "shrink"
    PREEMPT = "preempt"  # others are entitled to its slots: its attempt ends, and the job waits
    GATHER = "gather"  # it has as many slots as before, on fewer nodes
    RELOCATE = "relocate"  # it gets slots on other nodes, and keeps its own until an engine there has joined
    LEAVE = "leave"  # an engine elsewhere has joined: it leaves the slots that it kept until then
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
    """Why, in words, with names and numbers."""
    cause: ResizeCause = ResizeCause.ROOM
    """Why, as a code."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What the decision was reckoned with: ``share`` and ``entitled`` in slots, and ``gain``, what its next slot is
    worth beside the price of a slot."""


class Blocking(enum.StrEnum):
    """What keeps a waiting job from starting."""

    CAPACITY = "capacity"  # other jobs hold the slots, by share or by submit order
    VACATING = "vacating"  # engines that were asked to leave still use the slots that it will get
    COOLDOWN = "cooldown"  # its back-off is not over
    NODES = "nodes"  # no node takes work
    PAUSED = "paused"  # its user has paused it
    KEY = "key"  # its environment is sealed with a key that the platform does not have
    QUOTA = "quota"  # its user or queue has all that it is entitled to, or its queue's limit
    PRIORITY = "priority"  # jobs of a higher priority hold the slots, or come first
    RESERVED = "reserved"  # the slots are kept for a gang that waits for longer
    TOPOLOGY = "topology"  # enough slots, but not where it can use them together
    DEPENDENCY = "dependency"  # a job that must be over first is not
    ASKED = "asked"  # another cluster manager was asked for nodes, and they are not there


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
    entitled: int = 0
    """Slots to which its user is entitled in its queue, for all of the user's jobs there."""
    gain: float = 0.0
    """What its next slot is worth to it beside the price of a slot; below 1, others make more of it; 0: it can use no
    more."""
    price: float = 0.0
    """What the last slot that was given out was worth."""
    by: tuple[str, ...] = ()
    """Jobs that keep it from starting: those that hold or come first, the most important first; at most a few."""


@dataclass(frozen=True)
class Ask:
    """Nodes that a pool's cluster manager is to be asked for."""

    pool: str
    job: str | None
    """The job that asks; None: they are for any job."""
    nodes: int
    first: bool = True
    """Whether the job needs them to start. Otherwise it only grows by them."""
    group: int = 0
    """How many nodes the job needs at once, because it is a gang; 0: it is none."""


@dataclass(frozen=True)
class GiveUp:
    """A node that a pool's cluster manager was asked for and that is not wanted any more."""

    node: str
    why: str
    refused: bool = False
    """Whether it did not come within its pool's patience, so that its job asks for none for a while."""


@dataclass(frozen=True)
class Plan:
    """The planner's answer. ``alloc`` maps every job to the slots that it holds after the actions."""

    alloc: Mapping[str, Mapping[str, int]]
    actions: tuple[Action, ...]
    head_nodes: Mapping[str, str]
    """The head node of every job that holds slots then: the present one, or a successor among the nodes it keeps."""
    explain: Mapping[str, Explanation]
    until_joined: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Job to the slots that it keeps besides until an engine on its new ones has joined (``Job.until_joined``)."""
    gives: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Job to node to the names of the free slots that it gets. Empty where the state names none."""
    takes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Job to node to the names of the slots that it gives back. Empty where the state names none."""
    asks: tuple[Ask, ...] = ()
    """Nodes to ask for, beside those that were asked for before."""
    give_ups: tuple[GiveUp, ...] = ()
