"""Connections of gloo, as this process's own TCP sockets: found, shut, tried; and waiting for what runs over them.

gloo gives no handle of its connections, and cannot wake a thread that waits on one. So this module finds connections by
their addresses, as /proc/self/fd shows them, and shuts them (measured: gloo's operation fails within 1 ms). It leaves
listening sockets and user code's sockets alone. It compares host and port: the port alone could be another host's, or
another address's of this one.

gloo also forgets operations: a receive of which a part was here when its peer died, a send that was about to begin
(measured: each waits until its timeout, with its connection closed; neither ``abort`` nor ``shutdown`` of the group
wakes it, nor does another operation's end). So a thread of its own waits, and whoever needs the result looks every
20 ms whether the connections have been shut. A thread that is stuck is left behind with the one operation that it waits
for and with the group, whose destructor would wait for that; it lets go of both when the operation's timeout is over.
Any other thread ends with its group: one that lets go of torch's objects while the interpreter ends is ended in the
middle of C++, and the process by SIGABRT.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import queue
import socket
import threading
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from edt_runner.errors import PeerLost


def listening() -> dict[int, str]:
    """Addresses (``host:port``) of the TCP sockets of this process that listen, by inode number."""
    return {
        inode: _address(own.getsockname())
        for inode, own in _tcp()
        if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }


def shut(*, own: Collection[str], peers: Collection[str]) -> int:
    """Shut connections for reading, which wakes every thread that reads from them.

    They stay open for writing: where writing fails gloo forgets a send that was about to begin, and whoever waits for
    that send waits for ever.

    Args:
        own: connections that were accepted at these addresses are shut. Addresses are ``host:port`` as ``listening``
            gives them: hosts as numbers, IPv4 within IPv6 as IPv4.
        peers: connections to these addresses are shut.

    Returns:
        How many connections were shut.
    """
    number = 0
    for _, connection in _tcp():
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        with contextlib.suppress(OSError):  # not connected, or not any more
            if _address(connection.getsockname()) in own or _address(connection.getpeername()) in peers:
                connection.shutdown(socket.SHUT_RD)
                number += 1
    return number


class ProbePort:
    """A port that shows others whether they reach this process. The kernel accepts the connections, so no thread is
    needed.

    Args:
        host: the address to listen at.

    Raises:
        OSError: this machine has no such address, or no free port.
    """

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def clear(self) -> None:
        """Close the connections that were accepted, before the backlog is full."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def can_connect(address: str, seconds: float = 1.0) -> bool:
    """Whether a connection to ``address`` (``host:port``) is accepted within ``seconds``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _address(name: tuple[Any, ...]) -> str:
    """``host:port`` of what ``getsockname`` or ``getpeername`` returns for a TCP socket."""
    host, port, *_ = name
    number = ipaddress.ip_address(str(host).partition("%")[0])  # the interface of a link-local one is no peer's
    return f"{getattr(number, 'ipv4_mapped', None) or number}:{port}"


def _tcp() -> Iterator[tuple[int, socket.socket]]:
    """Each TCP socket with its inode, by a descriptor that is closed again."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            descriptor = os.dup(int(entry.name))
        except OSError:
            continue  # the directory's own descriptor, or one that another thread has closed
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        with found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield os.fstat(found.fileno()).st_ino, found


OPERATION_TIMEOUT = timedelta(minutes=30)
"""A step may take as long as it likes: a dead peer is reported by its supervisor, not by a timeout. gloo takes the time
in which a group must be built for that of every operation in it, unless the operation brings its own."""
_POLL_SECONDS = 0.02
_LAST_SECONDS = 0.05
"""How long an operation may still take once the connections are shut: gloo does notice most of that."""
_END_SECONDS = 2.0
"""How long the thread may take to end, which it does at once unless it is stuck."""


class Watchdog:
    """Waits for the operations of one group. Only one thread calls its methods.

    Args:
        shut: is set once the group's connections have been shut.
        group: is held until ``close``, or as long as the thread is stuck in one of its operations.
    """

    def __init__(self, shut: threading.Event, group: Any) -> None:
        self._shut, self._group = shut, group
        self._waits: queue.SimpleQueue[_Wait | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stuck = False
        """Whether its thread waits for an operation that does not end. It waits for no other any more."""

    def wait(self, works: Sequence[Any]) -> None:
        """Wait until all operations ``works`` (``torch.distributed.Work``) are done.

        Raises:
            PeerLost: one of them failed, or the connections have been shut. It is never an error of user code.
        """
        if not works:
            return
        if self.stuck:
            raise PeerLost("the data plane was shut")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="edt-watchdog", daemon=True)
            self._thread.start()
        wait = _Wait(works)
        self._waits.put(wait)
        while not wait.done.acquire(timeout=_POLL_SECONDS):
            if self._shut.is_set():
                if wait.done.acquire(timeout=_LAST_SECONDS):
                    break
                self._give_up(wait)
                raise PeerLost("the data plane was shut")
        if wait.error is not None:
            raise PeerLost(f"the data plane broke off: {wait.error}") from wait.error

    def _give_up(self, wait: _Wait) -> None:
        self.stuck = True
        wait.works.clear()  # the memory of all operations but the one that it is stuck in is free
        self._waits.put(None)

    def close(self) -> None:
        """Wait for the thread to end, unless it is ``stuck``."""
        self._waits.put(None)
        if self._thread is not None and not self.stuck:
            self._thread.join(_END_SECONDS)
            self.stuck = self._thread.is_alive()
        if not self.stuck:
            self._group = None

    def _serve(self) -> None:
        while (wait := self._waits.get()) is not None:
            try:
                for work in wait.works:
                    work.wait(OPERATION_TIMEOUT)
            except RuntimeError as error:
                wait.error = error
            wait.done.release()
        self._group = None


class _Wait:
    """Operations that are waited for, and what came of them."""

    def __init__(self, works: Sequence[Any]) -> None:
        self.works = list(works)
        self.error: RuntimeError | None = None
        self.done = threading.Lock()
        self.done.acquire()
