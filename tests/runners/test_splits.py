"""Splits of a step: what each rank computes, how many sums are sent, and in which order they are added."""

from __future__ import annotations

import itertools
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_runner.splits import (
    Span,
    children,
    contiguous_split,
    cover,
    even_counts,
    even_split,
    plan_of,
    split_by,
)

Counts = tuple[int, ...]
counts_of_ranks = st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any).map(tuple)


def nodes_of(split: tuple[tuple[int, ...], ...]) -> int:
    """The number of nodes that the ranks of a split sum together."""
    return sum(map(len, plan_of(sum(map(len, split)), split).spans))


@cache
def fewest(span: Span, ranks: int) -> dict[Counts, int]:
    """For every possible count of each rank in a node, the fewest nodes into which it can be divided. Every way to
    divide it is tried."""
    whole = {tuple((span[1] - span[0]) * (rank == each) for each in range(ranks)): 1 for rank in range(ranks)}
    if span[1] - span[0] > 1:
        left, right = (fewest(child, ranks) for child in children(span))
        for (counts, nodes), (others, more) in itertools.product(left.items(), right.items()):
            both = tuple(map(sum, zip(counts, others, strict=True)))
            whole[both] = min(whole.get(both, nodes + more), nodes + more)
    return whole


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_fewest_nodes_are_those_of_the_best_of_all_assignments(ranks: int) -> None:
    for number in range(1, 7):
        best: dict[Counts, int] = {}
        for owners in itertools.product(range(ranks), repeat=number):
            parts = tuple(tuple(i for i in range(number) if owners[i] == rank) for rank in range(ranks))
            counts = tuple(map(len, parts))
            best[counts] = min(best.get(counts, number), sum(len(cover((0, number), part)) for part in parts))
        assert best == fewest((0, number), ranks)


def test_no_split_with_the_same_counts_has_fewer_nodes() -> None:
    tried = 0
    for number in range(1, 11):
        for ranks in range(1, 5):
            for counts, nodes in fewest((0, number), ranks).items():
                assert nodes_of(split_by(number, counts)) == nodes, f"{number} over {counts}"
                tried += 1
    assert tried == 10 + 65 + 285 + 1000  # all counts of at most ten micro-batches


@given(counts_of_ranks)
@settings(max_examples=200)
def test_every_micro_batch_is_computed_once_and_each_rank_has_its_count(counts: Counts) -> None:
    split = split_by(sum(counts), counts)
    assert tuple(map(len, split)) == counts
    assert sorted(itertools.chain(*split)) == list(range(sum(counts)))
    assert all(list(part) == sorted(part) for part in split)


@pytest.mark.parametrize(
    ("number", "engines", "expected"),
    [
        (8, 4, ((0, 1), (2, 3), (4, 5), (6, 7))),
        (6, 4, ((0, 1), (2, 3), (4,), (5,))),
        (7, 2, ((0, 1, 2, 3), (4, 5, 6))),  # the right edge of the tree is one node
        (5, 2, ((0, 1, 4), (2, 3))),  # contiguous parts would have four nodes
        (9, 4, ((0, 1, 8), (2, 3), (4, 5), (6, 7))),  # contiguous parts would have eight
        (2, 3, ((0,), (1,), ())),
    ],
)
def test_an_even_split_is_contiguous_unless_that_costs_a_node(
    number: int, engines: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert even_split(number, engines) == expected


@given(st.integers(1, 300), st.integers(1, 40))
@settings(max_examples=200)
def test_an_even_split_differs_by_at_most_one_and_the_longer_parts_come_first(number: int, engines: int) -> None:
    lengths = list(map(len, even_split(number, engines)))
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) == -(-number // engines)
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(0, 6), st.integers(1, 40))
def test_parts_of_a_power_of_two_are_contiguous_in_rank_order(digit: int, engines: int) -> None:
    counts = even_counts(engines << digit, engines)
    assert even_split(engines << digit, engines) == tuple(map(tuple, contiguous_split(counts)))


@given(counts_of_ranks)
@settings(max_examples=200)
def test_the_sum_has_the_same_order_in_every_split(counts: Counts) -> None:
    """A sum is written with its brackets; they depend on the number of micro-batches alone."""

    def whole(span: Span) -> str:
        if span[1] - span[0] == 1:
            return f"x{span[0]}"
        left, right = children(span)
        return f"({whole(left)}+{whole(right)})"

    plan = plan_of(sum(counts), split_by(sum(counts), counts))
    parts = {span: whole(span) for spans in plan.spans for span in spans}

    def upper(span: Span) -> str:
        if span in parts:
            return parts[span]
        left, right = children(span)
        return f"({upper(left)}+{upper(right)})"

    assert upper(plan.root) == whole(plan.root)


@given(st.integers(1, 70), st.data())
@settings(max_examples=200)
def test_a_cover_has_exactly_the_given_micro_batches_and_no_node_beside_its_sibling(
    number: int, data: st.DataObject
) -> None:
    held = data.draw(st.sets(st.integers(0, number - 1)))
    nodes = cover((0, number), sorted(held))
    assert [index for node in nodes for index in range(*node)] == sorted(held)

    def inner(span: Span) -> list[Span]:
        if span[1] - span[0] == 1:
            return []
        return [span, *(each for child in children(span) for each in inner(child))]

    assert not any(set(children(span)) <= set(nodes) for span in inner((0, number)))


def test_a_cover_ignores_what_is_outside_of_its_node() -> None:
    assert cover((4, 8), (0, 1, 4, 5, 7, 8, 9)) == ((4, 6), (7, 8))


@pytest.mark.parametrize(("number", "counts"), [(5, (3, 3)), (5, (3,)), (1, (2, -1))])
def test_counts_that_are_not_those_of_the_step_are_refused(number: int, counts: Counts) -> None:
    with pytest.raises(ValueError, match=f"expected numbers from 0 on that add up to {number}"):
        split_by(number, counts)


@pytest.mark.parametrize("number", [4096, 4095, 5000])
def test_a_thousand_engines_get_their_parts_and_plan_in_a_moment(number: int) -> None:
    """The best of three, because a busy machine interrupts."""
    seconds = []
    for _ in range(3):
        for cached in (split_by, even_split, plan_of):
            cached.cache_clear()
        began = time.perf_counter()
        split = even_split(number, 1024)
        divided = time.perf_counter()
        plan = plan_of(number, split)
        assert len(plan.owners) == sum(map(len, plan.spans))
        seconds.append((divided - began, time.perf_counter() - divided))
    assert min(first for first, _ in seconds) < 0.05
    assert min(second for _, second in seconds) < 0.05
