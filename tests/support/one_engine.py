"""One engine with its real line and a real plane, in the test's own process, and a coordinator that the test plays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest
import torch

from edt_runner import context
from edt_runner.adapter import State
from edt_runner.comm.plane import DataPlane
from edt_runner.engine.engine import Engine
from edt_runner.engine.link import EngineLink
from edt_runner.engine.step_runner import EngineParts
from edt_runner.protocol.channel import Channel
from edt_runner.protocol.messages import Message
from edt_runner.schedule import Schedule
from support.waiting import until

NAME = "1"
"""Of the engine."""
NUMBERS = 1 << 20
"""In the state that it gives away."""


M = TypeVar("M", bound=Message)


class Coordinator:
    """The other end of an engine's line."""

    def __init__(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        self._channel = Channel(sock)
        self._received: list[Message] = []

    def send(self, message: Message) -> None:
        self._channel.send(message)

    def receive(self, wanted: type[M]) -> M:
        """The next message of this class; those before it are dropped."""

        def look() -> bool:
            self._received += self._channel.read()
            while self._received and not isinstance(self._received[0], wanted):
                self._received.pop(0)
            return bool(self._received)

        until(look, 20, wanted.kind)
        message = self._received.pop(0)
        assert isinstance(message, wanted)
        return message

    def close(self) -> None:
        self._channel.close()


@contextmanager
def one_engine(
    monkeypatch: pytest.MonkeyPatch, folder: Path, plane: DataPlane
) -> Iterator[tuple[Engine, EngineLink, Coordinator]]:
    """Its adapter has nothing to train; it can give a state of NUMBERS numbers, and take none."""
    monkeypatch.setattr(context, "page", context.StatusPage())
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        accepting = pool.submit(Coordinator, listener)
        link = EngineLink(address, folder / "note", "a token for tests", NAME, plane)
        coordinator = accepting.result()
    adapter = SimpleNamespace(
        width=2,
        values=dict,
        digest=lambda: "",
        export_state=lambda: State({}, {"weight": torch.ones(NUMBERS)}),
    )
    schedule = Schedule(train_samples=80, test_samples=0, batch_size=4, validation_freq=1, micro_batches=4, epochs=2)
    parts = SimpleNamespace(
        training=SimpleNamespace(schedule=schedule, seed=7, request=SimpleNamespace(exact=True)),
        facts={},
        adapter=adapter,
        plane=plane,
        link=link,
        loader=None,
        hooks=None,
        recorder=SimpleNamespace(keep=lambda kept: None),
        snapshots=SimpleNamespace(wait_copied=lambda: None),
        checksum_sender=SimpleNamespace(wait=lambda: None),
    )
    yield Engine(cast(EngineParts, parts)), link, coordinator
    vars(link)["_reconnect"] = threading.Event().wait  # its thread rests for ever, also after the test
    coordinator.close()
    until(lambda: link._channel.closed, 20)
    link._channel.close()
    plane.close()
