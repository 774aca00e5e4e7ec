"""Messages to lines and back, and both over a stream socket. Standard library only.

``Channel`` exchanges messages. ``LineChannel`` exchanges lines of bytes: the socket between agent and supervisor
carries the contract's lines, which are no messages of this package. Both are for loops that select. ``connect`` is how
a process introduces itself to the coordinator.
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
"""Where messages are defined; importing them fills ``KINDS``."""
PROTOCOL_VERSION = 1
"""Grows when a message changes so that an older reader would act wrongly on it."""
MAX_LINE = 16 * 1024 * 1024


def decode(line: bytes | str) -> Message:
    """Read the message that ``dump_line`` has written.

    Raises:
        ContractError: the line is no message that this version knows: no JSON object, an unknown kind, a missing field,
            a field of the wrong type, or a hello of another version. The text names kind and field.
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
    """A connection that carries lines. Reading never blocks; writing blocks at most ``write_seconds``, after which the
    connection is given up.

    Args:
        sock: a connected stream socket; the channel owns it.
        write_seconds: how long one line may take to write.
    """

    def __init__(self, sock: socket.socket, *, write_seconds: float = 10.0) -> None:
        self.socket = sock
        self.socket.settimeout(write_seconds)
        self.closed = False
        self._buffer = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def read_lines(self) -> list[bytes]:
        """Whole lines that have arrived, without their ends. At the end of the stream ``closed`` becomes true; a line
        of more than 16 MiB closes the connection too."""
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
        """Write one line, which ends in a newline. If the peer is gone or does not read, the connection is given up
        and nothing is raised.

        The socket stays open until ``close``: a loop that selects on it learns of its end there, in one place, and
        no newer socket gets its number meanwhile.
        """
        if self.closed:
            return
        try:
            self.socket.sendall(line)
        except OSError:
            self.end()

    def hint(self, line: bytes) -> None:
        """Write one short line if the peer has room for it, else drop it. Never blocks and never closes."""
        with contextlib.suppress(OSError):
            os.write(self.socket.fileno(), line)  # the socket's own send() would wait: it has a timeout

    def end(self) -> None:
        """Shut the connection in both directions: a peer, or a thread in ``read_blocking``, sees its end."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.socket.close()


class Channel(LineChannel):
    """A connection that carries messages. A line that is no message closes it; the log says why."""

    _outgoing = b""
    """What ``post`` has queued."""

    def read(self) -> list[Message]:
        """Messages that have arrived; empty where there are none. At the end of the stream ``closed`` becomes true."""
        try:
            return [decode(line) for line in self.read_lines()]
        except ContractError as error:
            _log.error("a connection is closed because of what its peer has sent: %s", error)
            self.close()
            return []

    def read_blocking(self) -> list[Message]:
        """Wait until bytes have arrived, and read. The stream has ended if ``closed`` is true afterwards."""
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
        """Queue one message and write what the peer has room for; ``pump`` writes the rest. Never blocks, and never
        gives up a peer that does not read."""
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
        """Bytes queued."""
        return len(self._outgoing)


def connect(address: str, *, role: Role, token: str, name: str = "", seconds: float = 30.0) -> socket.socket:
    """Connect to a coordinator and send it a ``Hello``.

    Args:
        address: ``host:port``.
        role: of this process.
        token: the attempt's secret.
        name: an engine's allocation id, or a supervisor's node; empty for the driver.
        seconds: how long connecting may take.

    Raises:
        OSError: nobody listens there, or the hello could not be sent.
    """
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=seconds)
    keep_alive(sock)
    sock.sendall(dump_line(Hello(PROTOCOL_VERSION, role, token, name)))
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel end the connection within seconds when the machine at its other end is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 6000),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
