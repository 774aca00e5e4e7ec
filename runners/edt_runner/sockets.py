"""This process's own TCP sockets, as /proc/self/fd shows them. Room: runners; standard library only.

gloo hands out no handle of its connections and wakes nobody who waits on one, so they are found by their addresses and
shut from outside (measured: under 1 ms to the waiter's error). Sockets that listen, and user code's, are left alone: a
port alone would not tell them apart, since another host, or another address of this one, may have the same.
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
    """Inode to address of each TCP socket of this process that listens."""
    return {
        inode: _address(own.getsockname())
        for inode, own in _tcp()
        if own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }


def shut(*, own: Collection[str], peers: Collection[str]) -> int:
    """Shut every connection that came in at an address of ``own`` or goes out to one of ``peers``; how many.

    Addresses are ``host:port`` as ``listening`` gives them: hosts as numbers, IPv4 within IPv6 as IPv4.

    For reading only, which is what wakes: gloo forgets a send that was about to begin where writing fails, and its
    waiter then waits for ever.
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


class Door:
    """A port on ``host`` at which one may knock. The kernel answers, so no thread is needed."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0), backlog=128)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def clear(self) -> None:
        """Let those who have knocked go, before there are too many."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()

    def close(self) -> None:
        """Nobody answers any more."""
        self._listener.close()


def reaches(address: str, seconds: float = 1.0) -> bool:
    """Whether something answers at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


def _address(name: tuple[Any, ...]) -> str:
    """Of what ``getsockname`` or ``getpeername`` of a TCP socket say."""
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
