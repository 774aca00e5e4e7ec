"""Converts messages to lines and back, and sends both over a stream socket. Standard library only.

``Channel`` exchanges messages. ``LineChannel`` exchanges lines of bytes. The socket between agent and supervisor uses
it, because it carries lines of the contract, which are not messages of this package. Both classes can be used with
``select``. ``connect`` connects a process to the coordinator and sends the first message.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket

from edt_contract.encoding import ContractError, dump_line, from_json_object, load_line
from edt_runner.protocol import engine_messages, messages
from edt_runner.protocol.messages import KINDS, Hello, Message, Role

_log = logging.getLogger(__name__)
MODULES = (engine_messages, messages)
"""The modules that define messages. Importing them fills ``KINDS``."""
PROTOCOL_VERSION = 2
"""Version of the protocol. It grows when a message changes in such a way that an older reader would misunderstand
it."""
MAX_LINE = 16 * 1024 * 1024


def decode(line: bytes | str) -> Message:
    """Read a message that ``dump_line`` has written.

    Raises:
        ContractError: the line is not a message that this version knows. It is not a JSON object, has an unknown kind,
            lacks a field, has a field of the wrong type, or is a ``Hello`` of another version. The text names kind and
            field.
    """
    data = load_line(line)
    kind = data["kind"]
    if kind not in KINDS:
        raise ContractError(f"unknown kind {kind[:100]!r}")
    message = from_json_object(KINDS[kind], data, kind)
    if isinstance(message, Hello) and message.version != PROTOCOL_VERSION:
        raise ContractError(f"{kind}: version is {message.version}, this process reads {PROTOCOL_VERSION}")
    return message


class LineChannel:
    """A connection that carries lines. Reading never blocks. Writing blocks for at most ``write_seconds``; after that
    the connection is shut.

    Args:
        sock: a connected stream socket. The channel owns it.
        write_seconds: seconds that the writing of one line may take.
    """

    def __init__(self, sock: socket.socket, *, write_seconds: float = 10.0) -> None:
        self.socket = sock
        self.socket.settimeout(write_seconds)
        self.closed = False
        self._buffer = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def read_lines(self) -> list[bytes]:
        """Return the complete lines that have arrived, without their newlines. At the end of the stream, ``closed``
        becomes true. A line of more than 16 MiB closes the connection, too."""
        try:
            data = self.socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_LINE:
            _log.error("a peer has sent a line of more than %d bytes: its connection is closed", MAX_LINE)
            self.close()
            return []
        return [line for line in lines if line]

    def send_line(self, line: bytes) -> None:
        """Write one line, which ends in a newline. If the peer is gone or does not read, this shuts the connection and
        raises nothing.

        The socket stays open until ``close``. So a loop that uses ``select`` sees the end of the connection in one
        place, and no newer socket gets the same descriptor meanwhile.
        """
        if self.closed:
            return
        try:
            self.socket.sendall(line)
        except OSError:
            self.end()

    def hint(self, line: bytes) -> None:
        """Write one short line if the peer has room for it; otherwise drop the line. This never blocks and never closes
        the connection."""
        with contextlib.suppress(OSError):
            os.write(self.socket.fileno(), line)  # the socket's own send() would wait, because the socket has a timeout

    def end(self) -> None:
        """Shut the connection in both directions, so that the peer and a thread in ``read_blocking`` see its end."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.close()


class Channel(LineChannel):
    """A connection that carries messages. A line that is not a message closes the connection; the reason is written to
    the log."""

    _outgoing = b""
    """Bytes that ``post`` has queued."""

    def read(self) -> list[Message]:
        """Return the messages that have arrived, if any. At the end of the stream, ``closed`` becomes true."""
        try:
            return [decode(line) for line in self.read_lines()]
        except ContractError as error:
            _log.error("a connection is closed because of what its peer has sent: %s", error)
            self.close()
            return []

    def read_blocking(self) -> list[Message]:
        """Wait until bytes have arrived, and return the messages in them. If ``closed`` is true afterwards, the stream
        has ended."""
        poll = select.poll()
        try:
            poll.register(self.socket, select.POLLIN)
            poll.poll()  # the socket's own timeout is for writing
        except (OSError, ValueError):
            self.closed = True
            return []
        return self.read()

    def send(self, message: Message) -> None:
        """Write one message, as ``send_line`` does."""
        self.send_line(dump_line(message))

    def post(self, message: Message) -> None:
        """Queue one message, and write as much of the queue as the peer has room for. ``pump`` writes the rest. This
        never blocks, and it never shuts the connection of a peer that does not read."""
        self._outgoing += dump_line(message)
        self.pump()

    def pump(self) -> None:
        """Write as much of the queue as the peer has room for."""
        while self._outgoing and not self.closed:
            try:
                written = os.write(self.socket.fileno(), self._outgoing[: 1 << 16])
            except BlockingIOError:
                return
            except OSError:
                self.end()
                return
            self._outgoing = self._outgoing[written:]

    @property
    def backlog(self) -> int:
        """Number of bytes in the queue."""
        return len(self._outgoing)


def connect(address: str, *, role: Role, token: str, name: str = "", seconds: float = 30.0) -> socket.socket:
    """Connect to a coordinator and send it a ``Hello``.

    Args:
        address: ``host:port``.
        role: role of this process.
        token: the attempt's secret.
        name: an engine's allocation id, or a supervisor's node; empty for the driver.
        seconds: seconds that connecting may take.

    Raises:
        OSError: no process listens at the address, or the ``Hello`` could not be sent.
    """
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=seconds)
    keep_alive(sock)
    sock.sendall(dump_line(Hello(PROTOCOL_VERSION, role, token, name)))
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel end the connection within seconds if the machine at the other end is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 6000),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
