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

from edt_contract.step_times import StepTimes
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
    """The first message of every connection to the coordinator's address. A supervisor, the driver or an engine sends
    it as soon as the connection is open. It has no answer. The coordinator closes the connection if the token is wrong,
    if the version differs from its own, or if no hello arrives within 10 seconds."""

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
    """The driver sends this when the user's script has called ``train()``. It sends it again after each new connection,
    and when the transfer of the trained state has failed. At the start the coordinator answers with
    ``SendStateToEngine``, at the end with ``ReceiveStateFromEngine``. A driver that was started again must send the
    same definition; otherwise the training fails."""

    definition: TrainingDefinition
    history: ReplicaHistory
    """The newest history of the replicas that the driver has, from a checkpoint or from the previous coordinator."""
    resumed_at: int | None = None
    """Offset of the checkpoint from which the driver has loaded its state. None: it has the script's initial state."""


class SendStateToEngine(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this at the start, when the first engine can receive the state. That engine gets
    ``ReceiveStateFromDriver``. The driver ends a transfer that is still under way, builds a group of two as rank 0, and
    sends its state. It does not answer: the engine sends ``StateReceived`` when the state has arrived."""

    key: str
    """Name of the group of two in the store."""
    store: str = ""
    """Address of the TCPStore."""


class ReceiveStateFromEngine(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this when all engines have committed the last step. The driver ends a transfer that is
    still under way, builds a group of two as rank 1, and receives the trained state. It answers with
    ``TrainedStateReceived``. If the engine is lost during the transfer, the driver answers with ``BeginTraining``,
    unless a newer message has already named another engine."""

    key: str
    """Name of the group of two in the store."""
    digest: str
    """Digest of the trained weights. The driver raises StateMismatch if the weights that arrive have another digest."""
    store: str = ""
    """Address of the TCPStore."""


class TrainedStateReceived(Message, sender=(_DRIVER, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """The driver sends this when it has the trained state. The coordinator passes it on to its own supervisor, which
    from then on does not start the driver again. The coordinator also sends ``ExitEngine`` to the engines, and answers
    the driver with ``DriverReleased`` when all engines are gone."""


class DriverReleased(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this after the end of the training, when all engines are gone, so that no slot is in use.
    The driver returns from ``train()``. It has no answer."""


class ScriptFailed(Message, sender=_COORDINATOR, receiver=(_DRIVER, _SUPERVISOR)):
    """The coordinator sends this to the driver and to its own supervisor when the training has failed. The cause is an
    error in user code or user data, a missing checkpoint, or a setting with which the user asked for a failure
    (``require_exact``, ``on_mismatch``). The message waits until the driver is in ``train()``. The driver prints the
    failure and raises TrainingFailed. It has no answer."""

    message: str
    traceback: str
    """Traceback of user code; empty: there is none."""
    failed_step: int | None = None
    """Number of training steps committed before the step that failed; None: the failure was not in a step."""


class TrainingSuspended(Message, sender=_COORDINATOR, receiver=(_DRIVER, _SUPERVISOR)):
    """The coordinator sends this to the driver and to all supervisors in two cases: the last engine has written a
    checkpoint and left, or no engine is left before the first has received the state. The driver raises Suspended, and
    the supervisors end the attempt. It has no answer."""


# ── supervisor to coordinator ─────────────────────────────────────────────────────────────────────────────────────
class EngineExpected(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this before it forks an engine. After it has connected to a coordinator, which may be a new
    one, it sends this for each engine that lives. It has no answer. From then on the coordinator relies on this
    supervisor to send ``EngineGone`` when the engine has ended."""

    engine: str


class LeaveEngines(Message, sender=(_SUPERVISOR, _ENGINE), receiver=_COORDINATOR):
    """A supervisor sends this when slots are no longer desired, and again after it has connected to a coordinator that
    may be new. An engine sends it for itself when it has received SIGTERM. The coordinator starts a change of the
    membership, in which the engines leave together between two steps. An engine that no other engine depends on is not
    part of a change: it gets ``ExitEngine``, and the supervisors get ``DiscardEngine``."""

    engines: tuple[str, ...]


class EngineRaised(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this just before ``EngineGone``, when user code in an engine has raised, or has ended without
    training. If that ends the training, the coordinator sends ``ScriptFailed``. Otherwise the training continues
    without the engine."""

    engine: str
    message: str
    traceback: str
    """Without frames of this package."""


class EngineGone(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this when the process of an engine has ended. After it has connected to a coordinator, which
    may be a new one, it sends this for all engines that have ended. If the engine had the state and was not told to
    exit, the coordinator starts a regroup, or leaves the engine out of a regroup that has no plan yet. The training
    fails if the same micro-batch has ended two engines, or if user code raised and no engine is left. If the engine was
    joining, the coordinator takes the change back where it can. After the end of the training, the last of these
    messages is followed by ``DriverReleased``."""

    engine: str
    micro_batch: MicroBatch | None = None
    """The micro-batch that the engine was computing, if that computation may have ended the engine; else None."""
    how: str = ""
    """How the engine ended, in words: "signal 9", "out of memory"."""


class EngineStuck(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """A supervisor sends this when an engine has waited in a reduction for much longer than a reduction takes, although
    every process lives. The coordinator starts a regroup, unless one is under way."""

    engine: str


class SupervisorIdle(Message, sender=_SUPERVISOR, receiver=_COORDINATOR):
    """The supervisor on the head node sends this repeatedly while no slot is desired and no engine runs on its node. If
    no engine is left on any node and none has the state, the coordinator answers with ``TrainingSuspended``."""


# ── coordinator to supervisor ─────────────────────────────────────────────────────────────────────────────────────
class CoordinatorListening(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to its own supervisor when it has started and accepts connections. The supervisor
    writes the address to a file, reports it to the platform, and starts the driver and the engines. It has no
    answer."""


class DiscardEngine(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to all supervisors when no other engine depends on an engine that shall end. The
    supervisor that runs the engine kills it at once and answers with ``EngineGone``. The others ignore the message."""

    engine: str


class TrainingCompleted(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to its own supervisor when all engines have committed the last step. If their states
    were compared and differ, it sends this only where the user wants the training to end nevertheless (``on_mismatch``
    "mark"). The supervisor writes the values into the attempt's last report. It has no answer."""

    digest: str
    """Digest of the trained weights."""
    step: int
    """Training steps committed."""


class StateLost(Message, sender=_COORDINATOR, receiver=_SUPERVISOR):
    """The coordinator sends this to all supervisors when no engine that has the state is left. The supervisors end the
    attempt at once; the next attempt resumes from the newest checkpoint. It has no answer."""

    why: str


# ── driver and engine to their supervisor ─────────────────────────────────────────────────────────────────────────
class ScriptEnded(Message, sender=(_DRIVER, _ENGINE), receiver=_SUPERVISOR):
    """A driver or an engine writes this to the pipe to its parent when user code has raised or has ended too early. A
    driver also writes it when the training has failed, or when the disk is too full for the trained model, or,
    if its script has come to its end, to say what the user should know of the result. The supervisor reads it after the
    process has ended. It has no answer."""

    message: str
    """One line of at most 1,000 characters."""
    traceback: str
    """Without frames of this package, at most 8,000 characters; empty: there is none."""


# ── about the training, to the driver and to the platform ────────────────────────────────────────────────────────────
class Metrics(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """The first engine in rank order sends this about every 0.1 seconds. After a loss the new first engine also sends
    recent items, because the previous one may not have sent them. The coordinator numbers the message and passes it on
    to the driver as ``MetricsBundle``. It has no answer."""

    items: tuple[MetricItem, ...]


class MetricsBundle(Message, sender=_COORDINATOR, receiver=_DRIVER):
    """The coordinator sends this to the driver for each ``Metrics`` that arrives. To a driver that connects again it
    sends all bundles that are not acknowledged, at most the newest 100,000. If 16 MiB already wait for a driver that
    does not read, it does not send the bundle to that driver. The driver writes the new items to its logger and answers
    with ``MetricsLogged``."""

    number: int
    """1, 2, 3, … for each coordinator."""
    items: tuple[MetricItem, ...]


class MetricsLogged(Message, sender=_DRIVER, receiver=_COORDINATOR):
    """The driver's answer to ``MetricsBundle``. The coordinator drops this bundle and all earlier ones."""

    number: int


class Note(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _DRIVER)):
    """A sentence for the user. An engine sends it to the coordinator, which passes it on to the driver. The coordinator
    also sends notes of its own. The driver prints it to stderr. It has no answer."""

    text: str


class Progress(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """The first engine in rank order sends this about twice a second. The coordinator passes it on to its own
    supervisor as a ``TrainingReport``, and unchanged to the supervisors of other nodes. They need it because the time
    that a leave may take depends on the duration of a step. The fields are those of the contract's report. It has no
    answer."""

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
    """Samples per second of the training steps of the last seconds. The time of validations, of hooks and of files does
    not count."""
    metrics: Mapping[str, float | None]
    samples: int | None = None
    """Samples of the training steps since the previous ``Progress``."""
    seconds: float | None = None
    """Duration of these training steps, in seconds."""
    step_times: StepTimes | None = None
    """Where the time of the training steps since the previous one of these went. Most messages have none."""


class Resized(Message, sender=_ENGINE, receiver=_COORDINATOR):
    """Every engine that was a member before a planned change or a regroup and still trains after it sends this, when it
    has measured for how long the training was held up. All of them send it, because any of them may die first. The
    coordinator uses the first message of each generation and passes it on to its own supervisor as a
    ``TrainingReport``. It drops the others. It also drops a message of an older generation that arrives after one of a
    newer generation, and a message whose lost engines were all named in earlier reports. The report names each lost
    engine once. The fields are those of the contract's report. It has no answer."""

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
    """An engine sends this when it finds that the result is no longer exact. The coordinator reports each cause once
    and sends a ``Note`` to the driver. After the first cause it also sends ``ReplicasChanged`` to the driver and the
    engines."""

    what: str
    """The cause: a buffer, an operation or "user_callback"."""
    why: str


class TrainingReport(Message, sender=(_ENGINE, _COORDINATOR), receiver=(_COORDINATOR, _SUPERVISOR)):
    """A report about the training for the platform. An engine sends it to the coordinator, which passes it on to its
    own supervisor. The coordinator also sends reports of its own. The supervisor drops everything that is not a valid
    report about the training, and writes the rest to the file that the agent reads. It has no answer."""

    report: str
    """``ReportKind`` of the contract."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body, in the form that ``reports.BODIES`` of the contract defines for this kind."""
