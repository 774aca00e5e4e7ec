"""Plain data inside messages: frozen dataclasses, which are checked in the same way as the messages.

Mappings to ``Any`` are JSON of any form. The receiver compares them or passes them on; this package does not interpret
them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainingDefinition:
    """What defines a training. It must be equal in every driver of an attempt; all engines must have the same schedule
    and the same facts."""

    schedule: Mapping[str, Any]
    """The schedule, as ``Schedule.to_json_object`` returns it."""
    steps_total: int
    """Number of training steps of the whole training."""
    seed: int
    max_engines: int
    """The largest number of engines that can share a step (``Training.engines``)."""
    exact: bool = True
    """Whether gradients are added in an order that does not depend on the number of engines."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Lengths of the data sets and a digest of the first training sample. The keys are names that the user sees."""
    on_mismatch: str = "mark"
    """What happens when replicas differ: "mark", "stop" or "restore"."""
    require_exact: bool = False
    """Whether the training fails as soon as its result is no longer exact."""


@dataclass(frozen=True)
class ReplicaHistory:
    """What is known about the replicas of a training, over all its attempts. It is also part of every checkpoint."""

    compared: int = 0
    """Number of completed comparisons."""
    last_step: int | None = None
    """Training steps committed at the newest comparison in which all replicas were equal; None: there was none."""
    several: bool = False
    """Whether more than one engine has trained at the same time, at any point of the training."""
    ended: str = ""
    """Why the result is no longer exact; empty: no reason is known."""
    equal_at: int = 0
    """The newest offset at which all replicas are known to have been equal; a single replica counts as equal."""
    restored: bool = False
    """Whether the training has gone back to a checkpoint because replicas differed."""
    computing: Mapping[str, Any] | None = None
    """Hardware and libraries of the first engine, and their settings, by name; None: they are not known."""
    ended_where: Mapping[str, Any] | None = None
    """Further fields of the report about ``ended``: engine, step and difference, as far as they are known."""


@dataclass(frozen=True)
class ReplicaChecksums:
    """Checksums of everything that one engine holds as state, in an order that is the same in all engines."""

    values: tuple[str, ...]
    """The checksum of each tensor. A short setting is sent as it is, without a checksum."""
    names: tuple[str, ...] = ()
    """The names of the tensors and settings to which the values belong. Only the first engine in rank order sends
    names."""
    user_callbacks: bool = False
    """Whether user callbacks run in this engine; they can make replicas differ."""


class ComparisonReason(enum.StrEnum):
    """Why replicas are compared."""

    JOIN = "join"  # engines have joined or regrouped, and the first training step since is committed
    EPOCH = "epoch"  # an epoch has ended
    SETTINGS = "settings"  # an epoch has ended, and only settings are compared, since all would take too long
    INTERVAL = "interval"  # the user's interval has passed
    END = "end"  # the training has ended


@dataclass(frozen=True)
class EngineResult:
    """What an engine sends about the trained state, in ``TrainingFinished`` and in its status."""

    checksums: ReplicaChecksums | None = None
    """Checksums of the trained state. None: one engine trained, comparisons are switched off, or the checksums could
    not be computed."""
    digest: str | None = None
    """Digest of the trained weights. Only the first engine in rank order sends it."""
    step: int | None = None
    """Number of committed training steps. Only the first engine in rank order sends it."""


class EngineState(enum.StrEnum):
    """The state of an engine, which it reports to a coordinator that may be new."""

    JOINING = "joining"  # it has no state, and waits to join
    TRAINING = "training"
    SWITCHED_OUT = "switched-out"  # it has left the group in a planned change, and waits for ``ExitEngine``
    REGROUPING = "regrouping"  # its group is broken, or it has been called to a regroup; it waits for the plan
    SENDING = "sending"  # it sends the trained state to the driver
    ENDED = "ended"  # it has committed the last step


@dataclass(frozen=True)
class EngineStatus:
    """The status that an engine sends to a coordinator that may be new, in ``EngineConnected``."""

    state: EngineState
    generation: int = 0
    """The generation in which the engine works; 0: it has no state."""
    members: tuple[str, ...] = ()
    """The engines of that generation, in rank order. Some of them send it (``differences.sends_members``); empty: this
    one does not, or it has no state."""
    announced: int = 0
    """The newest generation that the engine has announced in a reduction. An announced generation cannot be taken
    back."""
    settled: int = 0
    """The newest generation in which all members work, according to the coordinator (``GenerationSettled``)."""
    known: int = 0
    """The highest generation number that a coordinator has sent to the engine, also of a generation that was never
    made. A new coordinator gives higher numbers only; 0: none."""
    regroup: int = 0
    """The newest regroup that the engine knows; 0: none."""
    step: int | None = None
    """Number of committed training steps when the engine began to work in this generation."""
    next_generation: int = 0
    """The generation whose switch made the engine leave its group; 0: it has not left."""
    result: EngineResult | None = None
    """The result; None: the engine has not committed the last step."""


@dataclass(frozen=True)
class RegroupStatus:
    """The status that a survivor sends when a regroup begins, in ``SurvivorStatus``."""

    offset: int
    """Offset of the survivor, in steps, or in micro-batches if the batch follows the engines."""
    has_reduced: bool
    """Whether the survivor still has the reduced gradients of the step that it committed last."""
    summed: tuple[tuple[int, int], ...] = ()
    """The micro-batches of the coming step that the survivor has summed already. They are subtrees of the tree
    reduction, each as (first micro-batch, last micro-batch + 1)."""
    ended: bool = False
    """Whether the survivor has committed the last step, so that no step follows."""
    micro_batches: int = 0
    """Number of micro-batches of the coming step. 0: the batch follows the engines, and no step follows."""
    offset_after: int | None = None
    """The offset after the coming step, if the batch follows the engines. None: it is ``offset + 1``."""


@dataclass(frozen=True)
class MembersDifference:
    """The members of a generation, as a difference from an earlier generation whose members the receiver holds. In rank
    order they are the earlier members without ``removed``, followed by ``added``."""

    base: int
    """The earlier generation."""
    removed: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class PlanDifference:
    """The members and the split of a ``RegroupPlan`` in few bytes."""

    members: MembersDifference
    runs: tuple[tuple[int, int, int, int], ...]
    """The split. A run is (first rank, number of ranks, first micro-batch, micro-batches of each rank): these ranks
    have consecutive micro-batches, one rank after the other. A rank may be in several runs."""


class CatchUp(enum.StrEnum):
    """What engines that are one step behind receive before a regrouped training goes on."""

    NOTHING = ""  # no engine is behind
    REDUCED = "reduced"  # the reduced gradients of the step that they lack
    STATE = "state"  # the whole state


@dataclass(frozen=True)
class RegroupPlan:
    """How the engines of a regroup continue. All lists of engines contain names (allocation ids).

    An engine is told its own part of the catch-up and the repair: a sender is told all receivers, a receiver all
    senders and itself, and an engine that is neither is told none.
    """

    members: tuple[str, ...]
    """The survivors in rank order."""
    offset: int
    """The offset of all survivors after the catch-up."""
    behind: tuple[str, ...]
    """The engines that have not committed the last step."""
    sources: tuple[str, ...]
    """The engines that send to the engines behind: a single engine for the reduced gradients, or several for the
    state."""
    catch_up: CatchUp
    split: tuple[tuple[int, ...], ...]
    """The micro-batches of each rank in the coming step: those that it keeps and those that it computes again."""
    recomputed: int
    """Number of micro-batches that are computed again."""
    repair_source: str = ""
    """The engine that sends its state to ``repaired`` after the catch-up; empty: no engine is repaired."""
    repaired: tuple[str, ...] = ()
    """The engines whose replicas differ, or all other engines if the training goes back to a checkpoint."""
    restore: int | None = None
    """``repair_source`` first loads the newest checkpoint of this offset or an earlier one. None: it loads none."""


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a training."""

    offset: int
    """Offset of the training when the micro-batch was computed."""
    index: int
    """Number of the micro-batch in its step, beginning with 0."""


@dataclass(frozen=True)
class MetricItem:
    """Loss and metrics of one committed training step or of one validation."""

    phase: str
    """``StepKind``: "train" or "validate"."""
    step: int
    """Number of training steps committed, over all epochs."""
    iteration: int
    """Number of micro-batches committed, over all epochs. WMLA's loggers call this iteration."""
    epoch: int
    """1-based."""
    workers: int
    """Number of engines that shared the step. WMLA's loggers call them workers."""
    metrics: Mapping[str, float | None]
    """Values by name, including "loss", over the epoch so far. None: the value is not a number, or is infinite."""
    time: float
    """Wall-clock time of the engine, in seconds since 1970-01-01 UTC."""
