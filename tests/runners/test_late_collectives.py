"""Reductions by collectives that complete late, have no tags, and leave undefined what a lost rank has not sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch

from edt_runner.comm.buckets import Bucket
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.tree_reduction import PartialSums, Sink
from edt_runner.errors import PeerLost
from edt_runner.splits import plan_of
from support.groups import connected
from support.late_collectives import Hub, LateCollectives, LateStream
from support.waiting import until

LENGTH = 1003
BUCKETS: tuple[Bucket, ...] = ((600, 1000), (100, 600), (0, 100), (1000, 1003))
Ranges = tuple[range, ...]
SPLITS: dict[str, Ranges] = {
    "even": (range(2), range(2, 4), range(4, 6), range(6, 8)),
    "uneven": (range(1), range(1, 6), range(6, 7), range(7, 8)),
    "one computes nothing": (range(3), range(3, 3), range(3, 5), range(5, 8)),
    "one computes all": (range(0), range(8), range(0), range(0)),
}


def local(index: int) -> torch.Tensor:
    """The numbers of a micro-batch. Sums of them depend on their order."""
    return torch.rand(LENGTH, generator=torch.Generator().manual_seed(index)) * 10.0**index


def fill(index: int, sink: Sink) -> None:
    values = local(index)
    for start, end in BUCKETS:
        sink.put(start, values[start:end])


@contextmanager
def late_groups(number: int) -> Iterator[tuple[Hub, list[DataPlane], list[Group]]]:
    """Engines that reduce over late collectives."""
    hub = Hub(number)
    with connected(number) as (planes, found):
        for rank, group in enumerate(found):
            group.connect_collectives(partial(LateCollectives, hub, rank))
            assert group.await_collectives(10.0)
            group.change_over()
            assert group.reduces_over == "late"
        yield hub, planes, found


def alone(*, exact: bool = True) -> torch.Tensor:
    """The sum that one engine makes of all micro-batches."""
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    reduction = plane.solo().begin(plan_of(8, (range(8),)), BUCKETS, exact=exact)
    reduction.sum_own(fill)
    found = torch.clone(reduction.finish(lambda: [0])[0])
    plane.close()
    return found


def reduced(
    group: Group, split: Ranges, *, exact: bool = True, before: Callable[[], None] = lambda: None
) -> torch.Tensor:
    reduction = group.begin(plan_of(8, split), BUCKETS, exact=exact)
    before()
    reduction.sum_own(fill)
    found, notes = reduction.finish(lambda: [group.rank])
    assert notes == [[rank] for rank in range(group.size)]
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_the_bits_are_those_of_one_engine_and_all_launch_in_one_order(split: Ranges) -> None:
    with late_groups(4) as (hub, _, found), ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for each in pool.map(lambda group: reduced(group, split), found):
                assert torch.equal(each, alone())
        assert all(order == hub.orders[0] for order in hub.orders)


def test_a_fast_reduction_sums_all() -> None:
    split = SPLITS["uneven"]
    with late_groups(4) as (_, _, found), ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(lambda group: reduced(group, split, exact=False), found)
        assert torch.allclose(first, alone(exact=False))
        assert all(torch.equal(first, other) for other in others)


def test_a_result_stays_whole_until_every_rank_has_applied_it() -> None:
    """An engine may have to send it to one that has not received all of it."""
    split = SPLITS["even"]
    waits, go = threading.Barrier(5), threading.Event()
    with late_groups(4) as (_, _, found), ThreadPoolExecutor(4) as pool:
        last = list(pool.map(lambda group: reduced(group, split), found))

        def early() -> None:
            waits.wait(10)

        def late() -> None:
            waits.wait(10)
            go.wait(10)

        works = [pool.submit(reduced, each, split, before=late if each.rank == 3 else early) for each in found]
        waits.wait(10)  # ranks 0, 1 and 2 send their sums of the next step; rank 3 has not begun to compute
        threading.Event().wait(0.3)
        assert all(torch.equal(each, alone()) for each in last)
        go.set()
        assert all(torch.equal(work.result(), alone()) for work in works)


def test_an_aborted_reduction_gives_nothing_and_its_sums_make_the_next_one() -> None:
    """Rank 3 never sends its sums. The others' outputs are undefined. Their own sums are as they were, and so is the
    result of the step before, which rank 3 may lack."""
    split, kept = SPLITS["even"], [0, 1, 2]
    with late_groups(4) as (hub, planes, found), ThreadPoolExecutor(4) as pool:
        last = list(pool.map(lambda group: reduced(group, split), found))
        begun = [len(order) for order in hub.orders]
        sums: dict[int, PartialSums] = {}

        def step(rank: int) -> None:
            reduction = found[rank].begin(plan_of(8, split), BUCKETS, exact=True)
            sums[rank] = reduction.sums
            reduction.sum_own(fill)
            reduction.finish(lambda: [0])

        works = [pool.submit(step, rank) for rank in kept]
        until(lambda: all(len(hub.orders[rank]) > begun[rank] for rank in kept), 10.0, "they wait for rank 3")
        for rank in kept:
            planes[rank].shut([])
        for work in works:
            with pytest.raises(PeerLost):
                work.result()
        for rank in kept:
            start, end = split[rank].start, split[rank].stop
            assert torch.equal(sums[rank].held[start, end], local(start) + local(start + 1))
            assert torch.equal(last[rank], alone())


def test_what_an_aborted_rank_passes_on_is_not_applied() -> None:
    """Rank 2 is lost behind the last sums. Rank 0 hears of it first and aborts its gather, which ends that of rank 1,
    without an error and with undefined numbers."""
    split = (range(2), range(2, 4), range(4, 8))
    with late_groups(3) as (hub, planes, found), ThreadPoolExecutor(3) as pool:
        operations = len(hub.orders[0])
        list(pool.map(lambda group: reduced(group, split), found))
        operations = len(hub.orders[0]) - operations
        last = 2 * operations - 1
        exchange = hub.exchange

        def dying(rank: int, number: int, *others: Any) -> Any:
            if (rank, number) == (2, last):
                hub.dead = 2
            return exchange(rank, number, *others)

        hub.exchange = dying  # type: ignore[method-assign]
        works = [pool.submit(reduced, group, split) for group in found]
        until(lambda: all(len(hub.orders[rank]) == 2 * operations for rank in (0, 1)), 10.0, "all wait for rank 2")
        planes[0]._endpoint.shut.set()
        found[0]._collectives.abort()  # type: ignore[union-attr]
        with pytest.raises(PeerLost):
            works[0].result()
        with pytest.raises(TimeoutError):
            works[1].result(timeout=0.5)  # its device is done
        for rank in (1, 2):
            planes[rank].shut([])
            with pytest.raises(PeerLost):
                works[rank].result()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "fast"])
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_sums_that_come_late_to_host_memory_are_reduced_there(split: Ranges, exact: bool) -> None:
    """As those of a GPU are while NCCL is not connected. Here this device's memory is the host's."""
    with connected(4, torch.device("cpu", 0)) as (_, found), ThreadPoolExecutor(4) as pool:
        for group in found:
            group._stream = LateStream()
        for _ in range(3):
            for each in pool.map(lambda group: reduced(group, split, exact=exact), found):
                assert torch.equal(each, alone()) if exact else torch.allclose(each, alone())
