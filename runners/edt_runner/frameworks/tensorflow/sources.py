"""Where units of data come from, and how those of a test set are cut to the size of the training set's.

A unit is what the engine's schedule permutes and counts: one sample, or one item of a Keras sequence, which is a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow import nested
from edt_runner.frameworks.tensorflow.nested import Nested
from edt_runner.seeds import sample_seed, seed_python

TEST = -1
"""The epoch under which test data are loaded: each time the same."""


class Source(Protocol):
    """One data set."""

    units: int

    def rows(self) -> int:
        """Samples in a unit; the last one may have fewer."""
        return 1

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        """(x, y) or (x, y, sample weight) of some units."""

    def first(self, times: int) -> Nested:
        """A batch of the first unit, over and over."""
        return self.batch(TEST, [0] * times)

    def probe(self) -> Nested:
        """The first unit by itself."""


class Arrays(Source):
    """All samples in arrays, one row each: nothing is drawn, so nothing is seeded."""

    def __init__(self, arrays: Nested, where: str) -> None:
        self._arrays = arrays
        self.units = nested.rows(arrays, where)

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        return nested.take(self._arrays, np.asarray(indices, dtype=np.int64))

    def probe(self) -> Nested:
        return nested.take(self._arrays, 0)


class Singles(Source):
    """Samples one by one out of ``dataset[index]``.

    Args:
        floats: type of Python's own floats, Keras' ``floatx``.
        collate: list of samples -> batch; None: leaf by leaf.
        where: the data set's name in errors.
    """

    def __init__(
        self, dataset: Any, floats: str, collate: Callable[[list[Any]], Any] | None, seeding: Seeding, where: str
    ) -> None:
        self._dataset, self._floats, self._collate, self._where = dataset, floats, collate, where
        self._seeding = seeding
        self.units = len(dataset)

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        with self._seeding.loading():
            samples = [self._sample(epoch, index) for index in indices]
            if self._collate is not None:
                self._seeding.start(epoch, indices[0])
            return self._together(samples)

    def first(self, times: int) -> Nested:
        with self._seeding.loading():
            return self._together([self._sample(0, 0)] * times)

    def probe(self) -> Nested:
        with self._seeding.loading():
            sample = self._sample(0, 0)
        if self._collate is not None:
            with suppress(UsageError):  # what a function of the user's own makes a batch of may be anything
                return nested.to_numpy(sample, self._floats, self._where)
        return sample

    def _sample(self, epoch: int, index: int) -> Any:
        self._seeding.start(epoch, index)
        sample = self._dataset[index]
        return (
            sample if self._collate is not None else as_sample(sample, self._floats, f"{self._where}: sample {index}")
        )

    def _together(self, samples: list[Any]) -> Nested:
        if self._collate is None:
            return nested.stack(samples, f"{self._where}: samples")
        where = "fn_batch_collate: the batch it returns"
        batch = as_sample(self._collate(samples), self._floats, where)
        nested.rows(batch, where)
        return batch


class Grouped(Source):
    """Several units of ``inner`` as one: a test set beside a training set whose units are larger."""

    def __init__(self, inner: Source, size: int) -> None:
        self._inner, self._size = inner, size
        self.units = -(-inner.units // size)

    def rows(self) -> int:
        return self._inner.rows() * self._size

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        size, units = self._size, self._inner.units
        return self._inner.batch(epoch, [one for i in indices for one in range(i * size, min((i + 1) * size, units))])

    def first(self, times: int) -> Nested:
        return self._inner.first(times * self._size)

    def probe(self) -> Nested:
        return self._inner.probe()


class ByRow(Source):
    """The rows of ``inner`` as units: a test set of whole batches beside a training set of samples."""

    def __init__(self, inner: Source, where: str) -> None:
        self._inner, self._where, self._size = inner, where, inner.rows()
        last = nested.rows(inner.batch(TEST, [inner.units - 1]), where)
        self.units = self._size * (inner.units - 1) + last
        self._held: tuple[int, int, Nested] | None = None

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        at = np.asarray(indices, dtype=np.int64)
        runs = np.split(at, np.flatnonzero(np.diff(at // self._size)) + 1)
        parts = [nested.take(self._item(epoch, int(run[0]) // self._size), run % self._size) for run in runs]
        return nested.concatenate(parts, self._where)

    def probe(self) -> Nested:
        return self._inner.probe()

    def _item(self, epoch: int, item: int) -> Nested:
        """Neighbouring rows are asked for one after the other, so the newest item is kept."""
        if self._held is None or self._held[:2] != (epoch, item):
            batch = self._inner.batch(epoch, [item])
            found = nested.rows(batch, self._where)
            expected = min(self._size, self.units - item * self._size)
            if found != expected:
                raise UsageError(f"{self._where}: item {item} has {found} rows, takes {expected}, as item 0 has")
            self._held = (epoch, item, batch)
        return self._held[2]


def as_sample(value: Any, floats: str, where: str) -> Nested:
    """A sample or a batch as the user's code gives it, in NumPy: (x, y) or (x, y, sample weight).

    Raises:
        UsageError: it is neither.
    """
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
        raise UsageError(
            f"{where}: got {nested.described(value)}{size}, takes (x, y) or (x, y, sample_weight); "
            "several inputs or outputs are a dict or a tuple in x or y"
        )
    if len(value) == 3 and value[2] is None:
        value = value[:2]
    names = ("x", "y", "sample_weight")
    return tuple(nested.to_numpy(part, floats, f"{where}: {name}") for name, part in zip(names, value, strict=False))


class Seeding:
    """The random state under which a unit of data is loaded: one for the training set, one for the test set.

    It follows from (seed, epoch, index) alone. Python's and NumPy's global generators are seeded each time, which is
    cheap. Seeding TensorFlow's empties its cache of kernels, so that the next training step takes milliseconds longer:
    it is done when a data set first draws from that generator, and only then.

    Args:
        seed: of the training.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.always = False
        """Seed TensorFlow for every unit, whether or not it is seen to draw."""
        self.with_ops = True
        """False in loader processes, which run no op of TensorFlow."""

    def seed_of(self, epoch: int, index: int) -> int:
        """A number of 63 bits."""
        return sample_seed(self._seed, epoch, index)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around what loads: TensorFlow's generator goes on afterwards as if nothing had been loaded."""
        context = _context() if self.with_ops else None
        if context is None:
            yield
            return
        seed, generator = context._seed, getattr(context, "_rng", None)
        try:
            yield
        finally:
            context._seed, context._rng = seed, generator

    def start(self, epoch: int, index: int) -> None:
        """Inside ``loading``: what is loaded now is this unit."""
        seed = self.seed_of(epoch, index)
        seed_python(seed)
        if not self.with_ops:
            return
        context = None if self.always else _context()
        short = seed & 0x7FFFFFFF
        if context is not None:
            context._seed, context._rng = short, _Seeds(context, short)
        else:
            tf.random.set_seed(short)


class _Seeds:
    """In the place of the generator that gives eager ops their seeds: seeds all when it is first asked."""

    def __init__(self, context: Any, seed: int) -> None:
        self._context, self._seed = context, seed

    def randint(self, low: int, high: int) -> int:
        tf.random.set_seed(self._seed)  # puts a generator of its own here
        number: int = self._context._rng.randint(low, high)
        return number


def _context() -> Any:
    """TensorFlow's eager context, or None if it is not as we know it: its seed and the generator of its ops' seeds are
    private, and there is no public way to learn that an op has drawn."""
    from tensorflow.python.eager import context

    found = context.context()
    if getattr(found, "_seed", 0) is None:  # nobody has seeded it yet
        return found
    return found if isinstance(getattr(found, "_rng", None), random.Random | _Seeds) else None
