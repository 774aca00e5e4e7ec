"""Finds, shuts and tests gloo's TCP connections in this process, and waits for the operations that use them.

gloo gives no access to its connections and cannot wake a thread that waits on a connection. So this module finds the
connections among the descriptors in /proc/self/fd, by the epoll instance that waits for them or by their addresses, and
shuts them. (Measured: gloo's operation then fails within 1 ms.) It does not touch listening sockets or the sockets of
user code. It compares host and port, because the same port may be in use on another host or on another address of this
host.

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
import re
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

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

    A gloo device waits for its listening socket and for all its connections, accepted or made by itself, in one epoll
    instance, and no other socket is in it. So the addresses of the other processes need not be known. Where the kernel
    does not list what an epoll instance waits for (gVisor), connections that the device has made are found only by
    ``peers``; their operations then end when the process at the other end closes them, or by the watchdog.

    Args:
        own: connections of the devices that listen at these addresses are shut. Addresses are ``host:port`` as
            ``listening`` returns them: the host is a number, and an IPv4 address inside IPv6 is written as IPv4.
        peers: connections to these addresses are shut.

    Returns:
        The number of connections that were shut.
    """
    number = 0
    devices = _waited_for(own)
    for inode, connection in _tcp():
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            continue
        with contextlib.suppress(OSError):  # the socket is not connected
            names = _address(connection.getsockname()), _address(connection.getpeername())
            if inode in devices or names[0] in own or names[1] in peers:
                connection.shutdown(socket.SHUT_RD)
                number += 1
    return number


def _waited_for(own: Collection[str]) -> set[int]:
    """Return the inode numbers of all that waits in one epoll instance with a socket that listens at one of the
    addresses ``own``."""
    listeners = {inode for inode, address in listening().items() if address in own}
    found: set[int] = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # another thread has closed the descriptor
            if entry.readlink().name == "anon_inode:[eventpoll]":
                waits = Path(f"/proc/self/fdinfo/{entry.name}").read_text()
                inodes = {int(inode, 16) for inode in re.findall(r"^tfd:.* ino:([0-9a-f]+)", waits, re.MULTILINE)}
                if inodes & listeners:
                    found |= inodes
    return found


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
    """Waits for the operations of one group, and works with what they bring, on a thread of its own. Only one thread
    calls its methods, save ``close``.

    Args:
        shut: an event that is set when the group's connections have been shut.
        group: the process group. The watchdog holds a reference to it until ``close``, or as long as the thread is
            stuck in one of its operations.
    """

    def __init__(self, shut: threading.Event, group: Any) -> None:
        self._shut, self._group = shut, group
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Job | None = None
        """The newest job, which may never have been finished."""
        self.is_closed = False
        """Whether ``close`` was called."""
        self.stuck = False
        """Whether the thread waits for an operation that does not end. The watchdog then waits for no other
        operation."""

    def is_shut(self) -> bool:
        """Whether the group's connections have been shut, so that nothing will arrive any more."""
        return self._shut.is_set() or self.is_closed

    def wait(self, works: Sequence[Any]) -> None:
        """Wait until all operations ``works`` (``torch.distributed.Work``) are done.

        Raises:
            PeerLost: an operation failed, or the connections have been shut. User code never causes this error.
        """
        if not works:
            return
        held = list(works)

        def wait_for_all(wait: Callable[[Any], None]) -> None:
            while held:  # what is dropped here is freed, even if the thread is stuck in another one
                wait(held.pop(0))

        self.finish(self.start(wait_for_all, held.clear))

    def start(self, work: Work, abandon: Callable[[], None]) -> Job:
        """Begin to run ``work`` on the thread.

        Args:
            work: gets a function that waits for one operation.
            abandon: drops all operations and their tensors; it is called when the thread is stuck in one of them.

        Raises:
            PeerLost: the thread is stuck.
        """
        if self.stuck:
            raise PeerLost("the data plane was shut")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="edt-watchdog", daemon=True)
            self._thread.start()
        job = self._last = Job(work, abandon)
        self._jobs.put(job)
        return job

    def finish(self, job: Job) -> None:
        """Wait until a job has run.

        Raises:
            PeerLost: as in ``wait``.
            torch.OutOfMemoryError: the job needed more memory of a GPU than there is.
        """
        while not job.done.acquire(timeout=_POLL_SECONDS):
            if self._shut.is_set():
                if job.done.acquire(timeout=_LAST_SECONDS):
                    break
                self.stuck = True
                job.abandon()  # frees the memory of all operations except the stuck one
                self._jobs.put(None)
                raise PeerLost("the data plane was shut")
        if isinstance(job.error, torch.OutOfMemoryError):
            raise job.error  # of this process's GPU: another group would end alike
        if isinstance(job.error, RuntimeError | PeerLost):
            raise PeerLost(f"the data plane broke off: {job.error}") from job.error
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Wait for the thread to end, unless it is ``stuck``."""
        self.is_closed = True
        self._jobs.put(None)
        if self._thread is not None and not self.stuck:
            self._thread.join(_END_SECONDS)
            self.stuck = self._thread.is_alive()
        if not self.stuck:
            self._group = None
        elif self._last is not None:
            self._last.abandon()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work(_wait)
            except (RuntimeError, PeerLost) as error:  # torch.OutOfMemoryError is a RuntimeError
                job.error = error.with_traceback(None)  # its frames would keep the operation
            except Exception as error:
                job.error = error
            job.done.release()
        self._group = None


def _wait(work: Any) -> None:
    if work is None:  # the operation was never started
        raise PeerLost("the data plane broke off")
    work.wait(OPERATION_TIMEOUT)


Work = Callable[[Callable[[Any], None]], None]


class Job:
    """Work for the thread of a watchdog, and the error that ended it, if any."""

    def __init__(self, work: Work, abandon: Callable[[], None]) -> None:
        self.work, self.abandon = work, abandon
        self.error: Exception | None = None
        self.done = threading.Lock()
        self.done.acquire()
