"""Sources of units of data, and how the units of a test set are adapted to the size of the training set's.

The engine's schedule permutes and counts units. A unit is one sample, or one item of a Keras sequence, which is a
batch.
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
"""The epoch under which test data are loaded, so that they are the same each time."""


class Source(Protocol):
    """One data set, as units that can be loaded in any order."""

    units: int

    def rows(self) -> int:
        """Samples in a unit. The last unit may have fewer."""
        return 1

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        """(x, y) or (x, y, sample weight) of the units ``indices`` in ``epoch``, 0-based or ``TEST``."""

    def first(self, times: int) -> Nested:
        """A batch of the first unit, ``times`` times."""
        return self.batch(TEST, [0] * times)

    def probe(self) -> Nested:
        """The first unit."""


class Arrays(Source):
    """All samples in arrays, with one row each. No random numbers are drawn, so nothing is seeded.

    Raises:
        UsageError: the arrays have different numbers of rows, or none.
    """

    def __init__(self, arrays: Nested, where: str) -> None:
        self._arrays = arrays
        self.units = nested.rows(arrays, where)

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        return nested.take(self._arrays, np.asarray(indices, dtype=np.int64))

    def probe(self) -> Nested:
        return nested.take(self._arrays, 0)


class Singles(Source):
    """Single samples of ``dataset[index]``.

    Args:
        dataset: the user's map-style data set.
        floats: type of Python's own floats, Keras's ``floatx``.
        collate: list of samples -> batch; None: samples are stacked leaf by leaf.
        seeding: the random state under which samples are loaded.
        where: the data set's name in error messages.
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
            with suppress(UsageError):  # samples for a user's collate function may have any form
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
    """``size`` units of ``inner`` as one unit: for a test set whose units are smaller than the training set's."""

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
    """The rows of ``inner`` as units: for a test set of whole batches if the training set's units are samples."""

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
        """Load an item. Neighbouring rows are asked for one after the other, so the newest item is kept."""
        if self._held is None or self._held[:2] != (epoch, item):
            batch = self._inner.batch(epoch, [item])
            found = nested.rows(batch, self._where)
            expected = min(self._size, self.units - item * self._size)
            if found != expected:
                raise UsageError(f"{self._where}: item {item} has {found} rows, takes {expected}, as item 0 has")
            self._held = (epoch, item, batch)
        return self._held[2]


def as_sample(value: Any, floats: str, where: str) -> Nested:
    """A sample or a batch of the user's code as NumPy arrays: (x, y) or (x, y, sample weight).

    Raises:
        UsageError: ``value`` has another form.
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
    """The random state under which units of one data set are loaded.

    The state follows from (seed, epoch, index) alone. Python's and NumPy's global generators are seeded for each unit,
    which is cheap. Seeding TensorFlow empties its cache of kernels, so that the next training step takes milliseconds
    longer. TensorFlow is therefore seeded only when the data set first draws from its generator.

    Args:
        seed: the training's seed.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.always = False
        """Seed TensorFlow for every unit, even if no draw has been noticed."""
        self.with_ops = True
        """Whether ops of TensorFlow may run here; False in loader processes."""

    def seed_of(self, epoch: int, index: int) -> int:
        """The seed of a unit, a number of 63 bits."""
        return sample_seed(self._seed, epoch, index)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """A context for loading. Afterwards TensorFlow's generator continues as if nothing had been loaded."""
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
        """Set the random state for a unit. Call this inside ``loading``, before the unit is loaded."""
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
    """Replaces the generator that gives eager ops their seeds. The first draw seeds TensorFlow."""

    def __init__(self, context: Any, seed: int) -> None:
        self._context, self._seed = context, seed

    def randint(self, low: int, high: int) -> int:
        tf.random.set_seed(self._seed)  # this replaces ``self`` by TensorFlow's own generator
        number: int = self._context._rng.randint(low, high)
        return number


def _context() -> Any:
    """TensorFlow's eager context, or None if it has another structure than expected.

    Its seed and the generator of its ops' seeds are private. There is no public way to notice that an op has drawn.
    """
    from tensorflow.python.eager import context

    found = context.context()
    if getattr(found, "_seed", 0) is None:  # TensorFlow has not been seeded yet
        return found
    return found if isinstance(getattr(found, "_rng", None), random.Random | _Seeds) else None
