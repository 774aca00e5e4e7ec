"""What the benchmarks compute from what they measure, with known answers."""

from __future__ import annotations

import importlib
import math
import os
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def path_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def module(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize(("count", "place"), [(5, 5), (8, 7), (9, 8), (11, 9), (15, 12), (21, 15)])
def test_the_bound_of_a_median_is_the_value_at_the_place_that_tables_name(count: int, place: int) -> None:
    values = [float(number) for number in range(1, count + 1)]
    random.Random(count).shuffle(values)
    assert module("_bound").of_median(values) == place


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_values_have_no_bound(count: int) -> None:
    with pytest.raises(ValueError, match=f"^{count} values are too few"):
        module("_bound").of_median([1.0] * count)


def test_the_bound_of_a_median_holds_about_as_often_as_it_says() -> None:
    chance, of_median = random.Random(1), module("_bound").of_median
    median = math.log(2)  # of the exponential distribution, which leans to one side
    held = [of_median([chance.expovariate(1.0) for _ in range(15)]) >= median for _ in range(4000)]
    assert 0.95 <= statistics.fmean(held) <= 0.99  # the twelfth of 15 is one with 98.2 %


@pytest.mark.parametrize(("again", "base"), [([0.9, 0.95, 1.2], 1.0), ([1.01, 1.03, 1.02], 1.02), ([1.0, 1.1], 1.05)])
def test_the_base_of_a_target_is_the_median_of_the_a_a_row_and_not_below_one(again: list[float], base: float) -> None:
    assert module("_bound").base(again) == pytest.approx(base)


@pytest.mark.parametrize(
    ("network", "who", "micro_batches", "workers", "margin"),
    [
        ("linear-25M", "OpenEDT, fast", 6, 2, 0.02),
        ("linear-25M", "OpenEDT", 4, 1, 0.05),
        ("transformer-10M", "OpenEDT", 8, 2, 0.05),
        ("transformer-10M", "OpenEDT", 6, 2, 0.08),
        ("conv-1M", "OpenEDT, fast", 4, 2, 0.05),
        ("conv-1M", "OpenEDT", 6, 2, 0.12),
    ],
)
def test_what_a_step_may_cost_follows_its_length_and_its_assignments(
    network: str, who: str, micro_batches: int, workers: int, margin: float
) -> None:
    assert module("throughput").margin(network, who, micro_batches, workers) == margin


def test_a_schedule_follows_from_its_seed_and_leaves_one_to_four_engines() -> None:
    schedule = module("_exactness_sides").schedule
    kinds = set()
    for seed in range(200):
        engines = {1}
        events = schedule(seed)
        assert events == schedule(seed)
        for event in events:
            kinds.add(event.what)
            if event.what == "join":
                assert event.engine not in engines
                engines.add(event.engine)
            else:
                engines.remove(event.engine)
            assert 1 <= len(engines) <= 4
    assert kinds == {"join", "leave", "kill"}
    assert len({tuple(schedule(seed)) for seed in range(200)}) == 200


def test_a_digest_tells_results_apart_by_one_bit_and_by_a_name() -> None:
    exactness = module("exactness")
    state = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])}
    other = {"b": torch.tensor([[3.0]]), "a": torch.nextafter(state["a"], torch.tensor(9.0))}
    assert exactness.digest(dict(reversed(state.items()))) == exactness.digest(state)
    assert exactness.digest(other) != exactness.digest(state)
    assert exactness.digest({"a": state["a"], "c": state["b"]}) != exactness.digest(state)


def test_the_difference_of_two_results_is_relative_to_the_first() -> None:
    difference = module("exactness").difference
    state = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}
    assert difference(state, state) == 0
    assert difference(state, {"a": torch.tensor([3.0, 0.5]), "b": torch.tensor([[4.0]])}) == pytest.approx(0.1)


def test_memory_by_count_of_a_small_network() -> None:
    """Of 100 bytes in three parameters, the largest of 40."""
    memory, sizes = module("memory"), [10, 10, 5]
    total = {
        (who, workers): memory.count(who, sizes, 4, workers)
        for who in (memory.DDP, memory.VIEW, memory.FAST, memory.EXACT, memory.SNAPSHOTS)
        for workers in (1, 2)
    }
    counted = memory.Counted
    assert total[memory.DDP, 2] == counted(100, 200, 100, 100, 0, 0, 0)
    assert total[memory.VIEW, 2] == counted(100, 200, 0, 100, 0, 0, 0)
    assert total[memory.FAST, 1] == counted(100, 200, 40, 0, 100, 0, 0)
    assert total[memory.FAST, 2] == counted(100, 200, 40, 0, 200, 0, 0)
    assert total[memory.EXACT, 1] == counted(100, 200, 40, 200, 0, 0, 0), "two sums of two micro-batches each"
    assert total[memory.EXACT, 2] == counted(100, 200, 40, 100, 100, 52, 0), "13 of 25 numbers arrive"
    assert total[memory.SNAPSHOTS, 2] == counted(100, 200, 40, 100, 100, 52, 300)


def test_the_peak_of_a_process_is_counted_anew() -> None:
    memory, pid = module("_memory"), os.getpid()
    large = torch.ones(10_000_000)
    assert memory.peak(pid) >= large.nbytes
    before = memory.peak(pid)
    del large
    memory.begin_peak(pid)
    assert memory.peak(pid) < before
