"""JSON lines over a stream socket. Room: runners; standard library only.

``Channel`` is for loops that select; ``connect`` and ``accept_role`` say how a process introduces itself to the
coordinator: its first line is a hello with the attempt's token.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Mapping
from typing import Any

from edt_runner.contract import ContractError, dump_line, load_line

MAX_LINE = 16 * 1024 * 1024


class Channel:
    """One peer. Reading never blocks; writing blocks at most ``write_seconds`` and then gives the peer up."""

    def __init__(self, sock: socket.socket, *, write_seconds: float = 10.0) -> None:
        self.socket = sock
        self.socket.settimeout(write_seconds)
        self.closed = False
        self._buffer = b""
        self._outgoing = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> list[dict[str, Any]]:
        """Messages that have arrived; at the end of the stream ``closed`` becomes true. Bad lines close it too."""
        try:
            data = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
        return self._split(data)

    def read_blocking(self) -> list[dict[str, Any]]:
        """Wait for at least some bytes. Empty and ``closed``: the end."""
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLIN)
            poll.poll()  # the socket's own timeout is for writing
        except (OSError, ValueError):
            self.closed = True
            return []
        return self.read()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message; a peer that is gone or does not read is given up, not an error.

        The socket stays open until ``close``: whoever selects on it is told of its end there, in one place, and
        no newer socket gets its number meanwhile.
        """
        if self.closed:
            return
        try:
            self.socket.sendall(dump_line(message))
        except OSError:
            self._give_up()

    def post(self, message: Mapping[str, Any]) -> None:
        """Queue one message and write what the peer has room for; ``pump`` writes on. Never blocks, waits for ever."""
        self._outgoing += dump_line(message)
        self.pump()

    def pump(self) -> None:
        """Write of the queue what the peer has room for."""
        while self._outgoing and not self.closed:
            try:
                written = os.write(self.socket.fileno(), self._outgoing[: 1 << 16])
            except BlockingIOError:
                return
            except OSError:
                self._give_up()
                return
            self._outgoing = self._outgoing[written:]

    @property
    def backlog(self) -> int:
        """Bytes queued."""
        return len(self._outgoing)

    def hint(self, message: Mapping[str, Any]) -> None:
        """Write one short message if the peer has room for it, else drop it: never blocks, never closes."""
        with contextlib.suppress(OSError):
            os.write(self.socket.fileno(), dump_line(message))  # its own send() would wait: the socket has a timeout

    def end(self) -> None:
        """Nothing is said or heard any more: whoever waits in ``read_blocking`` hears the end."""
        self._give_up()

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.close()

    def _give_up(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _split(self, data: bytes) -> list[dict[str, Any]]:
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        try:
            if len(self._buffer) > MAX_LINE:
                raise ContractError("a line without end")
            return [load_line(line) for line in lines if line]
        except ContractError:
            self.close()
            return []


def connect(address: str, *, role: str, token: str, name: str = "", seconds: float = 30.0) -> socket.socket:
    """Connect to a coordinator at ``host:port`` and say hello as ``role`` (driver, engine, supervisor)."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=seconds)
    keep_alive(sock)
    sock.sendall(dump_line({"kind": "hello", "role": role, "token": token, "name": name}))
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice within seconds that a machine at the other end is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 6000),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
