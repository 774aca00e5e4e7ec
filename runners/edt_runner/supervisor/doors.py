"""How the world reaches a supervisor: its unix socket, and signals. Room: runners."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path


def listen(path: str) -> socket.socket:
    """A unix socket at ``path`` that only this user can connect to."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(8)
    return listener


def signal_pipe(on_leave: Callable[[], None]) -> tuple[socket.socket, socket.socket]:
    """A pair whose first end becomes readable at any signal. SIGTERM and SIGINT call ``on_leave``."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: on_leave())
    return reader, writer
