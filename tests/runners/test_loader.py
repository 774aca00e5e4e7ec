"""Micro-batches do not depend on who loads them, whatever the framework."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from edt_runner.adapter import BatchRequest
from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch.trainable import TorchSamples
from edt_runner.frameworks.tensorflow.trainable import TensorFlowSamples
from edt_runner.frameworks.trainable import Samples
from edt_runner.loader import SampleLoader, SharedBuffers
from edt_runner.schedule import StepKind
from support.waiting import until


class Of(Dataset[Any]):
    """A map-style data set by a function of the index."""

    def __init__(self, item: Callable[[int], Any], length: int = 12) -> None:
        self._item, self._length = item, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._item(index)


class Torch:
    """Samples of PyTorch users."""

    pure = TensorDataset(torch.arange(12.0), torch.arange(12))

    @staticmethod
    def samples(train: Any, collate: Any = None) -> Samples:
        return TorchSamples(train, None, 7, collate)

    @staticmethod
    def noisy(index: int) -> Any:
        """Draws from the global generators, and sums in a way that threads would show in."""
        image = torch.randn(3, 128, 128) + random.random()
        return (image - image.mean()) / image.std(), index

    @staticmethod
    def large(index: int) -> Any:
        """One megabyte, by which it can be told."""
        return torch.full((1 << 18,), float(index)), index

    @staticmethod
    def mixed_up(samples: list[Any]) -> Any:
        """A collate function with a will of its own."""
        return torch.stack([sample[0] for sample in samples]) * torch.rand(()), [sample[1] for sample in samples]

    @staticmethod
    def draw() -> None:
        torch.rand(())


class TensorFlow:
    """The same of TensorFlow users'."""

    pure = (np.arange(12.0), np.arange(12))

    @staticmethod
    def samples(train: Any, collate: Any = None) -> Samples:
        return TensorFlowSamples(train, None, 7, collate)

    @staticmethod
    def noisy(index: int) -> Any:
        image = np.random.randn(3, 128, 128) + random.random()
        return (image - image.mean()) / image.std(), index

    @staticmethod
    def large(index: int) -> Any:
        return np.full((1 << 18,), index, np.float32), index

    @staticmethod
    def mixed_up(samples: list[Any]) -> Any:
        return np.stack([sample[0] for sample in samples]) * np.random.rand(), [sample[1] for sample in samples]

    @staticmethod
    def draw() -> None:
        tf: Any = importlib.import_module("tensorflow")
        tf.reduce_sum(tf.random.uniform((300, 300)) @ tf.random.uniform((300, 300)))  # its threads run


Side = type[Torch] | type[TensorFlow]


@pytest.fixture(params=[Torch, pytest.param(TensorFlow, marks=pytest.mark.tensorflow)])
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.param
    found.draw()
    return found


def load(processes: int, samples: Samples, skip: int = 0) -> list[Any]:
    loader = SampleLoader(samples, processes)
    step = samples.units_per_batch(3)
    requests = [BatchRequest(StepKind.TRAIN, 0, np.arange(n, n + step)) for n in range(0, samples.train_units, step)]
    try:
        if skip:  # batches on the way are forgotten
            loader.restart(iter(requests))
            loader.next()
        loader.restart(iter(requests[skip:]))
        torch.manual_seed(processes)  # what the engine's own generators did before makes no difference
        random.seed(processes)
        np.random.seed(processes)
        return [loader.next() for _ in requests[skip:]]
    finally:
        loader.close()


def same_however_many_load(made: Callable[[], Samples]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        none, one, two = (load(processes, made()) for processes in (0, 1, 2))
    finally:
        torch.set_num_threads(before)
    assert len(none) == 4
    for other in (one, two):
        for ours, theirs in zip(none, other, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("collates", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_the_number_of_loader_processes_does_not_show(side: Side, draws: bool, collates: bool) -> None:
    train = Of(side.noisy) if draws else side.pure
    same_however_many_load(lambda: side.samples(train, side.mixed_up if collates else None))


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore:Please import .affine_transform.:DeprecationWarning")  # by Keras 2
@pytest.mark.parametrize("keras", ["keras.src.legacy", "tf_keras"])
def test_nor_does_it_with_an_image_iterator_of_keras(keras: str) -> None:
    TensorFlow.draw()
    preprocessing: Any = importlib.import_module(f"{keras}.preprocessing.image")
    generator = preprocessing.ImageDataGenerator(horizontal_flip=True, width_shift_range=0.5)
    images = np.arange(12 * 8 * 8 * 3.0).reshape(12, 8, 8, 3)
    same_however_many_load(lambda: TensorFlow.samples(generator.flow(images, np.arange(12), batch_size=3, seed=1)))


def test_a_restart_forgets_what_was_on_its_way(side: Side) -> None:
    for processes in (0, 2):
        [ours, *_] = load(processes, side.samples(side.pure), skip=2)
        assert ours[1].tolist() == [6, 7, 8]


def test_its_processes_end_with_it_though_what_a_sample_has_raised_is_still_looked_at() -> None:
    """An error refers to the loop that it went through, and so to whoever would end the processes when it goes."""
    before = set(multiprocessing.active_children())
    loader = SampleLoader(Torch.samples(Of(lambda index: (index // 0, index))), 1)
    loader.restart(iter([BatchRequest(StepKind.TRAIN, 0, np.arange(3))]))
    with pytest.raises(ZeroDivisionError) as raised:
        loader.next()
    assert len(set(multiprocessing.active_children()) - before) == 1
    loader.close()
    until(lambda: not set(multiprocessing.active_children()) - before, what="they have ended")
    assert raised.tb


def batches_of(loader: SampleLoader, batches: int) -> list[Any]:
    """Batches of three, each different."""
    loader.restart(iter(BatchRequest(StepKind.TRAIN, 0, np.arange(n, n + 3)) for n in range(0, 3 * batches, 3)))
    return [loader.next()[0] for _ in range(batches)]


def test_a_batch_that_is_kept_stays_what_it_was_however_many_are_kept(side: Side) -> None:
    loader = SampleLoader(side.samples(Of(side.large, 400)), 2)
    try:
        for number, batch in enumerate(batches_of(loader, 30)):
            assert batch[:, 0].tolist() == batch[:, -1].tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
        kept = batches_of(loader, 2)
    finally:
        loader.close()
    assert [batch[2, 7].item() for batch in kept] == [2, 5], "nor does it go with its loader"


def own(samples: list[Any]) -> Any:
    """As always, unless that lies in memory for several processes."""
    batch = default_collate(samples)
    assert not batch[0].is_shared()
    return batch


def test_no_batch_lies_in_dev_shm(side: Side) -> None:
    loader = SampleLoader(side.samples(Of(side.large, 400), own if side is Torch else None), 1)
    try:
        kept = batches_of(loader, 20)
        assert len(kept) == 20
        mapped = Path("/proc/self/maps").read_text()
        assert "edt-batch" in mapped and "/dev/shm/torch" not in mapped
    finally:
        loader.close()


@pytest.mark.tensorflow
def test_tensorflow_in_a_loader_process_raises_at_once_what_to_do_instead() -> None:
    tf: Any = importlib.import_module("tensorflow")
    TensorFlow.draw()
    double = tf.function(lambda x: x @ x)
    made_before = tf.ones((2, 2))
    engine = os.getpid()
    refused: list[Callable[[], Any]] = [
        lambda: made_before + 1,
        lambda: double(made_before),
        lambda: made_before[0],
        lambda: tf.random.uniform((2,)),
        lambda: tf.Variable(made_before),
        lambda: tf.cast(np.ones(2), tf.int32),
        lambda: next(iter(tf.data.Dataset.range(3))),
        lambda: tf.keras.ops.add(np.ones(2), 1),
    ]
    allowed: list[Callable[[], Any]] = [
        lambda: made_before,
        made_before.numpy,
        lambda: tf.keras.utils.to_categorical(1, 3),
        os.getpid,
    ]
    runs = refused + allowed
    samples = TensorFlow.samples(Of(lambda index: (runs[index](), index), len(runs)))
    for number in range(len(runs)):
        samples.batch(True, 0, [number])  # in the engine it may
    loader = SampleLoader(samples, 1)
    try:
        loader.restart(iter(BatchRequest(StepKind.TRAIN, 0, np.array([number])) for number in range(len(runs))))
        for _ in refused:
            with pytest.raises(UsageError, match=r"would hang: use NumPy in __getitem__, or num_dataloader_threads=0"):
                loader.next()
        *_, (process, _) = [loader.next() for _ in allowed]
        assert process[0] != engine
    finally:
        loader.close()


def test_buffers_are_free_again_when_nothing_refers_to_their_batch_and_after_a_restart() -> None:
    buffers = SharedBuffers(2)
    batch = {"image": torch.ones(1000), "more": np.arange(5)}
    first, second = buffers.reserve(), buffers.reserve()
    assert buffers.reserve() is None, "all are in use"
    here = buffers.unpack(buffers.pack(batch, first))
    part = here["image"][10:20]
    del here
    assert buffers.reserve() is None, "a part of it is still referred to"
    del part
    assert buffers.reserve() == first
    buffers.release_reserved()
    assert {buffers.reserve(), buffers.reserve()} == {first, second}
    buffers.close()


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn),
]


@pytest.mark.parametrize("in_shared_memory", [True, False])
def test_whatever_a_batch_holds_arrives_as_it_was(in_shared_memory: bool) -> None:
    image = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    shared = torch.arange(6.0)
    batch = {
        "dtypes": [torch.arange(7).to(dtype) for dtype in DTYPES],
        "channels last": image.to(memory_format=torch.channels_last),
        "sliced": image[:, 1:, ::2],
        "transposed": image.transpose(1, 3),
        "far apart": torch.arange(10_000.0)[::1000],
        "expanded": torch.ones(1).expand(5),
        "one": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "learns": torch.ones(2, requires_grad=True),
        "sparse": torch.eye(3).to_sparse(),
        "array": np.arange(12.0).reshape(3, 4).T,
        "twice": (shared, shared),
        "words": ["a", b"b", None, 1.5, {"x": (1, 2)}],
    }
    buffers = SharedBuffers(1)
    arrived = buffers.unpack(buffers.pack(batch, buffers.reserve() if in_shared_memory else None))
    for name, ours in batch.items():
        torch.testing.assert_close(arrived[name], ours, rtol=0, atol=0) if name != "words" else None
    assert arrived["words"] == batch["words"]
    for name in ("channels last", "sliced", "transposed", "far apart"):
        assert arrived[name].stride() == batch[name].stride()  # type: ignore[attr-defined]
    assert arrived["learns"].requires_grad
    assert arrived["twice"][0] is arrived["twice"][1]
    arrived["channels last"].add_(1)
    arrived["array"] += 1
    buffers.close()


def test_a_buffer_grows_with_its_batches_and_holds_an_empty_one_too() -> None:
    buffers = SharedBuffers(1)
    for size in (10, 1_000_000, 3, 5_000_000, 0):
        arrived = buffers.unpack(buffers.pack(torch.arange(size), buffers.reserve()))
        assert torch.equal(arrived, torch.arange(size))
        del arrived
        buffers.close()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_batch_that_is_prepared_is_the_next_one_and_no_other(processes: int) -> None:
    """While a GPU computes, its next batch is loaded and sent to it."""
    loader = SampleLoader(Torch.samples(Of(float)), processes)
    try:

        def requests(*firsts: int) -> Any:
            return (BatchRequest(StepKind.TRAIN, 0, np.arange(first, first + 2)) for first in firsts)

        def placed(batch: Any) -> Any:
            return "placed", batch.tolist()

        loader.restart(requests(0, 2, 4))
        assert loader.next().tolist() == [0, 1]
        loader.prepare(placed)
        loader.prepare(placed)  # it is there already
        assert loader.next() == ("placed", [2, 3])
        loader.prepare(placed)
        loader.restart(requests(6))  # another split: what was prepared is no longer wanted
        assert loader.next().tolist() == [6, 7]
        loader.prepare(placed)  # it was the last
        loader.restart(requests(8))
        loader.prepare(placed)
        assert loader.next() == ("placed", [8, 9])
    finally:
        loader.close()


def test_an_error_of_a_prepared_batch_comes_with_the_step_that_needs_it() -> None:
    def broken(index: int) -> float:
        if index == 3:
            raise ValueError("sample 3 is broken")
        return float(index)

    loader = SampleLoader(Torch.samples(Of(broken)), 0)
    loader.restart(BatchRequest(StepKind.TRAIN, 0, np.arange(first, first + 2)) for first in (0, 2))
    assert loader.next().tolist() == [0, 1]
    loader.prepare(lambda batch: batch)
    with pytest.raises(ValueError, match="sample 3 is broken"):
        loader.next()
