"""The frames that ``edt-rsh`` and its server exchange, and how they prove that they know the gang's key."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterable

WORKERS_VARIABLE, KEY_VARIABLE = "EDT_RSH_WORKERS", "EDT_RSH_KEY"
"""Environment variables of the job's processes: ``name=host:port`` of each worker's server with spaces between them,
and the gang's key."""

_HEAD = struct.Struct("!BI")
_MOST_BYTES = 1 << 20
_NONCE_BYTES = 32
PIECE_BYTES = 1 << 16
"""Most bytes of input or output in a frame."""
INPUT_BYTES = 1 << 18
"""Bytes of input that the client sends ahead of what the command has taken."""


class Kind(enum.IntEnum):
    """The kinds of frames."""

    COMMAND = 1  # to the server: the words of the command with NUL between them
    INPUT = 2  # to the server: standard input; empty: its end
    OUTPUT = 3  # standard output
    ERRORS = 4  # standard error
    EXITED = 5  # the last frame: the exit status as text; 128 + N where signal N ended the command
    TAKEN = 6  # to the client: number, as text, of bytes of input that the command has taken; as many more may be sent


class WireError(Exception):
    """The other side does not know the key, or does not send frames."""


def key_of(token: str) -> str:
    """The key of a gang, made from its attempt's token, which cannot be computed from the key."""
    return hmac.new(token.encode(), b"edt-rsh", hashlib.sha256).hexdigest()


def prove(sock: socket.socket, key: str, *, server: bool, until: float) -> None:
    """Prove to the other side that this side knows the key, and let it do the same.

    Args:
        sock: the connection.
        key: the gang's key.
        server: whether this side is the server. It proves its knowledge only after the client has.
        until: monotonic seconds at which this gives up, however slowly the other side goes on sending.

    Raises:
        WireError: the other side does not know the key.
        OSError: the connection broke, or the time is over.
    """
    own = secrets.token_bytes(_NONCE_BYTES)
    _limit(sock, until)
    sock.sendall(own)
    others = receive_exactly(sock, _NONCE_BYTES, until)
    asked, answered = (own, others) if server else (others, own)

    def proof(side: bytes) -> bytes:
        return hmac.new(key.encode(), side + asked + answered, hashlib.sha256).digest()

    mine, theirs = (b"server", b"client") if server else (b"client", b"server")
    if not server:
        sock.sendall(proof(mine))
    if not hmac.compare_digest(receive_exactly(sock, hashlib.sha256().digest_size, until), proof(theirs)):
        raise WireError("the other side does not know the key of this job")
    if server:
        sock.sendall(proof(mine))


def send(sock: socket.socket, kind: Kind, data: bytes) -> None:
    """Send a frame.

    Raises:
        OSError: the connection broke.
    """
    sock.sendall(_HEAD.pack(kind, len(data)) + data)


def receive(sock: socket.socket, until: float | None = None) -> tuple[Kind, bytes]:
    """Receive a frame.

    Args:
        sock: the connection.
        until: monotonic seconds at which this gives up; None: never.

    Raises:
        WireError: the connection ended, or the other side sent something else.
        OSError: the connection broke, or the time is over.
    """
    kind, length = _read_head(receive_exactly(sock, _HEAD.size, until))
    return kind, receive_exactly(sock, length, until)


def receive_exactly(sock: socket.socket, count: int, until: float | None = None) -> bytes:
    """Receive ``count`` bytes. ``until``: monotonic seconds at which this gives up; None: never.

    Raises:
        WireError: the connection ended.
        OSError: the connection broke, or the time is over.
    """
    data = b""
    while len(data) < count:
        _limit(sock, until)
        piece = sock.recv(count - len(data))
        if not piece:
            raise WireError("the connection ended")
        data += piece
    return data


def _limit(sock: socket.socket, until: float | None) -> None:
    """Let the next call wait until then at most. A timeout that stays the same would let a sender of single bytes go on
    for ever."""
    if until is None:
        sock.settimeout(None)
        return
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the other side did not prove in time that it knows the key of this job")
    sock.settimeout(left)


def _read_head(head: bytes) -> tuple[Kind, int]:
    """Kind and length of a frame.

    Raises:
        WireError: this is no head of a frame.
    """
    number, length = _HEAD.unpack(head)
    if length > _MOST_BYTES:
        raise WireError(f"a frame of {length} bytes")
    try:
        return Kind(number), length
    except ValueError:
        raise WireError(f"a frame of kind {number}") from None


class Link:
    """A connection whose two sides know each other. It never waits for the other side, neither to send nor to receive.

    Args:
        sock: the connection.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out = bytearray()
        self._in = bytearray()

    @property
    def descriptor(self) -> int:
        return self._sock.fileno()

    @property
    def waiting(self) -> int:
        """Number of bytes that the connection has not taken yet."""
        return len(self._out)

    def if_waiting(self) -> list[int]:
        """The descriptor, if bytes wait for room."""
        return [self.descriptor] if self._out else []

    def send(self, kind: Kind, data: bytes) -> None:
        """Send a frame as soon as there is room (``flush``)."""
        self._out += _HEAD.pack(kind, len(data)) + data

    def flush(self) -> None:
        """Send what the connection has room for.

        Raises:
            OSError: the connection broke.
        """
        with contextlib.suppress(BlockingIOError):
            while self._out:
                del self._out[: self._sock.send(self._out)]

    def receive(self) -> list[tuple[Kind, bytes]]:
        """The frames that have arrived. Call this when the connection can be read.

        Raises:
            WireError: the connection ended, or the other side sent something else.
            OSError: the connection broke.
        """
        try:
            data = self._sock.recv(PIECE_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise WireError("the connection ended")
        self._in += data
        found = []
        while len(self._in) >= _HEAD.size:
            kind, length = _read_head(bytes(self._in[: _HEAD.size]))
            end = _HEAD.size + length
            if len(self._in) < end:
                break
            found.append((kind, bytes(self._in[_HEAD.size : end])))
            del self._in[:end]
        return found

    def finish(self) -> None:
        """Send everything, and wait until the other side has ended the connection. If this side ended it while input of
        the other side arrives, the system would drop what is still on its way.

        Raises:
            OSError: the connection broke.
        """
        shut = False
        while True:
            self.flush()
            if not self._out and not shut:
                self._sock.shutdown(socket.SHUT_WR)
                shut = True
            readable, _ = wait([self.descriptor], self.if_waiting())
            if self.descriptor in readable:
                try:
                    self.receive()
                except WireError:
                    return


def wait(
    readers: Iterable[int], writers: Iterable[int], seconds: float | None = None
) -> tuple[frozenset[int], frozenset[int]]:
    """Wait until a descriptor can be read or written, as ``select.select`` does, which takes no descriptor above 1023.

    Args:
        readers: descriptors to read.
        writers: descriptors to write.
        seconds: the longest wait; None: without end.

    Returns:
        The descriptors that can be read, and those that can be written, also by an error.
    """
    wanted: dict[int, int] = {}
    for descriptors, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for descriptor in descriptors:
            wanted[descriptor] = wanted.get(descriptor, 0) | event
    poll = select.poll()
    for descriptor, events in wanted.items():
        poll.register(descriptor, events)
    ready = poll.poll(None if seconds is None else int(seconds * 1000))
    other = ~(select.POLLIN | select.POLLOUT)  # hung up, or an error: the next call of either kind shows it
    return (
        frozenset(each for each, events in ready if wanted[each] & select.POLLIN and events & (select.POLLIN | other)),
        frozenset(
            each for each, events in ready if wanted[each] & select.POLLOUT and events & (select.POLLOUT | other)
        ),
    )
