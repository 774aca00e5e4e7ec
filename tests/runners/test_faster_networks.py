"""Reductions begin over the ordinary network, and change over when all engines are connected over a faster one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch.distributed import TCPStore

from edt_runner.comm import plane
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.tree_reduction import Sink
from edt_runner.engine import notes
from edt_runner.errors import PeerLost
from edt_runner.splits import plan_of
from support.waiting import until

PLAN = plan_of(2, (range(1), range(1, 2)))


@contextmanager
def groups(*, faster: str | None = "lo") -> Iterator[tuple[list[DataPlane], list[Group]]]:
    """Two engines' planes and groups, in one process. The faster network is the same interface."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    planes = [DataPlane("127.0.0.1", torch.float32, "lo", faster) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        address = f"127.0.0.1:{store.port}"
        found = list(pool.map(lambda rank: planes[rank].build(address, "test", rank, 2), range(2)))
    yield planes, found
    for each in (*found, *planes):
        each.close()


def step(group: Group) -> float:
    """One step as an engine does it; returns the sum over both engines."""

    def fill(index: int, sink: Sink) -> None:
        with sink.whole() as local:
            local.fill_(index + 1.0)

    reduction = group.begin(PLAN, ((0, 4),), exact=True, notes=notes.WIDTH)
    reduction.sum_own(fill)
    reduced, table = reduction.finish(lambda: notes.notes(1, [0.0] * 8, faster=group.has_faster))
    if notes.unanimous(table, notes.Column.FASTER):
        group.change_over()
    return float(reduced[0])


def steps(found: list[Group], number: int = 3) -> list[float]:
    with ThreadPoolExecutor(2) as pool:
        return [result for _ in range(number) for result in pool.map(step, found)]


def changed(group: Group) -> bool:
    return group._transport is group._faster


def test_reductions_change_over_when_all_are_connected() -> None:
    with groups() as (_, found):
        until(lambda: all(group.has_faster for group in found), 20, "connections over the faster network")
        assert steps(found) == [3.0] * 6
        assert all(changed(group) for group in found)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Holds up every connection over the faster network until it is called."""
    come, connected = threading.Event(), plane._connected

    def held(device: object, store: str, key: str, rank: int, size: int) -> object:
        if key.endswith("/faster"):
            come.wait(20)
        return connected(device, store, key, rank, size)

    monkeypatch.setattr(plane, "_connected", held)
    return come.set


def test_no_step_waits_for_a_network_that_comes_late(late: Callable[[], None]) -> None:
    with groups() as (_, found):
        assert steps(found) == [3.0] * 6
        assert not any(changed(group) for group in found)
        late()
        until(lambda: all(group.has_faster for group in found), 20)
        assert steps(found) == [3.0] * 6
        assert all(changed(group) for group in found)


def test_a_network_that_does_not_come_leaves_all_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    connected = plane._connected

    def broken(device: object, store: str, key: str, rank: int, size: int) -> object:
        if key.endswith("/faster"):
            raise RuntimeError("no route")
        return connected(device, store, key, rank, size)

    monkeypatch.setattr(plane, "_connected", broken)
    with groups() as (_, found):
        assert steps(found) == [3.0] * 6
        assert not any(changed(group) for group in found)
    assert "reductions stay on the ordinary network: no route" in capfd.readouterr().out


def test_whoever_waits_over_the_faster_network_is_woken_too() -> None:
    with groups() as (planes, found), ThreadPoolExecutor(1) as pool:
        until(lambda: all(group.has_faster for group in found), 20)
        steps(found)
        waiting = pool.submit(step, found[0])  # the other one does not come
        until(lambda: found[0]._watchdog._thread is not None, 20)
        planes[0].shut(planes[1].addresses)
        with pytest.raises(PeerLost):
            waiting.result(20)
