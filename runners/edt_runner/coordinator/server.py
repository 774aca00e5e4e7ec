"""The coordinator's process: sockets around the state machine of ``coordinator``.

The process is a child of the supervisor on the head node and runs no user code. It hosts the TCPStore through which the
engines of a group find each other; a group does not need the store once it is built. The process may be killed at any
time: the supervisor owns the listening socket and forks another coordinator, and all processes connect again. All times
are monotonic seconds of this process.
"""

from __future__ import annotations

import hmac
import logging
import os
import resource
import selectors
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.encoding import dump_line, to_json_object
from edt_runner.coordinator.coordinator import Coordinator
from edt_runner.coordinator.members import DRIVER, OWN_SUPERVISOR, SUPERVISORS
from edt_runner.protocol.channel import Channel, keep_alive
from edt_runner.protocol.engine_messages import GroupBuildFailed
from edt_runner.protocol.messages import (
    CoordinatorListening,
    EngineExpected,
    EngineGone,
    GuaranteeEnded,
    Hello,
    Message,
    Metrics,
    MetricsBundle,
    MetricsLogged,
    Note,
    Progress,
    ReceiveStateFromEngine,
    Resized,
    Role,
    SendStateToEngine,
    TrainingReport,
)

_log = logging.getLogger(__name__)
_POLL_SECONDS, _LOOK_SECONDS = 0.1, 0.05
_HELLO_SECONDS = 10.0
_MOST_BACKLOG = 16 * 1024 * 1024
"""The most bytes of metrics that wait for a driver that does not read, because it is stopped or its logger hangs.
Further metrics are not sent to it."""
_MOST_UNLOGGED = 100_000
"""The most bundles of metrics that are kept until a driver acknowledges them."""
_ORPHAN_SECONDS = 5.0
"""A supervisor whose connection breaks may connect again, or it may have gone to the successor of this coordinator. Its
engines count as gone only after this time, or when their own connections have broken, too.

A coordinator that has a successor must not begin a regroup, and this time is enough for its supervisor to end it: the
new head node starts its coordinator and names it in the shared folder within about a second, the old head node reads
that file once a second, and three seconds are left for slow machines and storage. The successor waits longer than this
for the engines (``lifecycle.SILENT_SECONDS``). If a node is lost, this costs no time as a rule, because the connections
of its engines break, too."""
_UNKNOWN_SECONDS = 5.0
"""An engine that no supervisor has announced counts as gone this long after its connection has ended."""


@dataclass
class _Engine:
    """What the server knows about one engine."""

    channel: Channel | None = None
    supervisor: Channel | None = None
    """The connection of the supervisor that will report the engine's end."""
    lost_at: float | None = None
    """Time at which the engine counts as gone, because no supervisor of it is connected; None: a supervisor is
    connected, or the engine is known to be gone."""
    gone: bool = False
    """Whether its supervisor has reported its end. The engine may have connected while there was no coordinator, so
    that its messages are read after that report."""


class CoordinatorServer:
    """Serves one attempt until its own supervisor's connection ends.

    Args:
        listener: the socket to which all processes connect; it outlives this process.
        token: the attempt's secret, which every ``Hello`` must contain.
        own_supervisor: socket to the coordinator's own supervisor, which is its parent process.
        recovering: whether this attempt had a coordinator before this one.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        own_supervisor: socket.socket,
        *,
        recovering: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token = token
        self._clock = clock
        self._store, address = _serve_store(listener.getsockname()[0])
        self._coordinator = Coordinator(address, recovering=recovering, now=clock())
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._before_hello: dict[Channel, float] = {}
        """Connections that have not sent a ``Hello`` yet, and the times at which they were accepted."""
        self._engines: defaultdict[str, _Engine] = defaultdict(_Engine)
        self._driver: Channel | None = None
        self._kept_for_driver: list[Message] = []
        """Messages that will be sent to the driver when it connects."""
        self._unlogged: deque[MetricsBundle] = deque(maxlen=_MOST_UNLOGGED)
        self._bundles = 0
        self._newest_regroup = 0
        """The newest regroup that was written to the log."""
        self._newest_resize = 0
        """The newest generation for which a ``Resized`` has arrived. Every engine sends one; only the first counts."""
        self._reported_lost: set[int] = set()
        """Engines that a ``resized`` report has already named as lost."""
        self._supervisors: list[Channel] = []
        self._own_supervisor = Channel(own_supervisor)
        self._done = False
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        _allow_many_connections()

    def serve(self) -> None:
        """Serve until the connection to the coordinator's own supervisor ends."""
        self._own_supervisor.send(CoordinatorListening())
        crash_point(CrashPoint.COORDINATOR_START)
        self._add_supervisor(self._own_supervisor, ())
        looked = self._clock()
        while not self._done:
            for key, _ in self._selector.select(_POLL_SECONDS):
                key.data()
            if self._driver is not None:
                self._driver.pump()
            now = self._clock()
            if now - looked < _LOOK_SECONDS:  # what depends on time alone; it takes longer the more engines there are
                continue
            looked = now
            for channel, since in list(self._before_hello.items()):
                if now - since > _HELLO_SECONDS:
                    self._refuse(channel)
            for name, engine in self._engines.items():
                if engine.lost_at is not None and now > engine.lost_at:
                    self._lose(name, engine)
            self._coordinator.check_deadlines(now)
            self.flush()

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────────
    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the connection ended before it was accepted
            return
        sock.setblocking(True)
        keep_alive(sock)
        channel = Channel(sock)
        self._before_hello[channel] = self._clock()
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._greet(channel))

    def _greet(self, channel: Channel) -> None:
        """Read the ``Hello`` of a new connection and the messages that came with it."""
        messages = channel.read()
        if channel.closed:
            self._refuse(channel)
            return
        if not messages:
            return
        hello, *rest = messages
        if not isinstance(hello, Hello) or not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            self._refuse(channel)
            return
        del self._before_hello[channel]
        self._selector.unregister(channel)
        match hello.role:
            case Role.ENGINE:
                self._add_engine(channel, rest, hello.name)
            case Role.DRIVER:
                self._add_driver(channel, rest)
            case Role.SUPERVISOR:
                self._add_supervisor(channel, rest)
            case _:
                channel.close()
        self.flush()

    def _refuse(self, channel: Channel) -> None:
        self._before_hello.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def _add_engine(self, channel: Channel, messages: Sequence[Message], name: str) -> None:
        engine = self._engines[name]
        engine.channel, engine.lost_at = channel, None
        self._listen(
            channel,
            messages,
            lambda message: self._from_engine(name, message),
            lambda: self._engine_closed(name, channel),
        )

    def _add_driver(self, channel: Channel, messages: Sequence[Message]) -> None:
        self._driver = channel
        for message in (*self._unlogged, *self._kept_for_driver):
            channel.post(message)
        self._kept_for_driver.clear()
        self._listen(channel, messages, self._from_driver, lambda: self._driver_closed(channel))

    def _add_supervisor(self, channel: Channel, messages: Sequence[Message]) -> None:
        self._supervisors.append(channel)
        self._listen(
            channel,
            messages,
            lambda message: self._from_supervisor(channel, message),
            lambda: self._supervisor_closed(channel),
        )

    def _listen(
        self,
        channel: Channel,
        messages: Sequence[Message],
        on_message: Callable[[Message], None],
        on_close: Callable[[], None],
    ) -> None:
        """Handle ``messages``, which came with the ``Hello`` of a connection, and all later messages until the
        connection ends."""

        def handle(arrived: Sequence[Message]) -> None:
            for message in arrived:
                on_message(message)
                self.flush()
            if channel.closed:
                self._selector.unregister(channel)
                channel.close()
                on_close()

        self._selector.register(channel, selectors.EVENT_READ, lambda: handle(channel.read()))
        handle(messages)

    def _engine_closed(self, name: str, channel: Channel) -> None:
        engine = self._engines[name]
        if engine.channel is channel:
            engine.channel = None
            self._coordinator.engine_disconnected(name)
            if engine.lost_at is not None:
                self._lose(name, engine)
            elif not engine.gone and engine.supervisor is None:
                engine.lost_at = self._clock() + _UNKNOWN_SECONDS

    def _driver_closed(self, channel: Channel) -> None:
        if self._driver is channel:
            self._driver = None
            self._coordinator.driver_disconnected()

    def _supervisor_closed(self, channel: Channel) -> None:
        self._supervisors.remove(channel)
        self._done = self._done or channel is self._own_supervisor
        for name, engine in self._engines.items():
            if engine.supervisor is channel:  # engines die with their supervisor
                engine.supervisor, engine.lost_at = None, self._clock() + _ORPHAN_SECONDS
                if engine.channel is None:
                    self._lose(name, engine)

    def _lose(self, name: str, engine: _Engine) -> None:
        engine.lost_at = None
        self._coordinator.engine_gone(name, self._clock())

    # ── messages that arrive ──────────────────────────────────────────────────────────────────────────────────
    def _from_engine(self, name: str, message: Message) -> None:
        """Handle a message of engine ``name``. Messages for the driver or the platform are sent on, even if the engine
        is gone by now. All other messages of a gone engine are ignored."""
        match message:
            case Metrics(items):
                self._bundles += 1
                bundle = MetricsBundle(self._bundles, items)
                self._unlogged.append(bundle)
                self._to_driver(bundle)
            case Note():
                self._to_driver(message)
            case Resized():
                if message.generation > self._newest_resize:  # else another engine has sent it
                    self._newest_resize = message.generation
                    self._pass_on_resize(message)
            case GuaranteeEnded(what, why):
                self._coordinator.replicas.end_guarantee(what, why)
            case Progress():
                self._own_supervisor.send(TrainingReport("progress", to_json_object(message)))
                for supervisor in self._supervisors:  # they limit a leave by a number of steps
                    if supervisor is not self._own_supervisor:
                        supervisor.send(message)
            case TrainingReport():
                self._own_supervisor.send(message)
            case _ if not self._engines[name].gone:
                if isinstance(message, GroupBuildFailed):
                    _log.info("engine %s has not built group %d: %s", name, message.generation, message.why)
                self._coordinator.from_engine(name, message, self._clock())

    def _pass_on_resize(self, message: Resized) -> None:
        """Send a ``resized`` report to the platform. It names each lost engine only once.

        If a regroup begins before all engines have completed the previous one, the report of the later regroup names
        the lost engines of both. Engines that an earlier report has named are removed here.
        """
        lost = set(message.lost)
        new = lost - self._reported_lost
        self._reported_lost |= lost
        if new or not lost:
            body = to_json_object(replace(message, lost=tuple(sorted(new))))
            self._own_supervisor.send(TrainingReport("resized", body))

    def _from_driver(self, message: Message) -> None:
        match message:
            case MetricsLogged(number):
                while self._unlogged and self._unlogged[0].number <= number:
                    self._unlogged.popleft()
            case _:
                self._coordinator.from_driver(message, self._clock())

    def _from_supervisor(self, channel: Channel, message: Message) -> None:
        match message:
            case EngineExpected(name):
                self._engines[name].supervisor, self._engines[name].lost_at = channel, None
            case EngineGone(name):
                self._engines[name] = _Engine(self._engines[name].channel, gone=True)
        self._coordinator.from_supervisor(message, self._clock())

    # ── messages that are sent ────────────────────────────────────────────────────────────────────────────────
    def flush(self) -> None:
        """Send the messages that the state machine has produced."""
        regroup = self._coordinator.regroups.regroup
        if regroup is not None and regroup.number > self._newest_regroup:
            self._newest_regroup = regroup.number
            _log.info("regroup %d of engines %s", regroup.number, ", ".join(regroup.participants))
        lines: dict[int, bytes] = {}
        """The lines of the messages to engines, by the message's id: most go to all engines."""
        sends = self._coordinator.members.take_sends()
        for send in sends:
            if send.to == DRIVER:
                self._to_driver(send.message)
            elif send.to == OWN_SUPERVISOR:
                self._own_supervisor.send(send.message)
            elif send.to == SUPERVISORS:
                for supervisor in self._supervisors:
                    supervisor.send(send.message)
            elif (channel := self._engines[send.to].channel) is not None:
                if id(send.message) not in lines:
                    lines[id(send.message)] = dump_line(send.message)
                channel.send_line(lines[id(send.message)])

    def _to_driver(self, message: Message) -> None:
        if self._driver is None:
            # metrics are kept in ``_unlogged``; a transfer begins again when the driver sends ``BeginTraining``
            if not isinstance(message, MetricsBundle | SendStateToEngine | ReceiveStateFromEngine):
                self._kept_for_driver.append(message)
        elif not isinstance(message, MetricsBundle) or self._driver.backlog < _MOST_BACKLOG:
            self._driver.post(message)


def _allow_many_connections() -> None:
    """Take the hard limit of open descriptors: each engine has two connections to this process, one of them to the
    store, and the usual soft limit is 1024. Nothing here uses ``select``, which goes wrong above 1024."""
    with suppress(OSError, ValueError):  # a sandbox may forbid it
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _serve_store(host: str) -> tuple[object, str]:
    """Open a TCPStore that listens on ``host`` only; the constructor alone would listen on every address.

    Args:
        host: the address to listen on.

    Returns:
        The store, and its address as ``host:port``.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((host, 0), backlog=128)
    port = listener.getsockname()[1]
    store = TCPStore(
        host_name=host,
        port=port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=os.dup(listener.fileno()),
        timeout=timedelta(seconds=30),
    )
    listener.close()
    return store, f"{host}:{port}"
