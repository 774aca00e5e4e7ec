"""The base class of all messages, the first message of every connection, and the messages of driver and supervisors.
Standard library only.

The processes of one attempt of a job (supervisors, coordinator, driver, engines) exchange messages over stream sockets.
Each message is one line with one JSON object. Each kind of message is a frozen dataclass, which names the sender and
the receiver:

* ``engine_messages``: between engines and the coordinator
* this module: between the driver and the coordinator, between supervisors and the coordinator, from driver and engine
  to their supervisor, and about the training to the driver (metrics, notes) and to the platform (reports)
* ``data``: plain data inside these messages
* ``channel``: converts messages to lines and back, and sends them over a connection

The contract (``edt_contract``) defines what agent and supervisor exchange, because the agent does not import this
package. The agent sends the attempt spec once, through a pipe, and the desired state again and again, over a unix
socket. The supervisor writes numbered reports to a file; a line on the socket tells the agent that there are new
reports.

The name of an engine is its allocation id in decimal digits. A generation is the number of a membership. An offset is
counted in steps, or in micro-batches if the batch follows the engines. ``ReplicasChanged``, which the driver receives,
too, is in ``engine_messages``.

* The driver and one engine transfer the state in a group of two. The sender is rank 0, and the receiver is rank 1.
* The coordinator's own supervisor is its parent, on the head node.
* Messages of an engine about the training (metrics, notes, reports) count even if the engine is dead when the
  coordinator reads them. While its connection is broken, an engine keeps such messages.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform

from edt_runner.protocol.data import MetricItem, MicroBatch, ReplicaHistory, TrainingDefinition


class Role(enum.StrEnum):
    """A process that sends or receives messages."""

    AGENT = "agent"  # one on each node; starts supervisors
    SUPERVISOR = "supervisor"  # one for each node and attempt; parent of the attempt's other processes on the node
    COORDINATOR = "coordinator"  # one for each attempt; decides which engines train together
    DRIVER = "driver"  # one for each attempt; runs the user's script and holds no slot
    ENGINE = "engine"  # one on each slot; trains


KINDS: dict[str, type[Message]] = {}
"""All message classes by their kinds. The mapping is complete after ``channel`` has been imported."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Message:
    """Base of all messages. A subclass becomes a frozen dataclass, registered in ``KINDS``, when it is defined.

    Args of a subclass definition:
        sender: the role that sends it, or several.
        receiver: the role that receives it, or several.

    Raises:
        TypeError: at the definition, if another class has the same kind.
    """

    kind: ClassVar[str]
    """The value of the JSON key ``kind``: the name of the class in lower case with hyphens, for example
    ``join-request``."""
    senders: ClassVar[tuple[Role, ...]]
    receivers: ClassVar[tuple[Role, ...]]

    def __init_subclass__(cls, *, sender: Role | Sequence[Role], receiver: Role | Sequence[Role]) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)
        cls.kind = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
        cls.senders = (sender,) if isinstance(sender, Role) else tuple(sender)
        cls.receivers = (receiver,) if isinstance(receiver, Role) else tuple(receiver)
        if cls.kind in KINDS:
            raise TypeError(f"two messages are of kind {cls.kind!r}")
        KINDS[cls.kind] = cls


class Hello(Message, sender=(Role.SUPERVISOR, Role.DRIVER, Role.ENGINE), receiver=Role.COORDINATOR):
    """The first message of every connection to the coordinator. A supervisor, the driver or an engine sends it as soon
    as the connection is open. It has no answer. The coordinator closes the connection if the token is wrong, if the
    version is not its own, or if the hello does not come within 10 seconds."""

    version: int
    """``channel.PROTOCOL_VERSION`` of the sender."""
    role: Role
    """Role of the sender."""
    token: str
    """The attempt's secret, from the attempt spec."""
    name: str = ""
    """Name of the sender: an engine's allocation id in decimal digits, or a supervisor's node; empty for the driver."""


_ENGINE, _COORDINATOR, _DRIVER, _SUPERVISOR = Role.ENGINE, Role.COORDINATOR, Role.DRIVER, Role.SUPERVISOR


# ── driver and coordinator ───────────────────────────────────────────────────────────────────────────────────────────
class BeginTraining(Message, sender=_DRIVER, receiver=_COORDINATOR):
    """The driver sends this when the user's script is in ``train()``, each time it has connected, and when the trained
    state did not arrive. The coordinator answers with ``SendStateToEngine`` at the start and
    ``ReceiveStateFromEngine`` at the end. A driver that was started again must send the same definition, else the
    training fails."""

    definition: TrainingDefinition
    history: ReplicaHistory
    """What the driver knows about the replicas, from a checkpoint or from the previous coordinator."""
    resumed_at: int | None = None
    """Offset of the checkpoint whose state the driver has. None: it has the script's initial state."""


class SendStateToEngine(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this when the first engine can receive the state, which gets ``ReceiveStateFromDriver``.
    The driver builds a group of two as rank 0 and sends its state. It has no answer: the engine says when the state
    has arrived. A transfer that is under way is broken off."""

    key: str
    """Name of the group of two in the store."""
    store: str = ""
    """Address of the TCPStore."""


class ReceiveStateFromEngine(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this when all engines have committed the last step. The driver builds a group of two as
    rank 1, receives the trained state and answers with ``TrainedStateReceived``; if the engine is lost meanwhile it
    answers with ``BeginTraining``, unless a newer message has named another engine. A transfer that is under way is
    broken off."""

    key: str
    """Name of the group of two in the store."""
    digest: str
    """Digest of the trained weights. The driver raises StateMismatch if the weights that arrive have another digest."""
    store: str = ""
    """Address of the TCPStore."""


class TrainedStateReceived(Message, sender=(_DRIVER, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """The driver sends this when it has the trained state. The coordinator answers with ``DriverReleased`` once every
    engine is gone; engines get ``ExitEngine``. The coordinator sends it on to its own supervisor: a driver that ends
    after this is not started again."""


class DriverReleased(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this when every engine is gone after the end of the training: all slots are given back.
    The driver returns from ``train()``."""


class ScriptFailed(Message, sender=_COORDINATOR, receiver=(_DRIVER, _SUPERVISOR)):
    """The coordinator sends this to the driver and to its own supervisor when the training has failed by the user's
    code or by what its user has asked for. The driver shows it and raises TrainingFailed. It has no answer."""

    message: str
    traceback: str
    """Traceback of user code; empty: there is none."""
    failed_step: int | None = None
    """Number of training steps committed before the step that failed; None: the failure was not in a step."""


class TrainingSuspended(Message, sender=_COORDINATOR, receiver=(_DRIVER, _SUPERVISOR)):
    """The coordinator sends this to the driver and to all supervisors when the last engine has left and written a
    checkpoint, or when no engine is left before the first has the state. The driver raises Suspended, and supervisors
    end the attempt. It has no answer."""


# ── supervisor to coordinator ─────────────────────────────────────────────────────────────────────────────────────
class EngineExpected(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this before it forks an engine, and for each engine that lives when it has connected to a
    coordinator that may be new. It has no answer. The coordinator counts on this supervisor to say when the engine is
    gone."""

    engine: str


class LeaveEngines(Message, sender=(_SUPERVISOR, _ENGINE), receiver=_COORDINATOR):
    """A supervisor sends this when slots are not desired any more, and again to a coordinator that may be new; an
    engine sends it of itself when it has received SIGTERM. The engines leave together, at one boundary between steps:
    the coordinator answers with a change of the membership, or with ``ExitEngine`` and ``DiscardEngine`` for an engine
    that nobody counts on."""

    engines: tuple[str, ...]


class EngineRaised(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this before ``EngineGone`` when user code has raised in an engine, or has ended it without
    training. Where that ends the training, the coordinator answers with ``ScriptFailed``."""

    engine: str
    message: str
    traceback: str
    """Without frames of this package."""


class EngineGone(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this when the process of an engine was seen gone, and for all that are gone when it has
    connected to a coordinator that may be new. If the engine had the state and had not been told to exit, the
    coordinator starts a regroup."""

    engine: str
    micro_batch: MicroBatch | None = None
    """The micro-batch that the engine was computing, if that may have ended the engine."""
    how: str = ""
    """How the engine ended, in words: "signal 9", "out of memory"."""


class EngineStuck(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this when an engine waits in a reduction for much longer than one takes and every process
    lives. The coordinator starts a regroup."""

    engine: str


class SupervisorIdle(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """The supervisor on the head node sends this again and again while no slot is desired and no engine runs on its
    node. If no engine trains anywhere, the coordinator answers with ``TrainingSuspended``."""


# ── coordinator to supervisor ─────────────────────────────────────────────────────────────────────────────────────
class CoordinatorListening(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to its own supervisor when it has started and can be connected to. The supervisor
    writes the address down, reports it, and starts the driver and engines."""


class DiscardEngine(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to all supervisors when nobody counts on an engine. The supervisor that runs it kills
    it at once and answers with ``EngineGone``."""

    engine: str


class TrainingCompleted(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to its own supervisor when all engines have committed the last step and are known to
    hold the same, as far as that was compared. It has no answer; the values are part of the attempt's last report."""

    digest: str
    """Digest of the trained weights."""
    step: int
    """Training steps committed."""


class StateLost(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to all supervisors when no engine is left that has the state. They end the attempt at
    once; the next attempt goes on from the newest checkpoint. It has no answer."""

    why: str


# ── driver and engine to their supervisor ─────────────────────────────────────────────────────────────────────────
class ScriptEnded(Message, sender=(_DRIVER, _ENGINE), receiver=_SUPERVISOR):
    """A driver or an engine writes this to the pipe to its parent when user code has raised, or has ended too early.
    The supervisor reads it once the process is gone. It has no answer."""

    message: str
    """One line of at most 1,000 characters."""
    traceback: str
    """Without frames of this package, at most 8,000 characters; empty: there is none."""


# ── about the training, to the driver and to the platform ────────────────────────────────────────────────────────────
class Metrics(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """The first engine in rank order sends this about every 0.1 seconds. After a loss the new first engine sends what
    the one before may not have sent. The coordinator numbers it and sends it on as ``MetricsBundle``."""

    items: tuple[MetricItem, ...]


class MetricsBundle(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this for each ``Metrics`` of an engine, and again to a driver that has connected again,
    until it is acknowledged. The driver writes the items that are new to its logger and answers with
    ``MetricsLogged``."""

    number: int
    """1, 2, 3, … for each coordinator."""
    items: tuple[MetricItem, ...]


class MetricsLogged(Message, sender=_DRIVER, receiver=_COORDINATOR):
    """The driver's answer to ``MetricsBundle``. The coordinator forgets this bundle and all before it."""

    number: int


class Note(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _DRIVER)):
    """A sentence for the user. An engine sends it to the coordinator, which sends it on to the driver; the coordinator
    also sends its own. The driver prints it to stderr. It has no answer."""

    text: str


class Progress(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """The first engine in rank order sends this about twice a second. The coordinator sends it on to the supervisors:
    to its own as a ``TrainingReport``, and to those on other nodes as it is, since the time that a leave may take is
    counted in steps. Its fields are those of the contract's report. It has no answer."""

    step: int
    """Training steps committed."""
    steps_total: int
    epoch: int
    """1-based."""
    epochs: int
    workers: int
    """Number of engines that shared the step."""
    loss: float | None
    """Loss over the epoch so far. None: the value is not a number, or is infinite."""
    samples_per_second: float | None
    """Samples per second of training since the previous ``Progress``; the time of validations does not count."""
    metrics: Mapping[str, float | None]


class Resized(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every engine sends this when it knows how long a change of the membership, or a regroup, has held the training
    up: any of them may be dead by then. Of each generation the coordinator sends the first that arrives on as a
    ``TrainingReport``. Its fields are those of the contract's report."""

    generation: int
    step: int
    """Number of training steps committed when the change began."""
    workers: int
    """Number of engines of the new membership."""
    pause_seconds: float | None
    """The longest interval between two commits around the change, minus a steady step, in seconds. None: too few steps
    followed."""
    joined: tuple[int, ...] = ()
    """Allocation ids, as in ``left`` and ``lost``."""
    left: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    recomputed: int = 0
    """Number of micro-batches that were computed again."""


class GuaranteeEnded(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """An engine sends this when it finds that the result is no longer exact. The coordinator reports each cause once,
    tells the driver by ``Note``, and answers with ``ReplicasChanged``."""

    what: str
    """The cause: a buffer, an operation or "user_callback"."""
    why: str


class TrainingReport(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """A report about the training, on its way to the platform. An engine sends it to the coordinator, which sends it
    on to its own supervisor; the coordinator also sends its own. The supervisor drops what is not a report of the
    training, and writes the rest down for the agent. It has no answer."""

    report: str
    """``ReportKind`` of the contract."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body, in the form that ``reports.BODIES`` of the contract defines for this kind."""
