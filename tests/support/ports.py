"""Ports that a test names before anybody listens on them, and keeps while nobody does."""

from __future__ import annotations

import secrets
import socket

_BELOW_THE_KERNELS = range(20_000, 30_000)
"""Whoever connects, or asks for any port, is given one from 32768 on: none of these is taken meanwhile."""
_given: set[int] = set()


def free_port() -> int:
    """One on which nobody listens, and that nobody else here was given."""
    while True:
        port = secrets.choice(_BELOW_THE_KERNELS)
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
