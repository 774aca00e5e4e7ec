"""Plain data inside messages: frozen dataclasses, checked like the messages themselves.

Mappings to ``Any`` are free JSON. They are compared or handed on, and not interpreted here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainingDefinition:
    """Which training this is. It must be equal in the driver and in all engines, and in every driver of an attempt."""

    schedule: Mapping[str, Any]
    """``Schedule.to_json_object()``."""
    steps_total: int
    """Training steps of the whole training."""
    seed: int
    max_engines: int
    """The most engines that can share a step: E, or where the batch follows the engines what an epoch has of them."""
    exact: bool = True
    """Whether gradients are added in an order that does not depend on the number of engines."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Lengths of the data sets and a digest of the first training sample, by the names that a user is shown."""
    on_mismatch: str = "mark"
    """What happens when replicas differ: "mark", "stop" or "restore"."""
    require_exact: bool = False
    """Whether the training fails as soon as its result is no longer exact."""


@dataclass(frozen=True)
class ReplicaHistory:
    """What is known about the replicas of a training, over all its attempts. It is also part of every checkpoint."""

    compared: int = 0
    """Comparisons that were completed."""
    last_step: int | None = None
    """Training step of the newest comparison in which all replicas were equal."""
    several: bool = False
    """Whether more than one engine has ever trained at a time."""
    ended: str = ""
    """Why the result is no longer exact; empty: nothing is known against it."""
    equal_at: int = 0
    """The newest offset at which all replicas are known to have been equal; a single replica counts as equal."""
    restored: bool = False
    """Whether the training has gone back to a checkpoint because replicas differed."""
    computing: Mapping[str, Any] | None = None
    """What the first engine computes with (processor, libraries, their settings), by name."""
    ended_where: Mapping[str, Any] | None = None
    """What else was reported with ``ended``: engine, step and difference, as far as they are known."""


@dataclass(frozen=True)
class ReplicaChecksums:
    """Checksums of everything that one engine holds as state, in an order that is the same in all engines."""

    values: tuple[str, ...]
    """The checksum of each tensor; a short setting stands for itself."""
    names: tuple[str, ...] = ()
    """What each value is of. Only the first engine in rank order sends names."""
    user_callbacks: bool = False
    """Whether user callbacks run in this engine; they may be why replicas differ."""


class ComparisonReason(enum.StrEnum):
    """Why replicas are compared."""

    JOIN = "join"  # engines have joined, and the first training step since is committed
    EPOCH = "epoch"  # an epoch has ended
    INTERVAL = "interval"  # the user's interval has passed
    END = "end"  # the training has ended


@dataclass(frozen=True)
class EngineResult:
    """What an engine tells of the trained state."""

    checksums: ReplicaChecksums | None = None
    """None: one engine trained, comparisons are switched off, or the checksums could not be computed."""
    digest: str | None = None
    """Digest of the trained weights. Only the first engine in rank order sends it."""
    step: int | None = None
    """Committed training steps. Only the first engine in rank order sends it."""


class EngineState(enum.StrEnum):
    """Where an engine is in its life, for a coordinator that has just started."""

    JOINING = "joining"  # it has no state, and waits to join
    TRAINING = "training"
    SWITCHED_OUT = "switched-out"  # it has left the group by a planned change, and waits to be told that it may exit
    REGROUPING = "regrouping"  # its group is broken; it waits for a regroup
    SENDING = "sending"  # the trained state, to the driver
    ENDED = "ended"  # it has committed the last step


@dataclass(frozen=True)
class EngineStatus:
    """What an engine knows of itself, for a coordinator that may be new."""

    state: EngineState
    generation: int = 0
    """The generation it works in; 0: it has no state."""
    members: tuple[str, ...] = ()
    """The engines of that generation, in rank order."""
    announced: int = 0
    """The newest generation that it has announced in a reduction; what was announced cannot be taken back."""
    settled: int = 0
    """The newest generation of which the coordinator has said that all work by it."""
    regroup: int = 0
    """The newest regroup that it has heard of; 0: none."""
    step: int | None = None
    """Committed training steps when it began to work in this generation."""
    next_generation: int = 0
    """Of an engine that has left its group: the generation that it left for; else 0."""
    result: EngineResult | None = None
    """Of an engine that has committed the last step."""


@dataclass(frozen=True)
class RegroupStatus:
    """Where a survivor stands when a regroup begins."""

    offset: int
    """How far it has committed the training, in steps, or in micro-batches where the batch follows the engines."""
    has_reduced: bool
    """Whether it still holds the reduced gradients of the step that it committed last."""
    summed: tuple[tuple[int, int], ...] = ()
    """Micro-batches of the coming step that it has summed already: subtrees of the tree reduction, each as (first
    micro-batch, the one after the last)."""
    ended: bool = False
    """Whether it has committed the last step, so that no step comes."""
    micro_batches: int = 0
    """Of the coming step. 0: where the batch follows the engines, no step comes."""
    offset_after: int | None = None
    """Where the coming step ends, where the batch follows the engines. None: at ``offset + 1``."""


class CatchUp(enum.StrEnum):
    """What engines that are one step behind receive before a regrouped training goes on."""

    NOTHING = ""  # nobody is behind
    REDUCED = "reduced"  # the reduced gradients of the step that they lack
    STATE = "state"  # the whole state


@dataclass(frozen=True)
class RegroupPlan:
    """How the survivors go on. All lists of engines are of names (allocation ids)."""

    members: tuple[str, ...]
    """The survivors in rank order."""
    offset: int
    """Where all stand once those behind have caught up."""
    behind: tuple[str, ...]
    """The engines that have not committed the last step."""
    sources: tuple[str, ...]
    """The engines that send to those behind: one of them its reduced gradients, or all of them the state."""
    catch_up: CatchUp
    split: tuple[tuple[int, ...], ...]
    """Micro-batches of each rank at the coming step: those that it keeps and those that it computes again."""
    recomputed: int
    """How many micro-batches are computed again."""
    repair_source: str = ""
    """The engine that sends its state to ``repaired``, after those behind have caught up; empty: nobody is
    repaired."""
    repaired: tuple[str, ...] = ()
    """The engines whose replicas differ, or all others where the training goes back to a checkpoint."""
    restore: int | None = None
    """``repair_source`` first loads the newest checkpoint of this offset or before. None: it loads none."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a training."""

    offset: int
    """Where the training stood when it was computed."""
    index: int
    """0 .. micro-batches of the step - 1."""


@dataclass(frozen=True)
class MetricItem:
    """Loss and metrics of one committed training step or of one validation."""

    phase: str
    """``StepKind``: "train" or "validate"."""
    step: int
    """Training steps committed, over all epochs."""
    iteration: int
    """Micro-batches committed, over all epochs; what WMLA's loggers call iteration."""
    epoch: int
    """1-based."""
    workers: int
    """Engines that shared the step; what WMLA's loggers call workers."""
    metrics: Mapping[str, float | None]
    """Values by name, "loss" among them: of the epoch so far. None: not a number, or infinite."""
    time: float
    """Seconds since the epoch by the engine's wall clock."""
