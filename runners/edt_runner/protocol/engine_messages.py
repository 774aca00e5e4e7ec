"""Messages between engines and the coordinator, in the order in which they occur in the life of an engine.

The name of an engine is its allocation id in decimal digits. A generation is the number of a membership. A regroup is
the number of a try to form a group again after a loss. An offset is how far a training is in its schedule: it is
counted in steps, or in micro-batches if the batch follows the engines. An address is ``host:port``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from edt_runner.protocol.data import (
    ComparisonReason,
    EngineResult,
    EngineStatus,
    RegroupPlan,
    RegroupStatus,
    ReplicaChecksums,
    ReplicaHistory,
    TrainingDefinition,
)
from edt_runner.protocol.messages import Message, Role

_ENGINE, _COORDINATOR, _DRIVER = Role.ENGINE, Role.COORDINATOR, Role.DRIVER


# ── connecting ────────────────────────────────────────────────────────────────────────────────────────────────────
class EngineConnected(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this after its hello, each time it has connected: the coordinator may be a new one. The
    coordinator answers with ``TrainingDefined`` once the driver has begun, and with ``ReplicasChanged`` where the
    engine has the state. An engine that is not wanted any more gets ``ExitEngine``."""

    status: EngineStatus
    computing: Mapping[str, Any] = field(default_factory=dict)
    """This engine's hardware and libraries, and their settings, by name."""
    history: ReplicaHistory | None = None
    """The newest history of the replicas that this engine has received; None: it has received none."""


class TrainingDefined(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to every connected engine when the driver has begun, and to each engine that connects
    later. It has no answer. An engine whose own schedule is another one raises StateMismatch."""

    definition: TrainingDefinition


# ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────────
class JoinRequest(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it can receive the state, and again after ``JoinAgain`` and ``JoinCancelled``.
    The coordinator answers with ``ReceiveStateFromDriver`` if no engine has the state yet, else with
    ``PrepareGeneration`` when the next change begins, or with ``RefuseEngine``."""

    facts: Mapping[str, Any]
    """Facts about this engine's own data, as in ``TrainingDefinition.facts``."""
    addresses: tuple[str, ...]
    """The addresses at which this engine's data sockets listen."""
    regroup: int
    """The newest regroup that this engine knows. If the coordinator has sent ``JoinAgain`` with a newer one since, this
    request is stale."""


class ReceiveStateFromDriver(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the first engine of an attempt, while the driver gets ``SendStateToEngine``. The
    engine builds a group of two as rank 1, receives the initial state, and answers with ``StateReceived``. If the
    driver is lost meanwhile it sends ``JoinRequest`` again."""

    key: str
    """Name of the group of two in the store."""
    generation: int
    """The generation whose only member is this engine."""
    store: str = ""
    """Address of the TCPStore."""


class ReceiveStateFromMembers(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to each joining engine when the first member has sent ``Switching``: all members
    switch at the same offset, and stream the state while they compute that step. The engine receives it in the group
    that it has built, and answers with ``StateReceived``."""

    generation: int


class StateReceived(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it has the whole state and works in the group. The coordinator answers with
    ``ReplicasChanged``, and with ``GenerationSettled`` once all of the generation have switched or joined."""

    generation: int
    step: int
    """Number of committed training steps of the state."""


class PullFailed(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it has had no state for EDT_PULL_WEIGHT_TIME_OUT seconds. The coordinator
    answers with ``JoinCancelled`` or ``JoinContinues``."""


class JoinCancelled(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator's answer to ``PullFailed`` where the change could be taken back: the state will not come. The
    engine sends ``JoinRequest`` again, or ends with PULL_FAILED after EDT_PULL_FAILED_LIMITS failures."""


class JoinContinues(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator's answer to ``PullFailed`` where members have switched already: the state is on its way. The
    engine goes on waiting, without a limit. It has no answer."""


class JoinAgain(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to an engine whose state is incomplete, or will not come from those it waits for. The
    engine's data sockets are shut, it forgets what it has received, and answers with ``JoinRequest``."""

    regroup: int
    addresses: tuple[str, ...]
    """Addresses of all engines' data sockets and of the store. The receiver shuts its connections to them."""


class RefuseEngine(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to a joining engine that computes with something else than the others, where the
    training requires an exact result. The engine ends with PULL_FAILED."""

    why: str
    """For the engine's log."""


# ── planned changes ───────────────────────────────────────────────────────────────────────────────────────────────
class PrepareGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of the old and of the new membership when engines shall join or leave.
    Each builds the new group in the background while training goes on, and answers with ``GroupBuilt`` or
    ``GroupBuildFailed``."""

    generation: int
    members: tuple[str, ...]
    """The new membership in rank order."""
    surviving: tuple[str, ...]
    """Members of the new membership that are also in the old one."""
    joining: tuple[str, ...]
    """Members of the new membership that are not in the old one."""
    store: str = ""
    """Address of the TCPStore."""


class GroupBuilt(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when it has built the group of a generation; a leaving engine sends it at once. When all
    have, the coordinator answers with ``CommitGeneration``."""

    generation: int


class GroupBuildFailed(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when it could not build the group of a generation. The coordinator answers all with
    ``CancelGeneration`` and tries again later."""

    generation: int
    why: str
    """For the coordinator's log."""


class CommitGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of a change when all have built the group. From now on each member
    announces the generation in its reductions. After the first reduction in which all announced it they switch, and
    send ``Switching``."""

    generation: int


class RetractGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the old members when a joining engine is lost or has given up after the commit and
    before the switch. Each answers with ``RetractAnswer``."""

    generation: int


class RetractAnswer(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A member's answer to ``RetractGeneration``. One promise is enough: the coordinator sends ``CancelGeneration``.
    If there is none, the switch is certain: joining engines that wait get ``JoinContinues``, and a loss starts a
    regroup."""

    generation: int
    promised: bool
    """Whether this engine has not announced the generation, and promises that it never will."""


class CancelGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of a change that will not be made. They forget the generation and
    close its group. It has no answer."""

    generation: int


class Switching(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A member sends this when all have announced a generation: it works by that from the coming step on, or has left
    the group if it is not part of it. The coordinator answers the first of these with ``ReceiveStateFromMembers`` to
    each joining engine, and the last with ``ExitEngine`` to each leaving engine."""

    generation: int
    offset: int
    """Offset of the first step in the new membership."""


class GenerationSettled(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all members when all of them work by a generation: after the start, a planned
    change, or a regroup. They close the groups of before. It has no answer."""

    generation: int


# ── regroups ──────────────────────────────────────────────────────────────────────────────────────────────────────
class GroupLost(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when its group is broken and it has heard of no newer regroup. The coordinator answers with
    ``StartRegroup`` to all engines that have the state, now or when it knows what every engine of a regroup under way
    can reach."""

    generation: int
    """The generation in which the engine worked."""
    regroup: int
    """The newest regroup that the engine knows."""
    unreachable: tuple[str, ...] = ()
    """The engines that this engine could not reach when the group of that regroup was not built."""
    built: bool = False
    """Whether this engine had built the group of that regroup."""


class StartRegroup(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to every engine that has the state when one of them is lost, when their group is
    broken, or when replicas differ. Its data sockets are shut, which ends whatever it is blocked in, and every planned
    change is void. Each answers with ``SurvivorStatus``."""

    regroup: int
    addresses: tuple[str, ...]
    """Addresses of all engines' data sockets and of the store. The receiver shuts its connections to them."""


class SurvivorStatus(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine's answer to ``StartRegroup``, when it is out of its group. When all have answered, the coordinator
    sends ``ApplyRegroupPlan`` to each."""

    regroup: int
    status: RegroupStatus
    addresses: tuple[str, ...]
    """The addresses at which this engine's data sockets listen now."""
    probe_address: str
    """The address at which other engines test whether they can reach this engine."""


class ApplyRegroupPlan(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all survivors when all have said where they stand. Each builds the new group,
    catches up or helps others to, and answers with ``Regrouped``. If the group is not built or breaks again it answers
    with ``GroupLost``, and if there is no checkpoint to go back to, with ``CheckpointMissing``."""

    regroup: int
    generation: int
    plan: RegroupPlan
    lost: tuple[str, ...] = ()
    """Engines that were lost since the last group worked."""
    probe_addresses: Mapping[str, str] = field(default_factory=dict)
    """The probe address of each survivor, by its name."""
    store: str = ""
    """Address of the TCPStore."""


class Regrouped(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A survivor sends this when it works in the new group. When all have, the coordinator answers with
    ``GenerationSettled``."""

    regroup: int


class CheckpointMissing(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """The repair source of a regroup sends this when there is no checkpoint of the wanted offset or before. The
    training fails: the driver gets ``ScriptFailed``."""

    why: str


# ── replicas ──────────────────────────────────────────────────────────────────────────────────────────────────────
class ChecksumsTaken(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every member sends this for the same committed steps: after a join, at an epoch's end, or at the user's
    interval. The coordinator compares them once all members have sent theirs, and answers with ``ReplicasChanged``;
    where they differ it does what the user has asked for."""

    generation: int
    members: tuple[str, ...]
    """The engines of the generation, in rank order."""
    offset: int
    """Offset of the training after the step."""
    step: int
    """Number of training steps committed."""
    reason: ComparisonReason
    checksums: ReplicaChecksums
    seconds: float
    """Duration of taking the checksums, in seconds."""
    seconds_per_offset: float
    """Seconds for each unit of the offset since the previous comparison."""


class ReplicasChanged(Message, sender=_COORDINATOR, receiver=(_ENGINE, _DRIVER)):
    """The coordinator sends this to the driver and to every engine that has the state when something new is known
    about the replicas, and to each engine that gets the state or connects again. Engines write it into checkpoints,
    the driver keeps it for a coordinator that is new. It has no answer."""

    history: ReplicaHistory
    compare_from: int = 0
    """No comparison is made at an epoch's end before this offset, because it would not be worth its time."""


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────
class TrainingFinished(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every member sends this when it has committed the last step. When all have, and their replicas are equal, the
    coordinator answers the first with ``SendStateToDriver``; the others wait for ``ExitEngine``."""

    generation: int
    result: EngineResult


class SendStateToDriver(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the first engine at the end, while the driver gets ``ReceiveStateFromEngine``. The
    engine builds a group of two as rank 0 and sends the trained state. It has no answer: the driver says when the
    state has arrived."""

    key: str
    """Name of the group of two in the store."""
    store: str = ""
    """Address of the TCPStore."""


class ExitEngine(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to an engine on which nobody counts any more: it has left, the training is over, or
    there is no place for it. The engine ends its process."""
