"""A group that is of no more use is closed, however its use has ended: nothing of it is left."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import TCPStore

from edt_contract.reports import ExitKind
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.engine.engine import Engine
from edt_runner.engine.link import EngineLink, Membership
from edt_runner.errors import PeerLost
from edt_runner.protocol.data import CatchUp, RegroupPlan
from edt_runner.protocol.engine_messages import (
    ApplyRegroupPlan,
    CancelGeneration,
    JoinAgain,
    PrepareGeneration,
    ReceiveStateFromDriver,
    SendStateToDriver,
)
from support.one_engine import NAME, Coordinator, one_engine
from support.waiting import until

TIMES = 4
PEER = "2"


class Lab:
    """An engine, and a peer of it that comes to its groups."""

    def __init__(self, engine: Engine, link: EngineLink, coordinator: Coordinator, plane: DataPlane) -> None:
        self.engine, self.link, self.coordinator, self.plane = engine, link, coordinator, plane
        self.peer = DataPlane("127.0.0.1", torch.float32, "lo")
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store = f"127.0.0.1:{self._store.port}"
        self._pool = ThreadPoolExecutor(2)

    def meets(self, key: str, rank: int) -> Future[Group]:
        """The peer builds this group with the engine."""
        return self._pool.submit(self.peer.build, self.store, key, rank, 2)

    def leaves(self, key: str, rank: int) -> Future[None]:
        """The peer builds this group with the engine, and is gone."""
        return self._pool.submit(lambda: self.peer.build(self.store, key, rank, 2).close())

    def seated(self, key: str) -> Group:
        """The engine and its peer train in a group of this key; the peer's end of it."""
        coming = self.meets(key, 1)
        group = self.plane.build(self.store, key, 0, 2)
        self.engine._membership = Membership(3, (NAME, PEER), group, NAME)
        return coming.result()

    def takes(self, group: Group) -> Future[torch.Tensor]:
        """The peer takes five numbers from the engine."""
        return self._pool.submit(group.receive_reduced, 5, 0)

    def close(self) -> None:
        self._pool.shutdown()
        self.peer.close()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lab]:
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    with one_engine(monkeypatch, tmp_path, plane) as (engine, link, coordinator):
        lab = Lab(engine, link, coordinator, plane)
        yield lab
        lab.close()


def held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))


def assert_nothing_is_left(happen: Callable[[str], None]) -> None:
    """Of what happens again and again, each time under another key."""
    happen("the first time")
    before = held()
    for number in range(TIMES):
        happen(str(number))
    until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)), 20, f"as at first: {before}")


def test_the_first_engine_to_which_the_driver_could_not_give_the_weights(lab: Lab) -> None:
    def happen(key: str) -> None:
        gone = lab.leaves(key, 0)
        with pytest.raises(PeerLost):
            lab.engine._receive_from_driver(ReceiveStateFromDriver(key, 3, lab.store))
        gone.result()

    assert_nothing_is_left(happen)


def test_an_engine_that_gives_the_trained_weights_to_a_driver_that_dies(lab: Lab) -> None:
    def happen(key: str) -> None:
        lab.engine._membership = Membership(3, (NAME,), lab.plane.solo(), NAME)
        gone = lab.leaves(key, 1)
        lab.engine._send_to_driver(SendStateToDriver(key, lab.store))
        gone.result()

    assert_nothing_is_left(happen)


@pytest.mark.parametrize("catch_up", [CatchUp.STATE, CatchUp.REDUCED])
def test_a_survivor_that_could_not_catch_up(lab: Lab, catch_up: CatchUp) -> None:
    lab.engine._parts.adapter.size = lambda kind: 1000  # type: ignore[method-assign]
    lab.engine._membership = Membership(3, (NAME, PEER), lab.plane.solo(), NAME)

    numbers = itertools.count(1)
    plan = RegroupPlan(
        members=(NAME, PEER),
        offset=1,
        behind=(NAME,),
        sources=(PEER,),
        catch_up=catch_up,
        split=((0, 1), (2, 3)),
        recomputed=0,
    )

    def happen(_: str) -> None:
        number = next(numbers)
        gone = lab.leaves(f"regroup/{number}", 1)
        with pytest.raises(PeerLost):
            lab.engine._regroup(ApplyRegroupPlan(number, 4, plan, store=lab.store))
        gone.result()

    assert_nothing_is_left(happen)


def test_a_survivor_that_is_told_to_ask_anew(lab: Lab) -> None:
    def happen(key: str) -> None:
        other = lab.seated(key)
        taking = lab.takes(other)
        lab.engine.membership.group.send_reduced(torch.ones(5), [1])
        taking.result()
        lab.coordinator.send(JoinAgain(lab.link.regroup + 1))
        assert lab.engine._await_coordinator(ExitKind.LEFT) == lab.engine._join
        lab.link.acknowledge_regroup()
        other.close()

    assert_nothing_is_left(happen)


def test_a_generation_that_is_withdrawn_while_its_group_is_built(lab: Lab) -> None:
    numbers = iter(range(5, 100))

    def happen(_: str) -> None:
        number = next(numbers)
        lab.coordinator.send(PrepareGeneration(number, (NAME, PEER), (PEER,), lab.store))
        until(lambda: number in lab.link._prepared, 20)
        lab.coordinator.send(CancelGeneration(number))
        until(lambda: number not in lab.link._prepared, 20)
        lab.meets(f"generation/{number}", 1).result().close()
        until(lambda: not [thread for thread in threading.enumerate() if thread.name == "edt-build"], 20)

    assert_nothing_is_left(happen)


def test_what_gloo_has_forgotten_keeps_one_operation_and_that_for_no_longer_than_its_thread(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections are left open here, so nothing ends the operations until the peer does."""
    monkeypatch.setattr("edt_runner.comm.connections.shut", lambda **addresses: 0)
    other = lab.seated("forgotten")
    group: Any = lab.engine.membership.group
    arrays = [np.zeros(1000, dtype=np.float32) for _ in range(3)]
    kept = [weakref.ref(array) for array in reversed(arrays)]
    threading.Timer(0.5, lab.plane.shut, [[]]).start()
    with pytest.raises(PeerLost, match="shut"):
        group._watchdog.wait([group._group.recv([torch.from_numpy(arrays.pop())], 1, tag) for tag in range(3)])
    group.close()
    lab.engine._membership = None
    del group
    until(lambda: [array() is not None for array in kept] == [True, False, False], 20)
    other.close()
    until(lambda: [array() is not None for array in kept] == [False, False, False], 20)
