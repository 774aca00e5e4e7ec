"""The sampler: which samples each process takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import variable_batch_size as vbs
from support.regression import MAIN


def sampler(trace: Any = MAIN, rank: int = 0, size: int = 1, **options: Any) -> vbs.CustomSampler:
    return vbs.CustomSampler(range(66), trace, num_replicas=size, rank=rank, minibatch_size=4, verbose=False, **options)


def test_c2_02_the_order_is_that_of_the_seed_and_two_samples_are_left_out() -> None:
    first = list(sampler([64]))
    assert first[:3] == [[6, 48, 30, 43], [44, 23, 46, 1], [20, 41, 52, 65]]
    assert len({index for batch in first for index in batch}) == 64


def test_c2_02_each_epoch_has_an_order_of_its_own() -> None:
    found = sampler([64] * 2)
    first = list(found)
    found.set_epoch(1)
    assert list(found) != first


@pytest.mark.parametrize("size", [1, 2, 3])
def test_c2_04_05_all_processes_together_take_what_one_would(size: int) -> None:
    alone = list(sampler())
    shares = [iter(list(sampler(rank=rank, size=size))) for rank in range(size)]
    together: list[list[int]] = []
    for batch in [8, 8, 16, 16, 8]:
        count = batch // 4
        dealt = [[next(share) for _ in range(rank, max(count, rank + 1), size)] for rank, share in enumerate(shares)]
        together += [dealt[number % size][number // size] for number in range(count)]
    assert together == alone


def test_c2_06_a_process_without_a_share_gets_a_batch_of_sample_0() -> None:
    assert list(sampler([4], rank=1, size=2, at_end="stop")) == [[0, 0, 0, 0]]
    assert sampler(rank=1, size=2).get_batch_assignments([4]) == [[]]


def test_c2_07_three_processes_share_seven_micro_batches() -> None:
    shares = [sampler(rank=rank, size=3).get_batch_assignments([28])[0] for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4], [2, 5]]


def test_c2_28_its_length_and_the_loaders_is_the_number_of_batches() -> None:
    found = sampler([16] * 4)
    loader = DataLoader(TensorDataset(torch.arange(66)), batch_sampler=found)
    assert len(found) == len(loader) == len(list(loader)) == 16
    assert len(sampler([16] * 4, rank=1, size=2)) == 8
    assert len(sampler([4] * 16, rank=1, size=2)) == 16, "each with a batch that does not count"
    assert bool(sampler([64], at_end="stop"))


def test_c2_29_the_readmes_dataset_size_is_taken() -> None:
    found = vbs.CustomSampler(dataset_size=66, trace=MAIN, num_replicas=1, rank=0, minibatch_size=4, verbose=False)
    assert list(found) == list(sampler())


def test_c2_31_without_a_process_group_it_is_one_process() -> None:
    found = vbs.CustomSampler(range(66), MAIN, minibatch_size=4, verbose=False)
    assert (found.rank, found.num_replicas) == (0, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dataset_size": 3}, "dataset: got 3 samples, takes at least 4"),
        ({"dataset_size": 66, "minibatch_size": 0}, "minibatch_size: got 0"),
        ({"dataset_size": 66, "minibatch_size": 4.0}, "minibatch_size: got 4.0"),
        ({}, "dataset: takes either"),
        ({"dataset": range(66), "dataset_size": 66}, "dataset: takes either"),
        ({"dataset_size": 66, "num_replicas": 2, "rank": 2}, "rank"),
    ],
)
def test_what_it_cannot_do_is_an_error_that_names_the_argument(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        vbs.CustomSampler(**{"trace": MAIN, "minibatch_size": 4, "verbose": False, **options})


def test_rank_0_says_what_the_trace_begins_with(capsys: pytest.CaptureFixture[str]) -> None:
    for trace in (MAIN, [8], 16, (batch for batch in MAIN)):
        vbs.CustomSampler(range(66), trace, minibatch_size=4, num_replicas=2, rank=0, at_end="stop")
        vbs.CustomSampler(range(66), trace, minibatch_size=4, num_replicas=2, rank=1, at_end="stop")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0].strip() for line in lines] == [
        "CustomSampler: the trace begins with 8, 8",
        "CustomSampler: the trace begins with 8",
        "CustomSampler: the trace begins with 16",
        "CustomSampler: the trace begins with 8",
    ]
    assert lines[0].endswith("; 16 micro-batches of 4 an epoch")


def test_a_state_of_other_data_is_refused() -> None:
    state = sampler().state_dict()
    for name, other in (("seed", 7), ("minibatch_size", 8), ("samples", 60), ("trace_start", 5)):
        with pytest.raises(ValueError, match=f"state_dict: got {name} {other}"):
            sampler().load_state_dict({**state, name: other})
