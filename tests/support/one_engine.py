"""One engine with its real line and a real plane, in the test's own process, and a coordinator that the test plays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from edt_runner.channel import Channel
from edt_runner.dataplane import GlooPlane
from edt_runner.engine import position
from edt_runner.engine.adapter import State
from edt_runner.engine.link import Link
from edt_runner.engine.loop import Engine
from edt_runner.engine.schedule import Schedule
from edt_runner.engine.seat import Hands, Settings
from support.waiting import until

NAME = "1"
"""Of the engine."""
NUMBERS = 1 << 20
"""In the state that it gives away."""


class Coordinator:
    """The other end of an engine's line."""

    def __init__(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        self._channel = Channel(sock)
        self._heard: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        self._channel.send({"kind": kind, **fields})

    def hears(self, kind: str) -> dict[str, Any]:
        """The next message of this kind."""

        def look() -> bool:
            self._heard += self._channel.read()
            while self._heard and self._heard[0]["kind"] != kind:
                self._heard.pop(0)
            return bool(self._heard)

        until(look, 20, kind)
        return self._heard.pop(0)

    def close(self) -> None:
        self._channel.close()


@contextmanager
def one_engine(
    monkeypatch: pytest.MonkeyPatch, folder: Path, plane: GlooPlane
) -> Iterator[tuple[Engine, Link, Coordinator]]:
    """Its adapter has nothing to train; it can give a state of NUMBERS numbers, and take none."""
    monkeypatch.setattr(position, "board", position.Board())
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        accepting = pool.submit(Coordinator, listener)
        link = Link(address, folder / "note", "a token for tests", NAME, plane)
        coordinator = accepting.result()
    adapter = SimpleNamespace(
        width=2,
        digest=lambda: "",
        export_state=lambda: State({}, {"weight": torch.ones(NUMBERS)}),
        save_for_user=lambda *given: None,
    )
    hands = SimpleNamespace(
        adapter=adapter,
        plane=plane,
        link=link,
        loader=None,
        hooks=None,
        recorder=SimpleNamespace(drop=lambda: None),
        snapshots=SimpleNamespace(copied=lambda: None),
        comparing=SimpleNamespace(wait=lambda: None),
    )
    schedule = Schedule(train_samples=80, test_samples=0, batch_size=4, validation_freq=1, logical_workers=4, epochs=2)
    settings = cast(Settings, SimpleNamespace(schedule=schedule, seed=7, exact=True, model_dir=folder))
    yield Engine(settings, cast(Hands, hands)), link, coordinator
    monkeypatch.setattr(link, "_reconnect", threading.Event().wait)  # its thread rests for ever
    coordinator.close()
    until(lambda: link._channel.closed, 20)
    link._channel.close()
    plane.close()
