"""``runai.elastic``: what a global batch means on some number of GPUs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

import runai.elastic
import runai.elastic.torch
import runai.ga.torch
from edt_runner.errors import UsageError
from runai import elastic
from runai.elastic import split
from runai.elastic.torch import batches, data_parallel_batch, init
from runai.utils import gpus as devices

NAMES = ("steps", "batch_size", "sizes", "global_batch_size", "gpus", "master")


@pytest.fixture(autouse=True)
def as_imported() -> Iterator[None]:
    """Each test begins and ends with nothing set."""
    for name in NAMES:
        vars(elastic).pop(name, None)
    yield
    for name in NAMES:
        vars(elastic).pop(name, None)


def attributes() -> tuple[int, int]:
    return elastic.steps, elastic.batch_size


@pytest.mark.parametrize("name", NAMES)
def test_before_init_an_attribute_says_what_to_call(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"runai.elastic.{name} is set by runai.elastic.torch.init\("):
        getattr(elastic, name)


@pytest.mark.parametrize(("gpus", "expected"), [(1, (4, 64)), (2, (2, 64)), (4, (1, 64)), (8, (1, 32))], ids=str)
def test_c1_02_steps_and_batch_size_on_1_2_4_and_8_gpus(gpus: int, expected: tuple[int, int]) -> None:
    init(256, 64, gpus=gpus)
    assert attributes() == expected


@pytest.mark.parametrize(
    ("batch", "most", "expected"), [(128, 16, (8, 16)), (64, 16, (4, 16)), (256, 32, (8, 32))], ids=str
)
def test_c1_03_more_steps_where_less_fits(batch: int, most: int, expected: tuple[int, int]) -> None:
    init(batch, most, 1)
    assert attributes() == expected


@pytest.mark.parametrize("most", [300, 256])
def test_c1_04_a_global_batch_that_fits_takes_one_step(most: int) -> None:
    init(256, most, 1)
    assert attributes() == (1, 256)


def test_c1_05_init_echoes_what_it_was_given_is_master_and_knows_no_horovod() -> None:
    generator = np.random.default_rng(5)
    for _ in range(20):
        batch = int(generator.integers(10, 101))
        elastic._init(batch, int(generator.integers(1, batch + 1)), gpus=1)
        assert (elastic.global_batch_size, elastic.gpus, elastic.master) == (batch, 1, True)
        assert not hasattr(elastic, "hvd")


def test_c1_06_positional_and_named_arguments_and_a_second_init() -> None:
    init(256, 64)
    assert (elastic.global_batch_size, elastic.batch_size) == (256, 64)
    init(global_batch_size=128, max_gpu_batch_size=16, gpus=2)
    assert (elastic.global_batch_size, elastic.gpus, *attributes()) == (128, 2, 4, 16)
    elastic._init(64, 64, gpus=1)
    assert attributes() == (1, 64)


def test_c1_07_a_global_batch_that_does_not_divide_never_exceeds_the_maximum() -> None:
    init(100, 30, 1)
    assert (*attributes(), elastic.sizes) == (4, 25, (25, 25, 25, 25))


def test_c1_08_three_gpus_keep_all_256_samples() -> None:
    init(256, 64, 3)
    assert attributes() == (2, 43)
    assert elastic.sizes == (128, 128)
    assert split(256, 64, 3).sizes == (43, 43, 42, 43, 43, 42)


def test_c1_09_a_batch_above_the_maximum_is_split_evenly_or_nearly() -> None:
    init(100, 64, 1)
    assert attributes() == (2, 50)
    init(127, 64, 1)
    assert (*attributes(), elastic.sizes) == (2, 64, (64, 63))


def test_c1_10_on_the_whole_grid_nothing_exceeds_the_maximum_and_no_sample_is_lost() -> None:
    grid = [
        (batch, most, gpus)
        for batch in range(1, 257)
        for most in range(1, min(batch, 64) + 1)
        for gpus in (1, 2, 3, 4, 8)
    ]
    assert len(grid) == 71_840
    legal = [point for point in grid if point[0] >= point[2]]
    parts = [split(*point) for point in legal]
    batch, most, gpus = np.array(legal).T
    steps = np.array([part.steps for part in parts])
    largest = np.array([part.batch_size for part in parts])
    assert ((largest <= most) & (largest >= 1) & (steps >= 1)).all()
    assert ((steps - 1) * most * gpus < batch).all(), "more steps than are needed"
    numbers = [np.array(part.sizes) for part in parts]
    assert ([each.sum() for each in numbers] == batch).all()
    assert ([len(each) for each in numbers] == steps * gpus).all()
    assert max(int(np.ptp(each)) for each in numbers) == 1


def test_c1_11_fewer_samples_than_gpus_are_an_error() -> None:
    with pytest.raises(ValueError, match="global_batch_size: got 1, takes at least one sample for each of 2 GPUs"):
        init(1, 1, 2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (name, wrong)
        for name in ("global_batch_size", "max_gpu_batch_size", "gpus")
        for wrong in (0, -256, 256.0, "256", True, None)
        if (name, wrong) != ("gpus", None)  # which means: count them
    ],
    ids=repr,
)
def test_c1_12_a_wrong_argument_is_named_and_changes_nothing(name: str, wrong: object) -> None:
    init(64, 16, 2)
    good: dict[str, Any] = {"global_batch_size": 256, "max_gpu_batch_size": 64, "gpus": 1}
    with pytest.raises(UsageError, match=f"{name}: got {wrong!r}, takes"):
        init(**{**good, name: wrong})
    assert (elastic.global_batch_size, elastic.gpus, *attributes()) == (64, 2, 2, 16)


def test_integers_of_numpy_are_whole_numbers() -> None:
    init(np.int64(256), np.int32(64), np.int64(2))  # type: ignore[arg-type]
    assert [type(value) for value in attributes()] == [int, int]


@pytest.mark.parametrize("gpus", [0, -1])
def test_c1_13_no_gpus_given_is_an_error(gpus: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        init(256, 64, gpus=gpus)


@pytest.mark.parametrize("call", [init, elastic._init])
def test_c1_14_a_machine_without_gpus_is_one_device(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)  # on a machine with GPUs, torch may have counted before
    call(256, 64)
    assert (elastic.gpus, *attributes()) == (1, 4, 64)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (None, 4),
        ("0", 1),
        ("0,2", 2),
        ("3, 1", 2),
        ("", 0),
        ("-1", 0),
        ("1,9,2", 1),
        ("1,1", 0),
        ("GPU-c", 1),
        ("GPU-c,GPU-x,0", 1),
        ("MIG-1,MIG-2", 2),
    ],
)
def test_c1_15_cuda_visiblegpus_says_how_many_gpus_there_are(wanted: str | None, count: int) -> None:
    assert devices.visible_of(["GPU-a", "GPU-b", "GPU-cc", "GPU-d"], wanted) == count


def test_c1_15_without_a_framework_one_visible_gpu_of_four_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "installed", lambda: ["GPU-a", "GPU-b", "GPU-c", "GPU-d"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    elastic._init(256, 64)
    assert elastic.gpus == 1
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    elastic._init(256, 64)
    assert elastic.gpus == 4


def test_without_a_framework_as_many_gpus_are_counted_as_torch_counts() -> None:
    assert devices.count() == torch.cuda.device_count()


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_only_the_first_is_master(rank: int) -> None:
    torch.distributed.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
    try:
        init(256, 64, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert elastic.master == (rank == 0)


def test_init_says_in_one_line_how_it_spreads_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="runai"):
        init(256, 64, 2)
        init(127, 64, 1)
    assert caplog.messages == [
        "Spreading global batch size 256 across 2 GPU(s) each with 2 step(s) of batch size 64",
        "Spreading global batch size 127 across 1 GPU(s) each with 2 step(s) of batch size at most 64",
    ]


# ── loaders ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("gpus", "batch"), [(1, 64), (2, 128), (4, 256), (8, 256), (3, 128)])
def test_a_data_parallel_loop_gets_the_batches_of_all_gpus(gpus: int, batch: int) -> None:
    init(256, 64, gpus)
    assert data_parallel_batch() == batch
    assert elastic.steps * batch == 256


def test_batches_take_every_sample_once_and_each_cycle_has_the_global_batch() -> None:
    init(127, 64, 1)
    loader = batches(range(300))
    taken = list(loader)
    assert [len(batch) for batch in taken] == [64, 63, 64, 63, 23, 23] == [len(batch) for batch in taken]
    assert list(chain.from_iterable(taken)) == list(range(300))
    assert len(loader) == 6
    whole = batches(range(300), drop_last=True)
    assert ([len(batch) for batch in whole], len(whole)) == ([64, 63, 64, 63], 4)


def test_an_end_with_fewer_samples_than_steps_has_fewer_batches() -> None:
    init(64, 16, 1)
    assert [len(batch) for batch in batches(range(66))] == [16, 16, 16, 16, 1, 1]
    assert len(batches(range(66))) == 6


def test_shuffled_batches_have_another_order_each_epoch_and_are_the_generators() -> None:
    init(8, 4, 1)
    one, two = (batches(range(20), shuffle=True, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    first = list(chain.from_iterable(one))
    assert first == list(chain.from_iterable(two))
    assert sorted(first) == sorted(chain.from_iterable(one)) == list(range(20))
    assert first != list(chain.from_iterable(two))


def test_batches_take_a_sampler_of_the_users_but_not_shuffle_beside_it() -> None:
    init(4, 4, 1)
    sampler = torch.utils.data.SubsetRandomSampler([7, 7, 7])
    assert list(batches(range(9), sampler=sampler)) == [[7, 7, 7]]
    with pytest.raises(UsageError, match="shuffle: got True, takes False beside a sampler"):
        batches(range(9), sampler=sampler, shuffle=True)


# ── training ──────────────────────────────────────────────────────────────────────────────────────────────────────
def trained(batch: int, most: int, gpus: int) -> np.ndarray[Any, Any]:
    """A readme's loop, on as many GPUs; 90 samples, so that each epoch ends with a smaller global batch."""
    generator = torch.Generator().manual_seed(28)
    data = TensorDataset(
        torch.randn(90, 3, generator=generator, dtype=torch.float64),
        torch.randn(90, 1, generator=generator, dtype=torch.float64),
    )
    model = nn.Linear(3, 1, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.5)
    init(batch, most, gpus)
    optimizer = runai.ga.torch.optim.SGD(elastic.steps, model.parameters(), lr=0.05, momentum=0.9)
    parallel = nn.DataParallel(model)
    for _ in range(3):
        for inputs, targets in DataLoader(data, batch_sampler=batches(data)):
            optimizer.zero_grad()
            nn.functional.mse_loss(parallel(inputs), targets).backward()
            optimizer.step(samples=len(inputs))
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()


def in_numpy(batch: int) -> np.ndarray[Any, Any]:
    """The same without micro-batches, GPUs or torch's optimizer."""
    generator = torch.Generator().manual_seed(28)
    inputs = torch.randn(90, 3, generator=generator, dtype=torch.float64).numpy()
    targets = torch.randn(90, 1, generator=generator, dtype=torch.float64).numpy()[:, 0]
    weights, velocity = np.full(4, 0.5), np.zeros(4)
    for _ in range(3):
        for start in range(0, 90, batch):
            x = np.column_stack([inputs[start : start + batch], np.ones(len(inputs[start : start + batch]))])
            error = x @ weights - targets[start : start + batch]
            velocity = 0.9 * velocity + 2 * x.T @ error / len(x)
            weights = weights - 0.05 * velocity
    return weights


@pytest.mark.parametrize(("batch", "most"), [(32, 8), (31, 8), (37, 5)])
@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_c1_28_any_number_of_gpus_trains_to_the_same_weights(batch: int, most: int, gpus: int) -> None:
    np.testing.assert_allclose(trained(batch, most, gpus), in_numpy(batch), rtol=0, atol=1e-12)
