"""How a supervisor learns what it should do: a unix socket on which desired states come, and signals.

The agent connects to the socket, or the process of a local training. It sends ``DesiredState`` lines; the supervisor
writes an empty line when there are new reports on disk.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from edt_contract.attempt import DesiredState
from edt_contract.encoding import ContractError, from_json_object, load_line
from edt_runner.protocol.channel import LineChannel

_log = logging.getLogger(__name__)


class AgentLink:
    """The listening socket and its connections.

    Args:
        path: of the socket; only this process's user can connect to it.
        selector: where the socket and its connections are read.
        receive: called with each desired state.
        gone: called when a connection has ended and no other is left.
    """

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        *,
        receive: Callable[[DesiredState], None],
        gone: Callable[[], None],
    ) -> None:
        self._path, self._selector, self._receive, self._gone = Path(path), selector, receive, gone
        self._connections: list[LineChannel] = []
        self._listener = _listen(self._path)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def notify(self) -> None:
        """Say that there are new reports on disk, to everybody who has room for a byte."""
        for connection in self._connections:
            connection.hint(b"\n")

    def close(self) -> None:
        """Close all connections and remove the socket."""
        for connection in self._connections:
            connection.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        connection = LineChannel(sock, write_seconds=1.0)
        self._connections.append(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(connection))

    def _read(self, connection: LineChannel) -> None:
        for line in connection.read_lines():
            try:
                self._receive(from_json_object(DesiredState, load_line(line)))
            except ContractError as error:
                _log.warning("a desired state cannot be read: %s", error)
        if connection.closed:
            self._selector.unregister(connection)
            self._connections.remove(connection)
            connection.close()
            if not self._connections:
                self._gone()


def wakeup_at_signals(leave: Callable[[], None]) -> tuple[socket.socket, socket.socket]:
    """A pair of sockets whose first end becomes readable at any signal. SIGTERM and SIGINT call ``leave``."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: leave())
    return reader, writer


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(8)
    return listener
