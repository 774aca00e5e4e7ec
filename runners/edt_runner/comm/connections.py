"""Finds, shuts and tests gloo's TCP connections in this process, and waits for the operations that use them.

gloo gives no access to its connections and cannot wake a thread that waits on a connection. So this module finds the
connections by their addresses, among the descriptors in /proc/self/fd, and shuts them. (Measured: gloo's operation then
fails within 1 ms.) It does not touch listening sockets or the sockets of user code. It compares host and port, because
the same port may be in use on another host or on another address of this host.

gloo also forgets operations: a receive that had partly arrived when its peer died, or a send that was about to begin.
(Measured: each of these waits until its timeout, although its connection is closed. Neither ``abort`` nor ``shutdown``
of the group wakes it, and neither does the end of another operation.) So a separate thread waits for the operations.
The thread that needs the result checks every 20 ms whether the connections have been shut. A waiting thread that is
stuck is left alone, with the operation for which it waits and with the group, whose destructor would wait for that
operation, too. It releases both when the operation's timeout is over. Every other waiting thread ends with its group. A
thread that releases torch's objects while the interpreter ends would be ended in the middle of C++ code, and SIGABRT
would end the process.
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
    """Return the addresses (``host:port``) of this process's listening TCP sockets, by inode number."""
    return {
        inode: _address(own.getsockname())
        for inode, own in _tcp()
        if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }


def shut(*, own: Collection[str], peers: Collection[str]) -> int:
    """Shut connections for reading, which wakes every thread that reads from them.

    They stay open for writing. If writing failed, gloo would forget a send that was about to begin, and the thread that
    waits for that send would wait for ever.

    Args:
        own: connections that were accepted at these addresses are shut. Addresses are ``host:port`` as ``listening``
            returns them: the host is a number, and an IPv4 address inside IPv6 is written as IPv4.
        peers: connections to these addresses are shut.

    Returns:
        The number of connections that were shut.
    """
    number = 0
    for _, connection in _tcp():
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        with contextlib.suppress(OSError):  # the socket is not connected
            if _address(connection.getsockname()) in own or _address(connection.getpeername()) in peers:
                connection.shutdown(socket.SHUT_RD)
                number += 1
    return number


class ProbePort:
    """A port at which other processes test whether they can reach this process. The kernel accepts the connections, so
    no thread is needed.

    Args:
        host: the address to listen on.

    Raises:
        OSError: this machine does not have the address, or has no free port.
    """

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def clear(self) -> None:
        """Close the connections that were accepted, so that the backlog does not become full."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def can_connect(address: str, seconds: float = 1.0) -> bool:
    """Return whether a connection to ``address`` (``host:port``) is accepted within ``seconds``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _address(name: tuple[Any, ...]) -> str:
    """Return, as ``host:port``, the value that ``getsockname`` or ``getpeername`` returned for a TCP socket."""
    host, port, *_ = name
    number = ipaddress.ip_address(str(host).partition("%")[0])  # a peer does not know the interface of a link-local one
    return f"{getattr(number, 'ipv4_mapped', None) or number}:{port}"


def _tcp() -> Iterator[tuple[int, socket.socket]]:
    """Yield the inode number and the socket of each TCP socket of this process. The socket uses a copy of the
    descriptor, which is closed again."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            descriptor = os.dup(int(entry.name))
        except OSError:
            continue  # the directory's own descriptor, or a descriptor that another thread has closed
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        with found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield os.fstat(found.fileno()).st_ino, found


OPERATION_TIMEOUT = timedelta(minutes=30)
"""Timeout of each operation. It is long, because a step may take any time: a supervisor reports a dead peer, not a
timeout. Without its own timeout, an operation would get the timeout with which its group was built."""
_POLL_SECONDS = 0.02
_LAST_SECONDS = 0.05
"""Seconds that an operation may still take after the connections were shut. Most operations of gloo fail by themselves
within that time."""
_END_SECONDS = 2.0
"""Seconds that the thread may take to end. It ends at once unless it is stuck."""


class Watchdog:
    """Waits for the operations of one group. Only one thread calls its methods.

    Args:
        shut: an event that is set when the group's connections have been shut.
        group: the process group. The watchdog holds a reference to it until ``close``, or as long as the thread is
            stuck in one of its operations.
    """

    def __init__(self, shut: threading.Event, group: Any) -> None:
        self._shut, self._group = shut, group
        self._waits: queue.SimpleQueue[_Wait | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stuck = False
        """Whether the thread waits for an operation that does not end. The watchdog then waits for no other
        operation."""

    def wait(self, works: Sequence[Any]) -> None:
        """Wait until all operations ``works`` (``torch.distributed.Work``) are done.

        Raises:
            PeerLost: an operation failed, or the connections have been shut. User code never causes this error.
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
        wait.works.clear()  # frees the memory of all operations except the stuck one
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
    """Operations to wait for, and the error of the first that failed, if any."""

    def __init__(self, works: Sequence[Any]) -> None:
        self.works = list(works)
        self.error: RuntimeError | None = None
        self.done = threading.Lock()
        self.done.acquire()
