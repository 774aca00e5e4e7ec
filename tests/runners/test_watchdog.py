"""Who waits for gloo gets an answer, also where gloo has forgotten that somebody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import TCPStore

from edt_runner.comm.connections import Watchdog
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.errors import PeerLost

Pair = tuple[tuple[DataPlane, DataPlane], Group, Group]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two engines in one process: their planes and their groups."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    planes = (DataPlane("127.0.0.1", torch.float32), DataPlane("127.0.0.1", torch.float32))
    with ThreadPoolExecutor(2) as pool:
        builds = [
            pool.submit(plane.build, f"127.0.0.1:{store.port}", "test", rank, 2) for rank, plane in enumerate(planes)
        ]
        groups = [build.result() for build in builds]
    yield planes, groups[0], groups[1]
    for group in groups:
        group.close()
    for plane in planes:
        plane.close()


def test_what_is_sent_arrives(pair: Pair) -> None:
    _, first, second = pair
    with ThreadPoolExecutor(1) as pool:
        giving = pool.submit(first.send_reduced, torch.arange(5.0), [1])
        assert second.receive_reduced(5, 0).tolist() == [0, 1, 2, 3, 4]
        giving.result()


def test_a_peer_that_is_gone_is_noticed_at_once(pair: Pair) -> None:
    (plane, other), first, second = pair
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(second.receive_reduced, 5, 0)
        time.sleep(0.1)
        plane.shut(other.addresses)  # whichever of the two has called the other
        with pytest.raises(PeerLost):
            first.receive_reduced(5, 1)
        with pytest.raises(PeerLost):
            taking.result(30)


def test_whoever_waits_for_what_gloo_has_forgotten_is_let_out(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections are left open here, so nothing ends the operation."""
    (plane, _), first, _ = pair
    monkeypatch.setattr("edt_runner.comm.connections.shut", lambda **addresses: 0)
    threading.Timer(0.2, plane.shut, [[]]).start()
    began = time.monotonic()
    with pytest.raises(PeerLost, match="shut"):
        first.receive_reduced(5, 1)
    assert time.monotonic() - began < 30.0


def test_a_group_that_is_closed_has_no_thread_any_more(pair: Pair) -> None:
    """One that is not out of torch when the interpreter ends would be ended in the middle of C++."""
    _, first, second = pair
    others = waiting()  # one that was left behind ends when gloo tells it of its connection
    with ThreadPoolExecutor(1) as pool:
        giving = pool.submit(first.send_reduced, torch.arange(5.0), [1])
        second.receive_reduced(5, 0)
        giving.result()
    assert len(waiting() - others) == 2
    first.close()
    second.close()
    assert not waiting() - others


def waiting() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "edt-watchdog"}


def test_a_gpu_whose_memory_is_full_is_no_lost_peer() -> None:
    """Another group would end alike, and the user would never hear why."""
    watchdog = Watchdog(threading.Event(), None)

    def full(wait: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        watchdog.finish(watchdog.start(full, lambda: None))
    watchdog.close()
