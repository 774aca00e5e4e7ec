"""The supervisor's line to the coordinator, its own child or on another node. Room: runners; sockets.

The line may break and be taken up again. What a coordinator must know of engines that are gone is held meanwhile.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Callable
from typing import Any

from edt_runner.channel import Channel, connect

_CONNECT_SECONDS = 1.0
_HELD = frozenset({"gone", "raised"})


class Line:
    """At most one channel. ``obey`` hears each message, ``broken`` that the line has ended."""

    def __init__(
        self, selector: selectors.BaseSelector, obey: Callable[[dict[str, Any]], None], broken: Callable[[], None]
    ) -> None:
        self._selector, self._obey, self._broken = selector, obey, broken
        self._channel: Channel | None = None
        self._held: list[dict[str, Any]] = []

    @property
    def up(self) -> bool:
        return self._channel is not None

    def attach(self, sock: socket.socket) -> None:
        """Speak over this socket from now on."""
        self.hang_up()
        self._channel = Channel(sock)
        self._selector.register(self._channel, selectors.EVENT_READ, self._hear)

    def call(self, address: str, token: str, node: str) -> bool:
        """Connect to a coordinator elsewhere; False: it does not answer now."""
        try:
            self.attach(connect(address, role="supervisor", token=token, name=node, seconds=_CONNECT_SECONDS))
        except OSError:
            return False
        return True

    def say(self, message: dict[str, Any]) -> None:
        """To the coordinator, now or when there is one again."""
        if self._channel is not None and not self._channel.closed:
            self._channel.send(message)
        elif message["kind"] in _HELD:
            self._held.append(message)

    def say_held(self) -> None:
        """After the engines that live have been named."""
        held, self._held = self._held, []
        for message in held:
            self.say(message)

    def catch_up(self) -> None:
        """Hear what has been said by now."""
        while self._channel is not None and select.select([self._channel], [], [], 0)[0]:
            self._hear()

    def hang_up(self) -> None:
        """End the line without a word."""
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None

    def descriptors(self) -> list[int]:
        return [self._channel.fileno()] if self._channel is not None else []

    def _hear(self) -> None:
        channel = self._channel
        if channel is None:
            return
        for message in channel.read():
            self._obey(message)
        if channel.closed and self._channel is channel:
            self.hang_up()
            self._broken()
