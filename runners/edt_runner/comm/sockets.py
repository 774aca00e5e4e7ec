"""This process's own TCP sockets, as /proc/self/fd shows them. Standard library only.

gloo gives no handle of its connections, and cannot wake a thread that waits on one. So this module finds connections by
their addresses and shuts them (measured: gloo's operation fails within 1 ms). It leaves listening sockets and user
code's sockets alone. It compares host and port: the port alone could be another host's, or another address's of this
one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any


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
