"""The server of ``edt-rsh`` on one worker. It runs as the job's user and ends with the job.

A process of its own handles each connection: it runs one command (``command``) as the leader of a new session. When the
connection ends first, the command and all processes that it has started are ended.

Whoever reaches the port can connect. So the server handles only some connections at once that have not proved the key,
and each for a limited time. Further ones wait in the system's queue of the listening socket.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NoReturn

from edt_contract import processes
from edt_runner.rsh import command, wire
from edt_runner.rsh.wire import Kind, WireError

_PROVE_SECONDS = 20.0
"""Seconds that a connection has to prove the key and to name its command."""
_MOST_UNPROVED = 64
"""Most connections that are handled while they have not proved the key."""
_MPI_FOLDER = "OMPI_MCA_orte_tmpdir_base"
"""Open MPI's variable for the folder of its session files. Two workers on one machine may not share them."""


def serve(listener: socket.socket, key: str, environ: Mapping[str, str], folder: str, grace_seconds: float) -> None:
    """Accept connections until SIGTERM, and then until the last command has ended.

    Args:
        listener: the listening socket.
        key: the gang's key.
        environ: environment of the commands.
        folder: working directory of the commands.
        grace_seconds: seconds from SIGTERM to SIGKILL for commands whose connection has ended. The job's processes have
            as many at its end.
    """
    asked = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def handle(sock: socket.socket, proving: int) -> None:
        line = _receive_line(sock, key, proving)
        with tempfile.TemporaryDirectory(prefix="edt-rsh-", ignore_cleanup_errors=True) as own:
            command.run(sock, line, {_MPI_FOLDER: own, **environ}, folder, grace_seconds)

    listener.setblocking(False)  # a client may be gone before its connection is accepted
    handlers: set[int] = set()
    unproved: set[int] = set()
    with selectors.PollSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while handlers or not asked:
            accepts = not asked and len(unproved) < _MOST_UNPROVED
            if accepts and listener not in selector.get_map():
                selector.register(listener, selectors.EVENT_READ)
            elif not accepts and listener in selector.get_map():
                selector.unregister(listener)
            for ready in [each.fd for each, _ in selector.select()]:
                if ready == reader:
                    os.read(reader, 4096)
                    handlers -= {pid for pid, _ in processes.ended_children()}
                elif ready == listener.fileno():
                    with contextlib.suppress(OSError):  # the client is gone, or there is no room for a process
                        pid, proving = _fork_handler(listener, handle)
                        handlers.add(pid)
                        unproved.add(proving)
                        selector.register(proving, selectors.EVENT_READ)
                else:
                    selector.unregister(ready)
                    unproved.remove(ready)
                    os.close(ready)


def _fork_handler(listener: socket.socket, handle: Callable[[socket.socket, int], None]) -> tuple[int, int]:
    """Fork a process that handles the next connection. Returns its pid and the read end of a pipe, whose other end the
    process closes as soon as the client has proved the key.

    Args:
        listener: the listening socket.
        handle: handles a connection; its second argument is the other end of the pipe.

    Raises:
        OSError: there is no connection any more, or the system has no room for a process.
    """
    sock, _ = listener.accept()
    with sock:
        reader, writer = os.pipe()
        try:
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _be_handler(parent, sock, listener, lambda: handle(sock, writer))
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
    return pid, reader


def _be_handler(parent: int, sock: socket.socket, listener: socket.socket, handle: Callable[[], None]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        processes.die_with(parent)
        os.setsid()  # SIGTERM for the server's group is not for the command: the launcher of the job ends it
        listener.close()
        with sock, contextlib.suppress(OSError, WireError):
            handle()
    finally:
        os._exit(0)


def _receive_line(sock: socket.socket, key: str, proving: int) -> str:
    """Let the client prove the key, and receive its command.

    Raises:
        WireError, OSError: it does not prove the key, names no command, or takes too long.
    """
    until = time.monotonic() + _PROVE_SECONDS
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.prove(sock, key, server=True, until=until)
    os.close(proving)
    kind, data = wire.receive(sock, until)
    if kind is not Kind.COMMAND:
        raise WireError("no command")
    return data.decode("utf-8", "surrogateescape").replace("\0", " ")
