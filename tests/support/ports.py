"""Ports that a test names before anybody listens on them, and keeps while nobody does."""

from __future__ import annotations

import os
import secrets
import socket

_BELOW_THE_KERNELS = range(20_000, 30_000)
"""Whoever connects, or asks for any port, is given one from 32768 on: none of these is taken meanwhile."""
_OUR_SHARE = os.environ.get("TEST_PORTS", "0/1")
"""``1/2``: the second half of them. Test processes that run side by side have a part each."""
_given: set[int] = set()


def share(text: str) -> range:
    """The ports of one of several test processes."""
    number, processes = map(int, text.split("/"))
    return _BELOW_THE_KERNELS[number::processes]


def free_port() -> int:
    """One on which nobody listens, and that nobody else here was given."""
    while True:
        port = secrets.choice(share(_OUR_SHARE))
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
