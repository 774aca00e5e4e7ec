"""Micro-batches follow the speed of engines: a straggler gets fewer, and only one that lasts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_runner.engine.balance import WINDOW_STEPS, Balance, fitted_counts, longest, shortest_counts
from edt_runner.splits import even_counts

MICROSECONDS = 10_000
"""Time of an engine of usual speed for a micro-batch."""

Slow = Callable[[int], Mapping[int, float]]
"""How many times as long as usual each slow rank needs in a step."""


def train(
    balance: Balance,
    micro_batches: int,
    ranks: int,
    steps: int,
    slow: Slow = lambda step: {},
    noise: Callable[[], float] = lambda: 1.0,
) -> list[tuple[int, tuple[int, ...]]]:
    """Train so many steps. Returns each change: the number of steps before it, and the new counts."""
    changes = []
    counts = balance.counts(micro_batches)
    for step in range(steps):
        factors = slow(step)
        busy = [int(count * MICROSECONDS * factors.get(rank, 1.0) * noise()) for rank, count in enumerate(counts)]
        changed = balance.add(counts, busy)
        before, counts = counts, balance.counts(micro_batches)
        assert changed == (counts != before)
        assert sum(counts) == micro_batches
        if changed:
            changes.append((step + 1, counts))
    assert len(counts) == ranks
    return changes


def test_without_measurements_the_counts_are_even() -> None:
    balance = Balance(3)
    assert balance.counts(8) == (3, 3, 2)
    assert balance.counts(2) == (1, 1, 0)
    assert (balance.stragglers(), balance.gain_percent()) == ((), 0)


@pytest.mark.parametrize(
    ("micro_batches", "ranks", "expected", "gain"),
    [
        (4, 2, (3, 1), 25),
        (8, 2, (5, 3), 25),  # as long as (6, 2), and nearer to even
        (8, 4, (3, 1, 2, 2), 25),
        (64, 4, (19, 9, 18, 18), 40),
    ],
)
@pytest.mark.parametrize("begins", range(0, WINDOW_STEPS, 3))
def test_an_engine_of_half_the_speed_gets_its_smaller_share_within_64_steps(
    micro_batches: int, ranks: int, expected: tuple[int, ...], gain: int, begins: int
) -> None:
    balance = Balance(ranks)
    [(step, counts)] = train(balance, micro_batches, ranks, 3000, lambda step: {1: 2.0} if step >= begins else {})
    assert step - begins <= 64
    assert counts == expected
    assert (balance.stragglers(), balance.gain_percent()) == ((1,), gain)


@pytest.mark.parametrize(("micro_batches", "ranks"), [(4, 2), (8, 4), (64, 4), (64, 2)])
def test_the_counts_are_even_again_when_the_straggler_has_recovered(micro_batches: int, ranks: int) -> None:
    balance, chance = Balance(ranks), random.Random(4)
    changes = train(
        balance,
        micro_batches,
        ranks,
        2000,
        lambda step: {0: 2.0} if step < 700 else {},
        lambda: chance.uniform(0.8, 1.2),
    )
    assert len(changes) == 2
    step, counts = changes[1]
    assert 700 < step <= 764
    assert counts == even_counts(micro_batches, ranks)
    assert (balance.stragglers(), balance.gain_percent()) == ((), 0)


NOISES: dict[str, Callable[[random.Random], float]] = {
    "between 0.8 and 1.2": lambda chance: chance.uniform(0.8, 1.2),
    "normal": lambda chance: max(0.05, chance.gauss(1, 0.2)),
    "with long tails": lambda chance: chance.lognormvariate(0, 0.2),
}


@pytest.mark.parametrize(
    ("micro_batches", "ranks", "noise"),
    [(64, 8, noise) for noise in NOISES] + [(4, 2, "normal"), (6, 4, "between 0.8 and 1.2")],
)
def test_noise_of_20_percent_never_moves_a_micro_batch(micro_batches: int, ranks: int, noise: str) -> None:
    chance = random.Random(17)
    assert train(Balance(ranks), micro_batches, ranks, 10_000, noise=lambda: NOISES[noise](chance)) == []


@pytest.mark.parametrize("factor", [1.15, 1.2])
def test_counts_do_not_swing_where_the_gain_is_near_the_least_that_counts(factor: float) -> None:
    chance = random.Random(1)
    changes = train(Balance(4), 64, 4, 20_000, lambda step: {1: factor}, lambda: NOISES["normal"](chance))
    assert len(changes) <= 4


def test_counts_do_not_follow_an_engine_that_is_slow_every_other_minute() -> None:
    changes = train(Balance(2), 8, 2, 20_000, lambda step: {1: 3.0} if step // 100 % 2 else {})
    assert len(changes) <= 6


@pytest.mark.parametrize("steps", [1, WINDOW_STEPS, 2 * WINDOW_STEPS])
def test_an_engine_that_was_slow_for_a_moment_keeps_its_share(steps: int) -> None:
    assert train(Balance(2), 4, 2, 1000, lambda step: {1: 9.0} if 100 <= step < 100 + steps else {}) == []


def test_an_engine_that_is_a_tenth_slower_keeps_its_share() -> None:
    assert train(Balance(2), 64, 2, 2000, lambda step: {1: 1.1}) == []


def test_nothing_moves_where_the_longest_engine_would_need_as_long() -> None:
    """Of two engines with a micro-batch each, one has half the speed: both would be as slow on the other."""
    assert train(Balance(2), 2, 2, 2000, lambda step: {1: 2.0}) == []


def test_an_engine_with_nothing_to_do_is_tried_again_and_less_and_less_often() -> None:
    balance = Balance(2)
    changes = train(balance, 4, 2, 4020, lambda step: {1: 8.0})
    first, *probes = changes
    assert first == (48, (4, 0))
    begun, ended = probes[::2], probes[1::2]
    assert {counts for _, counts in begun} == {(3, 1)}
    assert {counts for _, counts in ended} == {(4, 0)}
    assert [end - begin for (begin, _), (end, _) in zip(begun, ended, strict=True)] == [4] * len(begun)
    waits = [later - earlier for (earlier, _), (later, _) in itertools.pairwise([first, *begun])]
    assert waits[:4] == [7 * WINDOW_STEPS, 16 * WINDOW_STEPS, 32 * WINDOW_STEPS, 64 * WINDOW_STEPS]
    assert set(waits[4:]) == {64 * WINDOW_STEPS}
    assert balance.stragglers() == (1,)


def test_an_engine_with_nothing_to_do_gets_its_share_again_when_a_probe_shows_that_it_has_recovered() -> None:
    changes = train(Balance(2), 4, 2, 1000, lambda step: {1: 8.0} if step < 200 else {})
    assert changes[-1][1] == (2, 2)
    probe = next(step for step, counts in changes if step > 200 and counts == (3, 1))
    assert changes[-1][0] - probe <= 4 * WINDOW_STEPS


def test_an_idle_engine_takes_over_from_a_straggler_and_is_measured_then() -> None:
    """Three micro-batches, four engines: the fourth has none, so nobody knows how fast it is."""
    balance = Balance(4)
    changes = train(balance, 3, 4, 100, lambda step: {1: 3.0})
    assert changes == [(48, (1, 0, 1, 1))]
    balance = Balance(4)
    changes = train(balance, 3, 4, 150, lambda step: {1: 3.0, 3: 3.0})
    assert changes == [(48, (1, 0, 1, 1)), (96, (1, 1, 1, 0))]  # it is as slow: no reason to deviate


def test_two_stragglers_are_found_one_after_the_other() -> None:
    """Where even counts are better than those in use, they are taken first."""
    balance = Balance(4)
    changes = train(balance, 16, 4, 600, lambda step: {0: 2.0} if step < 200 else {0: 2.0, 2: 2.0})
    assert changes == [(48, (2, 5, 5, 4)), (256, (4, 4, 4, 4)), (352, (3, 5, 3, 5))]
    assert balance.stragglers() == (0, 2)


def test_a_change_of_the_membership_makes_the_counts_even() -> None:
    balance = Balance(2)
    train(balance, 4, 2, 100, lambda step: {1: 2.0})
    assert balance.counts(4) == (3, 1)
    balance.reset(3)
    assert balance.counts(4) == (2, 1, 1)
    assert (balance.stragglers(), balance.gain_percent()) == ((), 0)


def test_steps_of_another_width_are_fitted_too() -> None:
    balance = Balance(2)
    train(balance, 8, 2, 100, lambda step: {1: 3.0})
    assert balance.counts(8) == (6, 2)
    assert balance.counts(4) == (3, 1)
    assert balance.counts(1) == (1, 0)
    assert balance.counts(0) == (0, 0)


def test_numbers_that_are_not_one_for_each_rank_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 counts and 3 times for 3 ranks"):
        Balance(3).add((1, 1), (5, 5, 5))


@given(st.integers(1, 8), st.lists(st.integers(1, 9), min_size=1, max_size=4))
@settings(max_examples=150)
def test_no_counts_make_the_longest_engine_shorter_and_none_that_do_as_well_are_nearer_to_even(
    micro_batches: int, times: list[int]
) -> None:
    even = even_counts(micro_batches, len(times))

    def rank_of(counts: tuple[int, ...]) -> tuple[int, int]:
        return longest(counts, times), sum(abs(count - own) for count, own in zip(counts, even, strict=True))

    every = itertools.product(range(micro_batches + 1), repeat=len(times) - 1)
    best = min(rank_of((*some, micro_batches - sum(some))) for some in every if sum(some) <= micro_batches)
    assert rank_of(shortest_counts(micro_batches, times)) == best


@given(st.integers(1, 60), st.lists(st.integers(1, 10**7), min_size=1, max_size=30))
@settings(max_examples=150)
def test_fitted_counts_are_even_or_a_tenth_shorter(micro_batches: int, times: list[int]) -> None:
    even, fitted = even_counts(micro_batches, len(times)), fitted_counts(micro_batches, times)
    assert sum(fitted) == micro_batches
    assert fitted == even or 10 * longest(fitted, times) <= 9 * longest(even, times)
