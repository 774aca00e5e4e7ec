"""A client of the event stream, as a browser is one: it remembers the last id and comes back with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

STREAM = "/api/v1/stream"


@dataclass(frozen=True)
class Received:
    """One event; ``id`` is what it itself carried."""

    event: str
    data: dict[str, Any]
    id: str | None


@dataclass
class Listening:
    """An open stream. ``last_id`` is what a browser would come back with."""

    _lines: Iterator[str]
    last_id: str | None = None
    comments: list[str] = field(default_factory=list)

    def next(self) -> Received:
        """The next event of any kind. Raises StopIteration at the stream's end, httpx.ReadTimeout in silence."""
        event, data, number = "message", "", None
        while True:
            line = next(self._lines)
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                self.comments.append(line)
            elif name == "event":
                event = value
            elif name == "data":
                data = value
            elif name == "id":
                number = value
            elif not line and data:
                self.last_id = number if number is not None else self.last_id
                return Received(event, json.loads(data), number)

    def is_alone(self) -> bool:
        """Read on to the next empty line: whether that was a comment without an event."""
        received: list[str] = []
        while line := next(self._lines):
            received.append(line)
        return bool(received) and all(line.startswith(":") for line in received)

    def until(self, *events: str) -> Received:
        """The next event of one of these kinds; others are passed over."""
        while (received := self.next()).event not in events:
            pass
        return received

    def rest(self) -> list[Received]:
        """Everything up to the stream's end."""
        received = []
        try:
            while True:
                received.append(self.next())
        except StopIteration:
            return received


@contextmanager
def listening(client: httpx.Client, last_id: str | None = None, silence: float = 30.0) -> Iterator[Listening]:
    """The stream, opened; silence for so many seconds is an error."""
    headers = {"Last-Event-ID": last_id} if last_id is not None else {}
    with client.stream("GET", STREAM, headers=headers, timeout=httpx.Timeout(20, read=silence)) as response:
        if response.status_code != 200:
            response.read()
            raise AssertionError(f"{response.status_code}: {response.text}")
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Listening(response.iter_lines(), last_id)
