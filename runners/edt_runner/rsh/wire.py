"""The frames that ``edt-rsh`` and its server exchange, and how they prove that they know the gang's key."""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
import socket
import struct
import time

WORKERS_VARIABLE, KEY_VARIABLE = "EDT_RSH_WORKERS", "EDT_RSH_KEY"
"""Environment variables of the job's processes: ``name=host:port`` of each worker's server with spaces between them,
and the gang's key."""

_HEAD = struct.Struct("!BI")
_MOST_BYTES = 1 << 20
_NONCE_BYTES = 32
PIECE_BYTES = 1 << 16
"""Most bytes of input or output in a frame."""


class Kind(enum.IntEnum):
    """The kinds of frames."""

    COMMAND = 1  # to the server: the words of the command with NUL between them
    INPUT = 2  # to the server: standard input; empty: its end
    OUTPUT = 3  # standard output
    ERRORS = 4  # standard error
    EXITED = 5  # the last frame: the exit status as text; 128 + N where signal N ended the command


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
    number, length = _HEAD.unpack(receive_exactly(sock, _HEAD.size, until))
    if length > _MOST_BYTES:
        raise WireError(f"a frame of {length} bytes")
    try:
        kind = Kind(number)
    except ValueError:
        raise WireError(f"a frame of kind {number}") from None
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
