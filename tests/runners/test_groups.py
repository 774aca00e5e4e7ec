"""Reductions of a group: what is summed, in which order, and what outlives a group that is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch.distributed import TCPStore

from edt_runner.comm.buckets import Bucket
from edt_runner.comm.group import Group
from edt_runner.comm.plane import DataPlane
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import PeerLost
from edt_runner.splits import Span, children, even_split, plan_of

ONE: tuple[Bucket, ...] = ((0, 4),)


@pytest.fixture
def plane() -> Iterator[DataPlane]:
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    yield plane
    plane.close()


@contextmanager
def groups(size: int) -> Iterator[list[Group]]:
    """The connected groups of ``size`` engines, all in this process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    planes = [DataPlane("127.0.0.1", torch.float32, "lo") for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        address = f"127.0.0.1:{store.port}"
        found = list(pool.map(lambda rank: planes[rank].build(address, "test", rank, size), range(size)))
    yield found
    for group in found:
        group.close()
    for each in planes:
        each.close()


def constant(number: float) -> Callable[[int, Sink], None]:
    """Fills a micro-batch's local with one number."""

    def fill(index: int, sink: Sink) -> None:
        with sink.whole() as local:
            local.fill_(number)

    return fill


@pytest.mark.parametrize("exact", [True, False])
def test_a_closed_group_loses_its_peers_and_never_passes_a_part_for_the_whole(plane: DataPlane, exact: bool) -> None:
    group = plane.solo()
    reduction = group.begin(plan_of(1, (range(1),)), ONE, exact=exact)
    reduction.sum_own(constant(1.0))
    group.close()
    with pytest.raises(PeerLost):
        reduction.finish(lambda: [0])


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_summed_outlives_its_group(plane: DataPlane, exact: bool) -> None:
    """Exact: only what is missing is filled. Fast: all of it, since a sum has no parts."""
    plan, filled = plan_of(2, (range(2),)), []

    def fill(index: int, sink: Sink) -> None:
        filled.append(index)
        constant(index + 1.0)(index, sink)

    first = plane.solo().begin(plan_of(2, ((0,),)) if exact else plan, ONE, exact=exact)
    first.sum_own(fill)
    filled.clear()
    again = plane.solo().begin(plan, ONE, exact=exact, previous=first.sums)
    again.sum_own(fill)
    reduced, _ = again.finish(lambda: [0])
    assert filled == ([1] if exact else [0, 1])
    assert reduced[:4].tolist() == [3.0] * 4


@pytest.mark.parametrize("exact", [True, False])
def test_a_result_stays_whole_until_every_peer_has_applied_it(exact: bool) -> None:
    """A peer that was held up before it applied it may ask for it while the next step is summed."""
    plan = plan_of(2, (range(1), range(1, 2)))
    with groups(2) as (first, second), ThreadPoolExecutor(1) as pool:

        def summed(group: Group, number: float) -> torch.Tensor:
            reduction = group.begin(plan, ONE, exact=exact)
            reduction.sum_own(constant(number))
            return reduction.finish(lambda: [0])[0]

        other = pool.submit(summed, second, 1.0)
        result = summed(first, 1.0)
        other.result()
        reduction = first.begin(plan, ONE, exact=exact)  # the peer has not begun this step
        reduction.sum_own(constant(2.0))
        assert (result.tolist(), reduction.overwrites) == ([2.0] * 4, False)
        other = pool.submit(summed, second, 2.0)
        assert reduction.finish(lambda: [0])[0].tolist() == [4.0] * 4
        other.result()


LOCALS = [torch.randn(257, generator=torch.Generator().manual_seed(seed)) * 10.0**seed for seed in range(7)]
BUCKETS = ((200, 230), (3, 200), (0, 3), (230, 257))


def in_order(span: Span) -> torch.Tensor:
    """The sum of the locals of a subtree, added as the tree says."""
    if span[1] - span[0] == 1:
        return LOCALS[span[0]].clone()
    left, right = children(span)
    return in_order(left) + in_order(right)


def in_parts(index: int, sink: Sink) -> None:
    """Puts a local as a backward pass does: parts of it, last ones first."""
    cuts = [257, 240, 228, 130, 129, 64, 3, 0]
    for end, start in itertools.pairwise(cuts):
        sink.put(start, LOCALS[index][start:end] * 0.5, 2.0)


@pytest.mark.parametrize("engines", [1, 2, 3, 5])
def test_every_number_of_engines_sums_in_the_order_of_the_tree_bucket_by_bucket(engines: int) -> None:
    plan, micro_batches = plan_of(7, even_split(7, engines)), len(LOCALS)
    expected = in_order((0, micro_batches))
    with groups(engines) if engines > 1 else alone() as found, ThreadPoolExecutor(engines) as pool:

        def step(group: Group) -> tuple[torch.Tensor, list[list[int]]]:
            reduction = group.begin(plan, BUCKETS, exact=True, notes=2)
            reduction.sum_own(in_parts)
            reduced, table = reduction.finish(lambda: [group.rank, 7])
            return reduced.clone(), table

        for _ in range(3):
            for reduced, table in pool.map(step, found):
                assert torch.equal(reduced, expected)
                assert table == [[rank, 7] for rank in range(engines)]


def test_a_fast_reduction_sums_all_and_tells_all_notes() -> None:
    plan = plan_of(7, even_split(7, 2))
    with groups(2) as found, ThreadPoolExecutor(2) as pool:

        def step(group: Group) -> tuple[torch.Tensor, list[list[int]]]:
            reduction = group.begin(plan, BUCKETS, exact=False, notes=2)
            reduction.sum_own(in_parts)
            reduced, table = reduction.finish(lambda: [group.rank, 1 << 23])
            return reduced.clone(), table

        for reduced, table in pool.map(step, found):
            torch.testing.assert_close(reduced, in_order((0, 7)))
            assert table == [[0, 1 << 23], [1, 1 << 23]]


def test_an_engine_without_micro_batches_takes_part() -> None:
    plan = plan_of(7, (range(7), range(0)))
    with groups(2) as found, ThreadPoolExecutor(2) as pool:

        def step(group: Group) -> torch.Tensor:
            reduction = group.begin(plan, BUCKETS, exact=True)
            reduction.sum_own(in_parts)
            return reduction.finish(lambda: [0])[0].clone()

        for _ in range(3):
            for reduced in pool.map(step, found):
                assert torch.equal(reduced, in_order((0, 7)))


@contextmanager
def alone() -> Iterator[list[Group]]:
    plane = DataPlane("127.0.0.1", torch.float32, "lo")
    yield [plane.solo()]
    plane.close()


def test_the_smallest_numbers_are_rounded_alike_in_every_split() -> None:
    """A quarter of them is no float; a product that is fused with its addition would not be rounded."""
    smallest = 2.0**-149

    def sum_of(parts: tuple[tuple[int, ...], ...]) -> list[float]:
        with groups(2) as found, ThreadPoolExecutor(2) as pool:

            def step(group: Group) -> torch.Tensor:
                reduction = group.begin(plan_of(2, parts), ONE, exact=True)
                reduction.sum_own(lambda index, sink: sink.put(0, torch.full((4,), (4 - 2 * index) * smallest), 0.25))
                return reduction.finish(lambda: [0])[0].clone()

            return [float(each[0]) for each in pool.map(step, found)]

    assert sum_of(((0,), (1,))) == sum_of(((0, 1), ()))
