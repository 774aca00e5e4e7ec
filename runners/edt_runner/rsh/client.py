"""The program ``edt-rsh``: ``edt-rsh [OPTIONS of ssh] WORKER COMMAND…`` runs COMMAND on another worker of this gang.

Options are accepted as ssh accepts them, and ignored. As with ssh, the words of the command are joined by spaces, and a
shell reads them. The exit status is that of the command, or 255 where it could not be run.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence

from edt_runner.rsh import wire
from edt_runner.rsh.wire import Kind, Link, WireError

_CONNECT_SECONDS = 30.0
_AGAIN_SECONDS = 0.1
_PROVE_SECONDS = 60.0
"""The server lets connections wait while it has too many that have not proved the key."""
_MOST_HELD = 1 << 18
"""Bytes of output that wait to be written; while there are more, nothing is received."""
_FAILED = 255
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh that take a value."""


def main() -> int:
    try:
        name, words = parse(sys.argv[1:])
        host, port = find(name, os.environ)
        key = os.environ[wire.KEY_VARIABLE]
    except KeyError as error:
        return _fail(f"{error.args[0]}; edt-rsh works in jobs that run one process for several workers")
    except ValueError as error:
        return _fail(str(error))
    try:
        with _connect(host, port) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.prove(sock, key, server=False, until=time.monotonic() + _PROVE_SECONDS)
            wire.send(sock, Kind.COMMAND, "\0".join(words).encode("utf-8", "surrogateescape"))
            return _pass_on(sock)
    except (OSError, WireError) as error:
        return _fail(f"{name} at {host}:{port}: {error}")


def parse(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The worker's name and the words of the command.

    Raises:
        ValueError: one of them is missing.
    """
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    if len(rest) < 2:
        raise ValueError("usage: edt-rsh WORKER COMMAND…")
    return rest[0].rpartition("@")[2], rest[1:]


def find(name: str, environ: Mapping[str, str]) -> tuple[str, int]:
    """Host and port of a worker's server.

    Raises:
        KeyError: there is no such worker.
    """
    workers = dict(each.partition("=")[::2] for each in environ.get(wire.WORKERS_VARIABLE, "").split())
    if name not in workers:
        raise KeyError(f"there is no worker {name!r} but {', '.join(workers) or 'none'}")
    host, _, port = workers[name].rpartition(":")
    return host.strip("[]"), int(port)


def _connect(host: str, port: int) -> socket.socket:
    """Connect to a server, which may be starting.

    Raises:
        OSError: it does not answer.
    """
    until = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_AGAIN_SECONDS)


def _pass_on(sock: socket.socket) -> int:
    """Pass input and output on until the command ends; returns its exit status.

    Nothing here waits for one side alone: while output arrives, input that the server does not take yet is not read.

    Raises:
        WireError, OSError: the connection ended or broke, or the output cannot be written.
    """
    link = Link(sock)
    room = wire.INPUT_BYTES
    """Bytes of input that the server takes now."""
    input_open = True
    held = {1: bytearray(), 2: bytearray()}
    """Output that could not be written yet, by descriptor."""
    status: int | None = None
    while status is None or any(held.values()):
        readers = []
        if status is None and max(map(len, held.values())) < _MOST_HELD:
            readers.append(link.descriptor)
        if status is None and input_open and room:
            readers.append(0)
        readable, writable = wire.wait(readers, [*link.if_waiting(), *(each for each, data in held.items() if data)])
        if 0 in readable:
            data = _read_input(min(room, wire.PIECE_BYTES))
            if data is not None:
                input_open = bool(data)
                room -= len(data)
                link.send(Kind.INPUT, data)
        if link.descriptor in readable:
            for kind, data in link.receive():
                if kind is Kind.EXITED:
                    status = int(data)
                elif kind is Kind.TAKEN:
                    room += int(data)
                else:
                    held[1 if kind is Kind.OUTPUT else 2] += data
        for descriptor in held.keys() & writable:
            _write(descriptor, held[descriptor])
        if status is None:
            link.flush()
    return status


def _read_input(most: int) -> bytes | None:
    """Input that has arrived; b"": its end; None: nothing now."""
    try:
        return os.read(0, most)
    except BlockingIOError:
        return None
    except OSError:  # the input is closed, or a terminal of another group
        return b""


def _write(descriptor: int, held: bytearray) -> None:
    """Write some of the held output. A pipe that can be written has room for so many bytes. The descriptor is not made
    non-blocking, because other processes share it."""
    try:
        del held[: os.write(descriptor, held[: select.PIPE_BUF])]
    except BlockingIOError:
        return
    except BrokenPipeError:  # nobody reads it any more, but the command may go on
        held.clear()


def _fail(message: str) -> int:
    print(f"edt-rsh: {message}", file=sys.stderr)
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
