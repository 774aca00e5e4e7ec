"""What wakes a main thread out of one data plane never breaks the next one: in an engine, and in the driver."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.distributed import TCPStore

from edt_contract.reports import ExitKind
from edt_runner import driver
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.driver import Driver
from edt_runner.engine.engine import Engine
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.protocol.engine_messages import (
    ExitEngine,
    JoinAgain,
    JoinCancelled,
    JoinRequest,
    StartRegroup,
    SurvivorStatus,
)
from edt_runner.protocol.messages import Message
from support.one_engine import Coordinator, one_engine

HELD_SECONDS = 0.5
"""A held shut goes on by itself after this."""
STEP_SECONDS = 0.3
"""Longer than a group that was born shut lets an operation wait."""


class HeldPlane(DataPlane):
    """A plane of which one shut can be held in its middle until the plane is renewed, or cannot be renewed by then."""

    def __init__(self) -> None:
        self.hold, self.held, self._renewed = threading.Event(), threading.Event(), threading.Event()
        super().__init__("127.0.0.1", torch.float32, "lo")

    def shut(self, peers: Collection[Any]) -> None:
        if self.hold.is_set():
            self.hold.clear()
            self._renewed.clear()
            self.held.set()
            self._renewed.wait(HELD_SECONDS)
        super().shut(peers)

    def renew(self) -> None:
        super().renew()
        self._renewed.set()


Parts = tuple[Engine, EngineLink, HeldPlane, Coordinator]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Parts]:
    plane = HeldPlane()
    with one_engine(monkeypatch, tmp_path, plane) as (engine, link, coordinator):
        yield engine, link, plane, coordinator


def assert_open(plane: DataPlane) -> None:
    """A group that is built on it now waits for a peer as long as a step takes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = DataPlane("127.0.0.1", torch.float32, "lo")
    with ThreadPoolExecutor(2) as pool:
        builds = [
            pool.submit(each.build, f"127.0.0.1:{store.port}", "test", rank, 2)
            for rank, each in enumerate((plane, other))
        ]
        first, second = (build.result() for build in builds)
        taking = pool.submit(first.receive_reduced, 5, 1)
        time.sleep(STEP_SECONDS)
        second.send_reduced(torch.arange(5.0), [0])
        assert taking.result().tolist() == [0, 1, 2, 3, 4]
    for group in (first, second):
        group.close()
    other.close()


def test_a_survivor_answers_a_round_while_its_plane_is_being_shut(parts: Parts) -> None:
    engine, link, plane, coordinator = parts
    engine._membership = Membership(3, ("1", "2"), plane.solo(), "1")
    coordinator.send(StartRegroup(1))
    assert link.wait(20) is not None
    plane.hold.set()
    assert plane.held.wait(20)  # the control thread shuts it again, and stands in the middle of that
    engine._send_survivor_status(1)
    assert coordinator.receive(SurvivorStatus).regroup == 1
    assert_open(plane)


def test_a_joining_engine_asks_anew_while_its_plane_is_being_shut_for_a_round(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first request was turned down; before it has asked again its line has heard of a round."""
    engine, link, plane, coordinator = parts

    def wait(seconds: float | None = None) -> Message | None:
        message = EngineLink.wait(link, seconds)
        if isinstance(message, JoinCancelled):
            assert plane.held.wait(20)
        return message

    monkeypatch.setattr(link, "wait", wait)
    with running(engine, coordinator):
        coordinator.receive(JoinRequest)
        plane.hold.set()
        coordinator.send(JoinCancelled())
        coordinator.send(JoinAgain(1))
        assert coordinator.receive(JoinRequest).regroup == 1
        addresses = plane.addresses
        time.sleep(2 * HELD_SECONDS)
        assert addresses == plane.addresses
        assert_open(plane)


def test_a_driver_goes_on_to_the_next_transfer_while_the_one_before_is_being_shut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both go by way of the same store, to which the second one's connection is still needed."""
    monkeypatch.setattr(driver, "DataPlane", lambda *given: HeldPlane())
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = f"127.0.0.1:{store.port}"
    engines = [DataPlane("127.0.0.1", torch.float32, "lo") for _ in range(2)]

    def come(number: int, seconds: float = 0.0) -> Group:
        time.sleep(seconds)
        return engines[number - 1].build(address, f"start/{number}", 1, 2)

    with a_driver(tmp_path) as own, ThreadPoolExecutor(2) as pool:
        own._newest_transfer = 1
        coming = pool.submit(come, 1)
        with own._group(1, address, "start/1", rank=0):
            coming.result().close()
            under_way = own._transfer
            assert under_way is not None
            plane = cast(HeldPlane, under_way[1])
            plane.hold.set()
            own._newest_transfer = 2
            breaking_off = pool.submit(own._break_off, 2)
            assert plane.held.wait(20)
        coming = pool.submit(come, 2, 2 * HELD_SECONDS)
        with own._group(2, address, "start/2", rank=0) as group:
            giving = pool.submit(coming.result().send_reduced, torch.arange(5.0), [0])
            assert group.receive_reduced(5, 1).tolist() == [0, 1, 2, 3, 4]
            giving.result()
        breaking_off.result()
        coming.result().close()
    for engine in engines:
        engine.close()


@contextmanager
def a_driver(folder: Path) -> Iterator[Driver]:
    """A driver that is connected to a coordinator."""
    training = SimpleNamespace(
        adapter=lambda on_device: SimpleNamespace(dtype=torch.float32),
        with_callbacks=lambda adapter, runs: (adapter, None),
        request=SimpleNamespace(driver_logger=SimpleNamespace()),
    )
    spec = SimpleNamespace(host="127.0.0.1", spool_dir=str(folder), result_dir=str(folder), token="a token for tests")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(1) as pool,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr("edt_runner.driver.DriverLog", lambda *parts: SimpleNamespace(note=print))
        accepting = pool.submit(Coordinator, listener)
        own = Driver(cast(Any, training), cast(Any, spec), f"127.0.0.1:{listener.getsockname()[1]}")
        coordinator = accepting.result()
    try:
        yield own
    finally:
        own._channel.close()
        coordinator.close()


@contextmanager
def running(engine: Engine, coordinator: Coordinator) -> Iterator[None]:
    """The engine's life, until the block ends."""
    ended: list[ExitKind] = []
    thread = threading.Thread(target=lambda: ended.append(engine.run()))
    thread.start()
    try:
        yield
    finally:
        coordinator.send(ExitEngine())
        thread.join(20)
    assert ended == [ExitKind.FINISHED]
