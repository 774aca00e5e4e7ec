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
    MembersDifference,
    PlanDifference,
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
    """An engine sends this after its ``Hello``, each time it has connected, because the coordinator may be a new one.
    The coordinator answers with ``TrainingDefined``, at once or when the driver has sent ``BeginTraining``, and with
    ``ReplicasChanged`` if the engine has the state. An engine that shall not train any more gets ``ExitEngine``. If
    messages on the old connection may be lost, the coordinator sends ``StartRegroup`` or ``JoinAgain``."""

    status: EngineStatus
    computing: Mapping[str, Any] = field(default_factory=dict)
    """This engine's hardware and libraries, and their settings, by name."""
    history: ReplicaHistory | None = None
    """The newest history of the replicas that this engine has received; None: it has received none."""
    holds: int = 0
    """A generation whose members this engine holds. On this connection, the coordinator may describe other memberships
    as differences from it; 0: none, so that the first membership is told whole."""


class TrainingDefined(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to every connected engine when the driver has sent ``BeginTraining``, and later to
    each engine that connects. An engine whose own schedule differs raises StateMismatch. It has no answer."""

    definition: TrainingDefinition


# ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────────
class JoinRequest(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it is ready to receive the state, and again after ``JoinAgain`` and
    ``JoinCancelled``. If no engine has the state yet, the coordinator answers the first such engine with
    ``ReceiveStateFromDriver``. Otherwise it answers with ``PrepareGeneration`` when the next change begins, or with
    ``RefuseEngine``. If the engine's data differ from the driver's, the engine is discarded, or the training fails if
    it is not running yet. If the coordinator counted on the engine's state, the other engines regroup without it."""

    facts: Mapping[str, Any]
    """Facts about this engine's own data, as in ``TrainingDefinition.facts``."""
    regroup: int
    """The newest regroup that this engine knows. If the coordinator has sent ``JoinAgain`` with a newer one since, this
    request is stale."""


class ReceiveStateFromDriver(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the first engine of an attempt. The driver gets ``SendStateToEngine``. The engine
    builds a group of two as rank 1, receives the initial state, and answers with ``StateReceived``. If the driver is
    lost during the transfer, the engine sends ``JoinRequest`` again."""

    key: str
    """Name of the group of two in the store."""
    generation: int
    """The generation whose only member is this engine."""
    store: str = ""
    """Address of the TCPStore."""


class ReceiveStateFromMembers(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to each joining engine when the first member has sent ``Switching``. All members
    switch at the same offset, and send the state while they compute that step. The joining engine receives the state in
    the group that it has built, and answers with ``StateReceived``."""

    generation: int


class StateReceived(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it has the whole state and works in the group. The coordinator answers with
    ``ReplicasChanged``. When all members have switched and all joining engines have the state, it sends
    ``GenerationSettled``."""

    generation: int
    step: int
    """Number of committed training steps of the state."""


class PullFailed(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A joining engine sends this when it has waited for the state for EDT_PULL_WEIGHT_TIME_OUT seconds. The
    coordinator answers with ``JoinCancelled`` or ``JoinContinues``."""


class JoinCancelled(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator's answer to ``PullFailed`` if the change could be taken back, so that the state will not come.
    The engine sends ``JoinRequest`` again. After more than EDT_PULL_FAILED_LIMITS failures it ends with PULL_FAILED
    instead."""


class JoinContinues(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator's answer to ``PullFailed`` if the change cannot be taken back, so that the state will come. The
    engine continues to wait, without a limit. It has no answer."""


class JoinAgain(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to an engine whose state is incomplete, or that waits for engines that will not send
    the state. The engine shuts its data sockets, drops what it has received, and answers with ``JoinRequest``."""

    regroup: int


class RefuseEngine(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to a joining engine whose hardware or libraries differ from those of the other
    engines, if the training requires an exact result. The engine ends with PULL_FAILED. It has no answer."""

    why: str
    """For the engine's log."""


# ── planned changes ───────────────────────────────────────────────────────────────────────────────────────────────
class PrepareGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of the old and the new membership when engines are to join or leave.
    Each engine of the new membership builds the new group in the background while the training continues. It answers
    with ``GroupBuilt`` or ``GroupBuildFailed``. A leaving engine builds nothing and answers with ``GroupBuilt`` at
    once."""

    generation: int
    members: tuple[str, ...]
    """The new membership in rank order; empty if there is a ``difference``."""
    joining: tuple[str, ...]
    """Members of the new membership that are not in the old one; empty if there is a ``difference``."""
    store: str = ""
    """Address of the TCPStore."""
    difference: MembersDifference | None = None
    """The new membership as a difference from one that the receiver holds; the joining engines are its ``added``. None:
    the membership is told whole."""

    @property
    def surviving(self) -> tuple[str, ...]:
        """Members of the new membership that are also in the old one, in rank order."""
        joining = set(self.joining)
        return tuple(name for name in self.members if name not in joining)


class GroupBuilt(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when it has built the group of a generation. A leaving engine sends it at once. When all
    engines of the change have sent it, the coordinator answers with ``CommitGeneration``."""

    generation: int
    faster: bool = True
    """Whether the engine is connected over the group's faster network, or is leaving."""


class GroupBuildFailed(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when it could not build the group of a generation. The coordinator sends
    ``CancelGeneration`` to all engines of the change and tries again later."""

    generation: int
    why: str
    """For the coordinator's log."""


class CommitGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of a change when all have sent ``GroupBuilt``. From then on each member
    announces the generation in its reductions. After the first reduction in which all members have announced it, they
    switch and send ``Switching``."""

    generation: int
    faster: bool = False
    """Whether all reductions of the generation go over its faster network; else they begin over the ordinary one."""


class RetractGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the old members when a joining engine is lost or has sent ``PullFailed`` after the
    commit, and no member has reported its switch. Each member answers with ``RetractAnswer``."""

    generation: int


class RetractAnswer(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A member's answer to ``RetractGeneration``. If one member promises, the coordinator sends ``CancelGeneration``.
    If none promises, the switch is certain: joining engines that have sent ``PullFailed`` get ``JoinContinues``, and if
    a joining engine is gone, a regroup starts."""

    generation: int
    promised: bool
    """Whether this engine has not announced the generation, and promises that it never will."""


class CancelGeneration(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all engines of a change that will not be made. They drop the generation and close
    its group. It has no answer."""

    generation: int


class Switching(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A member sends this when all members have announced a generation. From the coming step on it works in that
    generation; if it is not part of the generation, it has left the group. After the first such message the coordinator
    sends ``ReceiveStateFromMembers`` to each joining engine. After the last it sends ``ExitEngine`` to each leaving
    engine."""

    generation: int
    offset: int
    """Offset of the first step in the new membership."""


class GenerationSettled(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all members when all of them work in a generation: after the start, a planned
    change or a regroup. They close the groups of earlier generations. It has no answer."""

    generation: int


# ── regroups ──────────────────────────────────────────────────────────────────────────────────────────────────────
class GroupLost(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when its group is broken or was not built, and the coordinator has not started a newer
    regroup. The coordinator answers with ``StartRegroup`` to all engines that have the state. If a regroup is under
    way, it may first wait, at most 20 seconds, until the other engines have also reported which engines they cannot
    reach. If the coordinator counts the sender as gone, it discards the sender instead."""

    generation: int
    """The generation in which the engine worked."""
    regroup: int
    """The newest regroup that the engine knows."""
    unreachable: tuple[str, ...] = ()
    """The engines that this engine could not reach when the group of that regroup was not built."""
    built: bool = False
    """Whether this engine had built the group of that regroup."""


class StartRegroup(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to every engine that has the state, when one of them is lost, when their group is
    broken, or when replicas differ. The receiver shuts its data sockets, which ends any operation that blocks on them,
    and drops every planned change. It answers with ``SurvivorStatus``. An engine that has no state, because another
    coordinator has sent it ``JoinAgain``, answers with ``JoinRequest``."""

    regroup: int


class SurvivorStatus(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine's answer to ``StartRegroup``. It sends this when it has stopped using its group. When all engines of
    the regroup have answered, the coordinator sends ``ApplyRegroupPlan`` to each."""

    regroup: int
    status: RegroupStatus
    probe_address: str
    """The address at which other engines test whether they can reach this engine."""


class ApplyRegroupPlan(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to all survivors when all have sent ``SurvivorStatus``. Each builds the new group.
    Engines that are behind catch up, and others send them what they lack. Each then answers with ``Regrouped``. If the
    group is not built or breaks again, the engine answers with ``GroupLost``. If there is no checkpoint to go back to,
    the repair source answers with ``CheckpointMissing``."""

    regroup: int
    generation: int
    plan: RegroupPlan
    """If there is a ``difference``, without members and split."""
    lost: tuple[str, ...] = ()
    """Engines that were lost since the last group worked."""
    probe_addresses: Mapping[str, str] = field(default_factory=dict)
    """The probe addresses of the survivors that the receiver tests if the group is not built, by name."""
    store: str = ""
    """Address of the TCPStore."""
    difference: PlanDifference | None = None
    """Members and split of the plan, as a difference from a membership that the receiver holds. None: the plan has
    both."""


class Regrouped(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """A survivor sends this when it works in the new group. When all have sent it, the coordinator answers with
    ``GenerationSettled``."""

    regroup: int


class CheckpointMissing(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """The repair source of a regroup sends this when there is no checkpoint of the wanted offset or an earlier one. The
    training fails, and the coordinator sends ``ScriptFailed`` to the driver and to its own supervisor."""

    why: str


# ── replicas ──────────────────────────────────────────────────────────────────────────────────────────────────────
class ChecksumsTaken(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every member sends this for the same committed steps: after a join or a regroup, at the end of an epoch, or at
    the user's interval. When all members have sent theirs, the coordinator compares them and sends ``ReplicasChanged``.
    If they differ, it does what the user has chosen (``on_mismatch``)."""

    generation: int
    members: tuple[str, ...]
    """The engines of the generation, in rank order. Only the first of them sends them."""
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
    """The coordinator sends this to the driver and to every engine that has the state, when it has learned something
    new about the replicas. It also sends it to each engine that has received the state or has connected again. Engines
    write the history into checkpoints. The driver keeps it and sends it to a new coordinator in ``BeginTraining``. It
    has no answer."""

    history: ReplicaHistory
    compare_from: int = 0
    """No comparison is made at an epoch's end before this offset, because it would not be worth its time."""


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────
class TrainingFinished(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every member sends this when it has committed the last step. When all have sent it, the coordinator compares
    their states, if they have sent checksums. It then sends ``SendStateToDriver`` to the first engine, and the others
    wait for ``ExitEngine``. If the states differ and the user has chosen ``on_mismatch`` "stop" or "restore", the
    training fails or goes back to a checkpoint instead."""

    generation: int
    result: EngineResult


class SendStateToDriver(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to the first engine at the end of the training. The driver gets
    ``ReceiveStateFromEngine``. The engine builds a group of two as rank 0 and sends the trained state. It does not
    answer: the driver sends ``TrainedStateReceived`` when the state has arrived."""

    key: str
    """Name of the group of two in the store."""
    store: str = ""
    """Address of the TCPStore."""


class ExitEngine(Message, sender=_COORDINATOR, receiver=_ENGINE):
    """The coordinator sends this to an engine on which no other engine depends any more: it has left, the training is
    over, or there is no place for it. The engine ends its process. The supervisor then sends ``EngineGone``."""
