"""Traces of batch sizes: where they come from, the epochs they make, and what follows their end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import variable_batch_size as vbs
from support.regression import EPOCHS, MAIN

UP_AND_DOWN = [128] * 2 + [256] * 2 + [64] * 2 + [32] * 2 + [256] * 2
STAIRS = [batch for batch in (256, 512, 1024, 2048) for _ in range(10)]
ORIGINALS = UP_AND_DOWN + STAIRS * 20
"""The file that the original's training script runs on: 810 rows, whose step numbers begin anew in row 10."""


def sampler(trace: Any, samples: int = 66, minibatch_size: int = 4, **options: Any) -> vbs.CustomSampler:
    return vbs.CustomSampler(dataset_size=samples, trace=trace, minibatch_size=minibatch_size, verbose=False, **options)


def epochs(found: vbs.CustomSampler, count: int) -> list[list[int]]:
    return [found.get_epochtrace(epoch) for epoch in range(count)]


class Frame:
    """What data frames of every make have: names of columns, and columns by name."""

    def __init__(self, **columns: list[int]) -> None:
        self.columns = list(columns)
        self._columns = columns

    def __getitem__(self, name: str) -> list[int]:
        return self._columns[name]


def test_c2_01_an_epoch_has_the_entries_that_fit_into_its_samples() -> None:
    assert epochs(sampler(MAIN), 5) == EPOCHS


def test_c2_23_a_trace_that_fills_its_last_epoch_is_read_to_its_end_and_then_ends_clearly() -> None:
    found = sampler([16] * 4, samples=64)
    assert found.get_epochtrace(0) == [16] * 4
    assert found.max_epoch == 1
    with pytest.raises(vbs.TraceEnded, match=r"it ended after 4 steps, in epoch 1 with 64 of 64 samples left"):
        found.set_epoch(1)
    assert issubclass(vbs.TraceEnded, IndexError), "what the original raised"


@pytest.mark.parametrize(
    ("at_end", "expected"),
    [
        ("hold", [[32, 16, 8, 8], [8] * 8]),
        ("cycle", [[32, 16, 8], [32, 16, 8]]),
        ("stop", [[32, 16, 8], []]),
    ],
)
def test_c2_23_what_follows_the_end_of_a_trace_is_chosen(at_end: str, expected: list[list[int]]) -> None:
    found = sampler([32, 16, 8], samples=64, at_end=at_end)
    assert epochs(found, 2) == expected
    found.set_epoch(1)
    assert len(list(found)) == sum(expected[1]) // 4


def test_c2_23_a_trace_that_ends_within_an_epoch_is_an_error_unless_another_entry_would_not_fit() -> None:
    with pytest.raises(vbs.TraceEnded, match=r"in epoch 1 with 32 of 64 samples left.*hold.*cycle.*stop"):
        epochs(sampler([16] * 6), 2)
    assert epochs(sampler([40] * 3), 3) == [[40]] * 3


def test_c2_23_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="at_end: got 'repeat', takes one of error, hold, cycle, stop"):
        sampler([16], at_end="repeat")


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ([8, 128, 8], "got 128 at step 1, takes at most 64"),
        ([8, 8, 0], "got 0 at step 2"),
        ([-8], "got -8 at step 0"),
        ([8, 16.0], "got 16.0 at step 1"),
        ([8, 6], "got 6 at step 1, takes a multiple of 4"),
        ([8, True], "got True at step 1"),
        ([8, None], "got None at step 1"),
        (np.array([8.0, 16.0]), "got 8.0 at step 0"),
        (6, "got 6 at step 0, takes a multiple of 4"),
        ([], "got no entries"),
        (None, "got None, takes the path of a CSV file"),
    ],
)
def test_c2_24_an_entry_that_cannot_be_trained_on_is_named_with_its_step(trace: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sampler(trace)


def test_c2_24_an_entry_of_a_generator_is_named_when_it_is_read() -> None:
    found = sampler(iter([64, 64, 12, 13]))
    assert found.get_epochtrace(1) == [64]
    with pytest.raises(ValueError, match="got 13 at step 3"):
        found.get_epochtrace(2)


@pytest.mark.parametrize(
    "trace",
    [
        tuple(MAIN),
        np.array(MAIN),
        np.array(MAIN, dtype=np.int32).reshape(-1),
        torch.tensor(MAIN),
        Frame(step=list(range(18)), batchsize=MAIN),
        {"batchsize": MAIN},
        (batch for batch in MAIN),
        iter(np.array(MAIN)),
        lambda step: MAIN[step] if step < len(MAIN) else None,
    ],
    ids=["tuple", "array", "int32", "tensor", "frame", "columns", "generator", "iterator", "callable"],
)
def test_c2_25_a_trace_comes_from_whatever_holds_numbers(trace: Any) -> None:
    found = sampler(trace)
    assert epochs(found, 5) == EPOCHS
    with pytest.raises(vbs.TraceEnded):
        found.get_epochtrace(5)
    assert found.trace == MAIN


@pytest.mark.parametrize("constant", [16, np.int64(16)])
def test_c2_25_one_number_holds_for_all_steps(constant: Any) -> None:
    found = sampler(constant)
    assert found.get_epochtrace(1000) == [16] * 4
    assert found.trace[3] == 16 and found.max_epoch is None


def test_c2_25_a_generator_without_end_is_read_as_far_as_it_is_asked_for() -> None:
    read = []

    def growing() -> Iterator[int]:
        for batch in itertools.chain([8] * 8, itertools.repeat(16)):
            read.append(batch)
            yield batch

    found = sampler(growing())
    assert found.get_epochtrace(0) == [8] * 8
    assert len(read) <= 9
    assert found.get_epochtrace(2) == [16] * 4


@pytest.mark.parametrize("made", [str, Path])
def test_c2_26_a_csv_with_blanks_is_read(tmp_path: Path, made: Any) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(" step,batchsize\n 0, 1024\n 1, 1024\n\n 2, 2048\n")
    assert sampler(made(file), samples=4096, minibatch_size=32).trace == [1024, 1024, 2048]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step,size\n0,8\n", "are step, size, takes one named batchsize"),
        ("", "takes one named batchsize"),
        ("step,batchsize\n0,8\n1,many\n", "got 'many' at step 1"),
        ("step,batchsize\n0,8.0\n", "got '8.0' at step 0"),
        ("step,batchsize\n0\n", "got None at step 0"),
    ],
)
def test_c2_26_a_csv_without_the_column_or_with_other_cells_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        sampler(file)
    with pytest.raises(ValueError, match="its columns are step, size, takes one named batchsize"):
        sampler(Frame(step=[0], size=[8]))


def test_c2_26_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sampler(str(tmp_path / "none.csv"))


def test_c2_27_the_originals_trace_has_twelve_epochs_of_60000_samples(tmp_path: Path) -> None:
    file = tmp_path / "test_trace.csv"
    steps = [*range(len(UP_AND_DOWN)), *range(len(ORIGINALS) - len(UP_AND_DOWN))]
    rows = [f"{step},{batch}" for step, batch in zip(steps, ORIGINALS, strict=True)]
    file.write_text("\n".join(["step,batchsize", *rows]))
    found = sampler(str(file), samples=60000, minibatch_size=32)
    assert (len(ORIGINALS), sum(ORIGINALS), found.minibatches_per_epoch, found.max_epoch) == (810, 769_472, 1875, 12)
    ranges = [found.get_epoch_range(epoch) for epoch in range(12)]
    assert ranges[:5] == [(0, 81), (81, 141), (141, 203), (203, 269), (269, 325)]
    assert ranges[-1] == (694, 762)
    used = [sum(found.get_epochtrace(epoch)) for epoch in range(12)]
    assert used == [59840, 59904, 59392, 59904, 59392, 59392, 59904, 59392, 59904, 58368, 59904, 59392]
    with pytest.raises(vbs.TraceEnded, match="it ended after 810 steps, in epoch 12"):
        found.set_epoch(12)
    stopping = sampler(str(file), samples=60000, minibatch_size=32, at_end="stop")
    assert [stopping.get_epoch_range(epoch) for epoch in (12, 13)] == [(762, 810), (810, 810)]
