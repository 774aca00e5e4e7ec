"""The supervisor's connection to the coordinator, which is its own child or runs on another node.

The platform chooses the head node (``DesiredState.coordinator``) and may choose another one during the attempt. The new
desired state may not reach the old head node. Therefore a supervisor that becomes the head node also writes its address
into a file on the shared storage (``SharedFolder``). When a head node reads another address there, it stops being the
head node.

Only the head node of an attempt has the coordinator and the driver. The supervisor restarts them when they die. It
keeps the listening socket itself, so that a restarted coordinator has the same address. The number of restarts has no
limit, but the pauses before them grow.
"""

from __future__ import annotations

import logging
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from edt_contract import processes
from edt_contract.attempt import AttemptSpec
from edt_contract.durable import Outage
from edt_runner.context import Context
from edt_runner.protocol.channel import Channel, connect
from edt_runner.protocol.messages import (
    EngineExpected,
    EngineGone,
    EngineRaised,
    LeaveEngines,
    Message,
    Role,
)
from edt_runner.supervisor import fork_server, forking
from edt_runner.supervisor.agent_link import note_coordinator
from edt_runner.supervisor.engines import Engines
from edt_runner.supervisor.fork_server import Child
from edt_runner.supervisor.shared_folder import SharedFolder

_log = logging.getLogger(__name__)
ALONE_SECONDS = 120.0
"""Seconds that engines whose coordinator is gone wait for another coordinator."""
_CONNECT_SECONDS = 1.0
_KEPT = EngineGone | EngineRaised
"""Messages of these types are kept while there is no connection, and sent later."""

_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
_CALM_SECONDS = 60.0
"""When a process that has lived longer than this dies, the pauses begin with the shortest one again."""


@dataclass
class Restarts:
    """Counts the restarts of one process, and the pause before the next one. All times are monotonic seconds."""

    count: int = 0
    _in_a_row: int = 0
    started: float = 0.0
    """Time of the newest start."""
    not_before: float = 0.0
    """The process is not started again before this time."""

    def died(self, now: float) -> None:
        """Note that the process has died at ``now``."""
        self.count += 1
        self._in_a_row = 0 if now - self.started > _CALM_SECONDS else self._in_a_row + 1
        self.not_before = now + _PAUSES[min(max(0, self._in_a_row - 1), len(_PAUSES) - 1)]


class HeadNode:
    """Coordinator and driver of the attempt.

    Args:
        spec: the attempt.
        selector: reads the driver's output.
        recovering: whether the training may have begun already, for example because another node was the head node
            before. Then the coordinator waits for engines that have the training's state.

    Raises:
        OSError: no socket can listen on ``spec.host``.
    """

    def __init__(self, spec: AttemptSpec, selector: selectors.BaseSelector, *, recovering: bool) -> None:
        self._spec, self._selector = spec, selector
        self._listener = socket.create_server((spec.host, 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"{spec.host}:{self._listener.getsockname()[1]}"
        self.recovering = recovering
        self.coordinator: int | None = None
        """The coordinator's pid; None: it does not run."""
        self.driver: Child | None = None
        self.coordinator_restarts, self.driver_restarts = Restarts(), Restarts()

    def start_coordinator(self) -> socket.socket:
        """Fork the coordinator; returns this process's end of the connection to it.

        Raises:
            RunnerError: this process has more than one thread.
        """
        ours, theirs = socket.socketpair()
        spec, listener, recovering = self._spec, self._listener, self.recovering

        def run() -> None:
            from edt_runner.coordinator.server import CoordinatorServer

            processes.set_name("edt-coordinator")
            CoordinatorServer(listener, spec.token, theirs, recovering=recovering).serve()

        self.coordinator = forking.fork(run, keep=[theirs.fileno(), listener.fileno()])
        theirs.close()
        self.coordinator_restarts.started = time.monotonic()
        return ours

    def start_driver(self) -> None:
        """Fork the driver.

        Raises:
            RunnerError: this process has more than one thread.
        """
        context = Context("driver", self._spec, self.address)
        self.driver = fork_server.start(context, "driver", self._selector)
        self.driver_restarts.started = time.monotonic()

    def kill_if_stopped(self) -> None:
        """Kill coordinator or driver if a signal has stopped it (state T), so that it is restarted."""
        for pid in filter(processes.is_stopped, self._pids()):
            forking.send_signal(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill coordinator and driver, and stop listening: this node is no longer the head node."""
        for pid in self._pids():
            forking.send_signal(pid, signal.SIGKILL)
        self._listener.close()

    def _pids(self) -> list[int]:
        return [pid for pid in (self.coordinator, self.driver.pid if self.driver else None) if pid is not None]


class CoordinatorLink:
    """The connection to the coordinator. Where this node is the head node, it starts coordinator and driver.

    Args:
        spec: the attempt.
        selector: reads the connection.
        engines: this node's engines.
        receive: called with each message from the coordinator.
        alone: called when there is no coordinator and none will come.
    """

    def __init__(
        self,
        spec: AttemptSpec,
        selector: selectors.BaseSelector,
        engines: Engines,
        *,
        receive: Callable[[Message], None],
        alone: Callable[[], None],
    ) -> None:
        self._spec, self._selector, self._engines = spec, selector, engines
        self._receive, self._alone = receive, alone
        self._channel: Channel | None = None
        self._kept: list[Message] = []
        self.head_node: HeadNode | None = None
        """Coordinator and driver; None: this is not the head node."""
        self._old_head_nodes: list[HeadNode] = []
        """Earlier coordinators and drivers of this node. Their processes may still be ending."""
        self.address: str | None = None
        """``host:port`` of the coordinator; None: it is not known, or the coordinator does not listen yet."""
        self._successor: str | None = None
        """Address of the new head node, from the shared file; used until the desired state with it arrives."""
        self._alone_since: float | None = None
        self.folder = SharedFolder(spec)
        self._file_written = False
        self._named_before: str | None = None
        """The address in the shared file when this supervisor became the head node."""
        self._file_outage = Outage("the file that names the head node", lambda news: _log.warning("%s", news))
        self._note_outage = Outage("the address of the coordinator", lambda news: _log.warning("%s", news))
        self._noted: str | None = None
        """The coordinator's address in the file for this node's driver and engines; None: not written yet."""

    def send(self, message: Message) -> None:
        """Send a message to the coordinator. Without a connection the message is dropped. Only messages about engines
        that are gone or raised an error are kept, and sent when there is a connection."""
        if self._channel is not None and not self._channel.closed:
            self._channel.send(message)
        elif isinstance(message, _KEPT):
            self._kept.append(message)

    def receive_now(self) -> None:
        """Handle all messages from the coordinator that have arrived."""
        while self._channel is not None:
            arrived = select.poll()
            arrived.register(self._channel, select.POLLIN)
            if not arrived.poll(0):
                return
            self._read()

    def reach(self, coordinator: str | None, now: float) -> bool:
        """Connect to the coordinator if there is no connection. Call this again and again.

        Args:
            coordinator: ``host:port`` from the desired state; None: this is the head node.
            now: monotonic seconds.

        Returns:
            Whether the coordinator can be reached.
        """
        if coordinator is not None:
            self._successor = None
        coordinator = coordinator or self._successor
        if coordinator is None:
            return self._be_head_node(now)
        if self.head_node is not None:
            self._hand_over(coordinator)
        if self.address != coordinator:
            self._disconnect()
            self.address = coordinator
            self._note(coordinator)
        if self._channel is not None:
            return True
        if self._connect(coordinator):
            self._introduce_engines()
            self._alone_since = None
            return True
        self._alone_since = self._alone_since or now
        if now > self._alone_since + ALONE_SECONDS or not self._engines.living:
            self._alone()
        return False

    # ── being the head node ───────────────────────────────────────────────────────────────────────────────────
    def _be_head_node(self, now: float) -> bool:
        if self.head_node is None:
            # If the attempt had another head node, the training may have begun. It must not begin a second time.
            self._named_before, self._file_written = self.folder.head_node(), False
            recovering = self.address is not None or self._named_before is not None
            self._disconnect()
            self.head_node = HeadNode(self._spec, self._selector, recovering=recovering)
        if self.head_node.coordinator is None and now >= self.head_node.coordinator_restarts.not_before:
            self.address = None
            self._use(self.head_node.start_coordinator())
            self._introduce_engines()
        return self.address is not None

    def coordinator_listens(self) -> bool:
        """Note that this head node's coordinator listens; returns whether it listens for the first time."""
        assert self.head_node is not None
        self.address = self.head_node.address
        self._note(self.address)
        if self.head_node.coordinator_restarts.count:
            return False
        self._write_file()
        return True

    def start_driver(self, now: float) -> None:
        """Start the driver if this is the head node, no driver runs, and the pause after the last one is over.

        Args:
            now: monotonic seconds.
        """
        node = self.head_node
        if node is None or node.driver is not None or self._spec.driver != "fork":
            return
        if now >= node.driver_restarts.not_before:
            _log.info("driver of %s starts", self._spec.job)
            node.start_driver()

    def look_for_successor(self) -> None:
        """Read in the shared file whether another supervisor of this attempt has become the head node. The desired
        state with that change may not have arrived here. This also writes files that a full disk did not accept
        before."""
        if self.address is not None and self._noted != self.address:
            self._note(self.address)
        if self.head_node is None or self.address is None:
            return
        named = self.folder.head_node()
        if not self._file_written and named in (None, self._named_before):
            self._write_file()
        elif named is not None and named != self.address:
            _log.warning("the head node of this attempt is %s from here on", named)
            self._successor = named

    def _write_file(self) -> None:
        with self._file_outage.watching():
            self.folder.name_head_node(self.address)
            self._file_written = True

    def _hand_over(self, coordinator: str) -> None:
        """Stop being the head node. The coordinator of the new head node listens already, and its driver will run."""
        assert self.head_node is not None
        _log.info("the head node is %s from here on", coordinator)
        self._disconnect()
        self._note(coordinator)  # before the connections of the engines break
        self.head_node.close()
        self._old_head_nodes.append(self.head_node)
        self.head_node = None

    def _note(self, address: str) -> None:
        """Write the coordinator's address into a file for this node's driver and engines. On a full disk this is done
        later: running processes have the address, and read the file only when their connection breaks."""
        with self._note_outage.watching():
            note_coordinator(self._spec, address)
            self._noted = address

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────
    def _connect(self, address: str) -> bool:
        """Connect to a coordinator on another node; returns False if it does not answer now."""
        try:
            self._use(
                connect(
                    address,
                    role=Role.SUPERVISOR,
                    token=self._spec.token,
                    name=self._spec.node,
                    seconds=_CONNECT_SECONDS,
                )
            )
        except OSError:
            return False
        return True

    def _use(self, sock: socket.socket) -> None:
        self._disconnect()
        self._channel = Channel(sock)
        self._selector.register(self._channel, selectors.EVENT_READ, self._read)

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None

    def _read(self) -> None:
        channel = self._channel
        if channel is None:
            return
        for message in channel.read():
            self._receive(message)
        if channel.closed and self._channel is channel:
            self._disconnect()
            if self.head_node is None and not self._engines.living:
                self._alone()

    def _introduce_engines(self) -> None:
        """Tell a coordinator that may be new which engines live, which are gone, and which must leave."""
        for allocation in self._engines.living:
            self.send(EngineExpected(str(allocation)))
        kept, self._kept = self._kept, []
        for message in kept:
            self.send(message)
        for allocation in self._engines.ended:
            self.send(EngineGone(str(allocation)))
        leaving = [str(number) for number, engine in self._engines.living.items() if engine.leave_by is not None]
        if leaving:
            self.send(LeaveEngines(tuple(leaving)))

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────
    def head_nodes(self) -> list[HeadNode]:
        """This node's coordinator and driver, and earlier ones whose processes may still be ending."""
        return [*([self.head_node] if self.head_node is not None else []), *self._old_head_nodes]

    def drivers(self) -> list[Child]:
        """This node's driver, and earlier drivers that are still ending."""
        return [node.driver for node in self.head_nodes() if node.driver is not None]
