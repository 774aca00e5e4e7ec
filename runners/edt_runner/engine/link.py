"""An engine's connection to the coordinator: sockets and threads, no framework.

A control thread reads messages while the main thread trains. The control thread builds groups in the background. It
keeps the newest committed generation, which the main thread announces in each reduction. When the coordinator starts a
regroup, the control thread shuts the data plane; this ends any operation in which the main thread is blocked. When the
connection breaks, the control thread connects again, to the address in a file that the supervisor writes. Steps need no
coordinator; only changes of the membership wait for one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.errors import PeerLost
from edt_runner.protocol.channel import Channel, connect
from edt_runner.protocol.data import EngineState, EngineStatus, ReplicaHistory
from edt_runner.protocol.differences import HeldMemberships, UnknownMembership, sends_members
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    CommitGeneration,
    EngineConnected,
    GenerationSettled,
    GroupBuildFailed,
    GroupBuilt,
    JoinAgain,
    JoinRequest,
    PrepareGeneration,
    ReceiveStateFromDriver,
    ReplicasChanged,
    RetractAnswer,
    RetractGeneration,
    SendStateToDriver,
    StartRegroup,
)
from edt_runner.protocol.messages import GuaranteeEnded, Message, Metrics, Note, Progress, Resized, Role, TrainingReport

_RECONNECT_SECONDS = 0.02
_RECONNECT_MOST_SECONDS = 0.5
_SHUT_AGAIN_SECONDS = 0.02
"""Seconds between two shuts of the data plane. A main thread that builds a group keeps opening connections, so the
control thread shuts them again until the main thread has given up."""
_COLLECTIVES_SECONDS = 5.0
"""Seconds from the beginning of a build for which a new group waits until it is connected over NCCL, while the old
group trains. After that it begins without, and changes over later. The coordinator waits for 10 seconds."""
_HELD_MESSAGES = 4096
_HELD = Metrics | Note | Progress | Resized | GuaranteeEnded | TrainingReport
"""Messages that are kept while the connection is broken. Other messages are dropped. After reconnecting, the status,
the join request or a regroup replaces them, or the training does not need them."""


_ANSWER_SECONDS = 0.5
"""Pause after a connection that ended without a message. A coordinator of another release refuses every connection at
once."""


@dataclass(frozen=True)
class Membership:
    """A generation, as one of its engines sees it."""

    generation: int
    members: tuple[str, ...]
    """Names of the engines, in rank order."""
    group: Group
    name: str
    """Name of this engine."""

    @property
    def leads(self) -> bool:
        """Whether this engine is the first in rank order: it sends metrics and writes the training's files."""
        return self.members[0] == self.name


@dataclass
class PreparedGeneration:
    """A generation that the coordinator has told this engine to prepare."""

    message: PrepareGeneration
    group: Group | None = None
    """The group of the generation; None: it is not built yet, or this engine is not a member."""
    faster: bool = False
    """Whether all of its reductions go over its faster network."""


class EngineLink:
    """The connection of engine ``name`` to the coordinator.

    Args:
        address: ``host:port`` of the coordinator when the engine starts.
        note: file that holds the address of the newest coordinator; it may be missing.
        token: the attempt's secret.
        name: of this engine.
        plane: builds groups, and is shut when the coordinator starts a regroup.
        computing: this engine's hardware, libraries and their settings, by name (``edt_runner.frameworks``).

    Raises:
        OSError: no process listens at ``address``.
    """

    def __init__(
        self,
        address: str,
        note: Path,
        token: str,
        name: str,
        plane: DataPlane,
        computing: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._address, self._note, self._token, self._plane = address, note, token, plane
        self._computing = dict(computing)
        self.history: ReplicaHistory | None = None
        """The history of the engines' replicas that the coordinator has sent, for checkpoints; None: it has sent none
        yet."""
        self.guarantee_ended = False
        """Whether the result has stopped being exact since the first history came. Then a checkpoint should be written
        soon, because an attempt that resumes from an older checkpoint would not know it. The code that writes the
        checkpoint sets this to False."""
        self.compare_from = 0
        """No comparison is made at an epoch's end before this offset."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._inbox: queue.Queue[Message] = queue.Queue()
        self._held: deque[Message] = deque(maxlen=_HELD_MESSAGES)
        self._prepared: dict[int, PreparedGeneration] = {}
        self._old_groups: list[Group] = []
        self._current = 0
        """The generation in which the main thread works."""
        self._committed = 0
        """The newest generation that the coordinator has committed."""
        self._announced = 0
        """The newest generation that this engine has announced."""
        self._known = 0
        """The highest generation that a coordinator has sent to this engine. Only the control thread uses it."""
        self._memberships = HeldMemberships(name)
        """Only the control thread uses it."""
        self._store = ""
        """Address of the TCPStore over which groups are built, from the newest message that names it."""
        self._settled = 0
        """The newest generation in which all members work, according to the coordinator."""
        self.regroup = 0
        """The newest regroup that the coordinator has started; 0: none."""
        self._acknowledged = 0
        """The newest regroup that the main thread has acknowledged."""
        self._request: JoinRequest | None = None
        """The newest request to join. It is sent again to a new coordinator until the engine has the state."""
        self.reconnected = False
        """Whether this engine has connected again, so that earlier messages may be lost. The code that sends them again
        sets this to False."""
        self._status = EngineStatus(EngineState.JOINING)
        self._channel = Channel(connect(address, role=Role.ENGINE, token=token, name=name))
        self._introduce()
        threading.Thread(target=self._read, name="edt-link", daemon=True).start()

    # ── for the main thread ───────────────────────────────────────────────────────────────────────────────────
    def send(self, message: Message) -> None:
        """Send one message to the coordinator. While the connection is broken, metrics, notes and reports are kept, and
        other messages are dropped."""
        if isinstance(message, JoinRequest):
            self._request = message
        with self._writing:
            if not self._channel.closed:
                self._channel.send(message)
            if self._channel.closed and isinstance(message, _HELD):
                self._held.append(message)

    def report(self, report: str, **body: Any) -> None:
        """Send one report to the platform through the coordinator, its supervisor and the agent. ``report`` is a
        ``ReportKind``."""
        self.send(TrainingReport(report, body))

    def wait(self, seconds: float | None = None) -> Message | None:
        """Return the next message for the main thread; None: no message came within ``seconds``."""
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def set_status(self, status: EngineStatus) -> None:
        """Keep the status that this engine sends to a new coordinator. The link itself fills in ``announced``,
        ``settled``, ``known`` and ``regroup``."""
        with self._lock:
            if status.state is not EngineState.JOINING:
                self._request = None
            self._status = status

    def announce(self) -> int:
        """Return the newest committed generation, to announce it in a reduction. From now on this engine refuses to
        retract it."""
        with self._lock:
            self._announced = max(self._announced, self._committed)
            return self._committed

    def check(self) -> None:
        """Interrupt the main thread if a regroup has been started.

        Raises:
            PeerLost: the coordinator has started a regroup that the main thread has not acknowledged.
        """
        if self.regroup_started:
            raise PeerLost("the engines regroup")

    @property
    def regroup_started(self) -> bool:
        """Whether there is a regroup that the main thread has not acknowledged."""
        return self.regroup > self._acknowledged

    def acknowledge_regroup(self, number: int | None = None) -> int:
        """Acknowledge regroup ``number`` (None: the newest), after the main thread has left the data plane.

        If the number is new, the plane was shut, and this renews it. The control thread shuts the plane under the same
        lock, and only for a regroup that is not acknowledged. So it never shuts the renewed plane for an old regroup.

        Returns:
            The number of the regroup.
        """
        with self._lock:
            number = self.regroup if number is None else number
            if number > self._acknowledged:
                self._plane.renew()
                self._acknowledged = number
            return number

    def prepared(self, number: int) -> PreparedGeneration:
        """Return the prepared generation ``number``.

        Raises:
            PeerLost: a regroup has made the generation void.
        """
        with self._lock:
            found = self._prepared.get(number)
        if found is None:
            raise PeerLost(f"generation {number} is void")
        return found

    def build_group(self, store: str, key: str, members: tuple[str, ...]) -> Group:
        """Build the group of ``members``, which include this engine. Any thread may call this.

        Args:
            store: ``host:port`` of the TCPStore.
            key: name of the group in the store.
            members: names of the engines, in rank order.

        Raises:
            PeerLost: the other engines did not connect in time.
        """
        if len(members) == 1:
            return self._plane.solo()
        return self._plane.build(store, key, members.index(self.name), len(members))

    def enter(self, number: int, old: Group | None) -> None:
        """Note that the main thread works in generation ``number`` from now on.

        Args:
            number: the generation.
            old: the group in which the main thread worked before, if any. It is closed when all members have switched.
        """
        with self._lock:
            self._current = number
            self._committed = max(self._committed, number)
            for key in [key for key in self._prepared if key <= number]:
                skipped = self._prepared.pop(key)
                if key < number and skipped.group is not None:
                    _in_thread(skipped.group.close, "edt-close")
            if old is not None:
                self._old_groups.append(old)

    # ── the control thread ────────────────────────────────────────────────────────────────────────────────────
    def _read(self) -> None:
        while True:
            answered = False
            while not self._channel.closed:
                for message in self._channel.read_blocking():
                    answered = True
                    try:
                        self._handle(self._memberships.read(message))
                    except UnknownMembership as error:  # a new connection begins with a whole membership
                        print(f"edt: {error}", flush=True)
                        self._channel.end()
                        break
            if not answered:
                time.sleep(_ANSWER_SECONDS)
            self._reconnect()

    def _reconnect(self) -> None:
        """Connect to the current coordinator. Generations that this engine has not announced become void, because only
        the previous coordinator knew them."""
        with self._lock:
            for number in [number for number in self._prepared if number > self._announced]:
                self._withdraw(number)
        pause = _RECONNECT_SECONDS
        while True:
            with contextlib.suppress(OSError):
                self._address = self._note.read_text().strip() or self._address
            try:
                sock = connect(self._address, role=Role.ENGINE, token=self._token, name=self.name, seconds=5.0)
            except OSError:
                time.sleep(pause)
                pause = min(pause * 1.5, _RECONNECT_MOST_SECONDS)
                continue
            with self._writing:
                self._channel.close()
                self._channel = Channel(sock)
                self._introduce()
                if self._request is not None:
                    self._channel.send(self._request)
                while self._held and not self._channel.closed:
                    self._channel.send(self._held.popleft())
            self.reconnected = True
            return

    def _introduce(self) -> None:
        with self._lock:
            status = replace(
                self._status,
                announced=self._announced,
                settled=self._settled,
                known=self._known,
                regroup=self.regroup,
            )
            if status.generation > 0 and self.regroup_started:
                # A coordinator has called this engine to a regroup, and the main thread may still compute. It will
                # leave its group for that regroup, of which a new coordinator knows nothing.
                status = replace(status, state=EngineState.REGROUPING)
        if self.name in status.members and not sends_members(status.members.index(self.name)):
            status = replace(status, members=())
        held = self._memberships.holds(status.generation)
        self._channel.send(EngineConnected(status, self._computing, self.history, held))

    def _keep(self, message: Message) -> None:
        """Keep what messages of several kinds tell."""
        if isinstance(message, PrepareGeneration | ApplyRegroupPlan | ReceiveStateFromDriver):
            self._known = max(self._known, message.generation)
        if isinstance(message, PrepareGeneration | ApplyRegroupPlan | ReceiveStateFromDriver | SendStateToDriver):
            self._store = message.store

    def _handle(self, message: Message) -> None:
        self._keep(message)
        match message:
            case PrepareGeneration():
                self._prepare(message)
            case CommitGeneration(generation=number):
                with self._lock:
                    if number in self._prepared:
                        self._prepared[number].faster = message.faster
                        self._committed = number
            case RetractGeneration(generation=number):
                with self._lock:
                    promised = self._announced < number
                    if promised:
                        self._withdraw(number)
                self.send(RetractAnswer(number, promised))
            case CancelGeneration(generation=number):
                with self._lock:
                    self._withdraw(number)
            case GenerationSettled(generation=number):
                with self._lock:
                    self._settled, groups, self._old_groups = number, self._old_groups, []
                for group in groups:  # closing takes 10 ms for each peer
                    _in_thread(group.close, "edt-close")
            case StartRegroup() | JoinAgain():
                self._shut(message)
            case ReplicasChanged(history=history):
                known = self.history
                self.guarantee_ended |= known is not None and bool(history.ended) and not known.ended
                self.history, self.compare_from = history, message.compare_from
            case _:
                self._inbox.put(message)

    def _shut(self, message: StartRegroup | JoinAgain) -> None:
        """Interrupt the main thread in the data plane. Every prepared generation becomes void."""
        regroup = message.regroup
        with self._lock:
            if regroup <= self.regroup and isinstance(message, StartRegroup):
                return
            self.regroup = max(self.regroup, regroup)
            for number in list(self._prepared):
                self._withdraw(number, announced=True)
            self._shut_for(regroup)
        self._inbox.put(message)
        threading.Thread(target=self._keep_shut, args=(regroup,), daemon=True).start()

    def _keep_shut(self, regroup: int) -> None:
        while self._acknowledged < regroup:
            time.sleep(_SHUT_AGAIN_SECONDS)
            with self._lock:
                self._shut_for(regroup)

    def _shut_for(self, regroup: int) -> None:
        """Shut the plane, unless ``regroup`` has been acknowledged, because then the plane is a new one. The caller
        holds the lock."""
        if self._acknowledged < regroup:
            self._plane.shut([self._store])

    def _prepare(self, message: PrepareGeneration) -> None:
        prepared = PreparedGeneration(message)
        with self._lock:
            self._prepared[message.generation] = prepared
        if self.name in message.members:
            _in_thread(lambda: self._build(prepared), "edt-build")
        else:
            self.send(GroupBuilt(message.generation))

    def _build(self, prepared: PreparedGeneration) -> None:
        message, number, begun = prepared.message, prepared.message.generation, time.monotonic()
        try:
            group = self.build_group(message.store, f"generation/{number}", message.members)
        except PeerLost as error:
            self.send(GroupBuildFailed(number, str(error)))
            return
        with self._lock:
            wanted = self._prepared.get(number) is prepared
            if wanted:
                prepared.group = group
        if wanted:  # a generation that is withdrawn meanwhile closes its group, which ends the waiting
            left = _COLLECTIVES_SECONDS - (time.monotonic() - begun)
            self.send(GroupBuilt(number, faster=group.await_collectives(max(0.0, left))))
        else:  # the generation was withdrawn during the build
            group.close()

    def _withdraw(self, number: int, *, announced: bool = False) -> None:
        """Forget generation ``number``, which will not come. ``announced``: also take back this engine's announcement,
        because a regroup has made the generation void for all."""
        if number <= self._current:
            return
        dropped = self._prepared.pop(number, None)
        self._committed = self._current
        if announced:
            self._announced = self._current
        if dropped and dropped.group:
            _in_thread(dropped.group.close, "edt-close")


def _in_thread(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


def leave_process(code: int) -> NoReturn:
    """End this engine's process with exit status ``code``. Standard output and standard error are flushed. No
    destructor and no atexit function of user code runs."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
