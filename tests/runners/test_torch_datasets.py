"""What a PyTorch user may give as a data set, and how it is indexed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch import datasets
from edt_runner.frameworks.pytorch.batches import moved, stacked
from edt_runner.frameworks.pytorch.datasets import map_style
from edt_runner.frameworks.pytorch.trainable import TorchSamples

ROWS = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


class Counted(Stream):
    def __len__(self) -> int:
        return 6


def test_a_list_of_samples_is_a_data_set() -> None:
    rows = [ROWS[index] for index in range(6)]
    assert map_style("train", rows).dataset is rows


def test_a_data_loader_gives_its_data_set_its_order_and_its_collate_function() -> None:
    def halves(samples: list[Any]) -> Any:
        return torch.stack([inputs for inputs, _ in samples]) / 2, torch.stack([target for _, target in samples])

    samples = TorchSamples(DataLoader(ROWS, batch_size=4, collate_fn=halves), None, 0, None)
    assert not samples.shuffled and samples.train_units == 6
    inputs, targets = samples.batch(True, 0, [1, 3])
    assert inputs.tolist() == [[1.0, 1.5], [3.0, 3.5]] and targets.tolist() == [1, 3]
    assert "batch_size and workers are those of train()" in samples.notes[0]
    assert TorchSamples(DataLoader(ROWS, shuffle=True), None, 0, None).shuffled


def test_a_data_loader_over_a_random_subset_gives_that_subset() -> None:
    found = map_style("train", DataLoader(ROWS, sampler=SubsetRandomSampler([4, 2])))
    assert [int(found.dataset[index][1]) for index in range(len(found.dataset))] == [4, 2]
    assert not found.in_order


@pytest.mark.parametrize(
    "sampler", [WeightedRandomSampler([0.5] * 6, 6), RandomSampler(ROWS, replacement=True, num_samples=6)]
)
def test_a_sampler_that_engines_cannot_share_is_refused_with_the_lines_that_draw_samples(sampler: Any) -> None:
    with pytest.raises(UsageError, match=rf"train DataLoader draws its samples by a {type(sampler).__name__}"):
        map_style("train", DataLoader(ROWS, sampler=sampler))


def test_a_stream_with_a_length_is_read_once_and_that_is_said() -> None:
    found = map_style("train", Counted())
    assert len(found.dataset) == 6 and int(found.dataset[5][1]) == 5
    assert "the Counted was read once, 6 rows" in found.notes[0]


def test_a_stream_without_a_length_is_refused_with_the_lines_that_make_a_data_set_of_it() -> None:
    with pytest.raises(UsageError) as caught:
        map_style("test", Stream())
    for words in ("test data set is a Stream", "a stream without a length", "rows = [row for row in dataset]"):
        assert words in str(caught.value)


def test_a_stream_that_is_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "MOST_BYTES", 20)
    with pytest.raises(UsageError, match="was read up to row 2; takes a map-style data set"):
        map_style("train", Counted())


def test_what_is_no_data_set_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="train data set is a int, no data set"):
        map_style("train", 3)


@dataclasses.dataclass
class Example:
    image: torch.Tensor
    words: dict[str, torch.Tensor]


class Pair(NamedTuple):
    example: Example
    label: int


def test_samples_of_any_nesting_are_stacked_and_moved() -> None:
    samples = [Pair(Example(torch.full((2,), float(n)), {"ids": torch.tensor([n, n])}), n) for n in range(3)]
    batch = moved(stacked(samples), torch.device("cpu"))
    assert type(batch) is Pair and type(batch.example) is Example
    assert batch.example.image.tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert batch.example.words["ids"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert torch.as_tensor(batch.label).tolist() == [0, 1, 2]


def test_the_encodings_of_transformers_stay_encodings() -> None:
    from transformers import BatchEncoding

    samples = [BatchEncoding({"input_ids": torch.tensor([n, 1]), "labels": torch.tensor([n, 1])}) for n in range(2)]
    batch = moved(stacked(samples), torch.device("cpu"))
    assert batch["input_ids"].tolist() == [[0, 1], [1, 1]]
    assert isinstance(batch, BatchEncoding)
