"""Where units of data come from, and how those of a test set are cut to the size of the training set's. Room: runners.

A unit is what the engine's schedule permutes and counts: one sample, or one item of a Keras sequence, which is a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from edt_runner.errors import UsageError
from edt_runner.tensorflow import nested
from edt_runner.tensorflow.nested import Nested
from edt_runner.tensorflow.seeding import Seeding

TEST = -1
"""The epoch under which test data are loaded: each time the same."""


class Source(Protocol):
    """One data set."""

    units: int
    drawn: bool
    """Whether a user's code runs, which may draw random numbers."""

    def rows(self) -> int:
        """Samples in a unit; the last one may have fewer."""

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        """(x, y) or (x, y, sample weight) of some units."""

    def first(self, times: int) -> Nested:
        """A batch of the first unit, over and over."""

    def probe(self) -> Nested:
        """The first unit by itself."""


class Arrays:
    """All samples in arrays, one row each: nothing is drawn, so nothing is seeded."""

    drawn = False

    def __init__(self, arrays: Nested, where: str) -> None:
        self._arrays = arrays
        self.units = nested.rows(arrays, where)

    def rows(self) -> int:
        return 1

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        return nested.take(self._arrays, np.asarray(indices, dtype=np.int64))

    def first(self, times: int) -> Nested:
        return self.batch(0, [0] * times)

    def probe(self) -> Nested:
        return nested.take(self._arrays, 0)


class Singles:
    """Samples one by one out of ``dataset[index]``.

    Args:
        floats: type of Python's own floats, Keras' ``floatx``.
        collate: list of samples -> batch; None: leaf by leaf.
        where: the data set's name in errors.
    """

    drawn = True

    def __init__(
        self, dataset: Any, floats: str, collate: Callable[[list[Any]], Any] | None, seeding: Seeding, where: str
    ) -> None:
        self._dataset, self._floats, self._collate, self._where = dataset, floats, collate, where
        self._seeding = seeding
        self.units = len(dataset)

    def rows(self) -> int:
        return 1

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


class Grouped:
    """Several units of ``inner`` as one: a test set beside a training set whose units are larger."""

    def __init__(self, inner: Source, size: int) -> None:
        self._inner, self._size = inner, size
        self.drawn = inner.drawn
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


class ByRow:
    """The rows of ``inner`` as units: a test set of whole batches beside a training set of samples."""

    def __init__(self, inner: Source, where: str) -> None:
        self._inner, self._where, self._size = inner, where, inner.rows()
        self.drawn = inner.drawn
        last = nested.rows(inner.batch(TEST, [inner.units - 1]), where)
        self.units = self._size * (inner.units - 1) + last
        self._held: tuple[int, int, Nested] | None = None

    def rows(self) -> int:
        return 1

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        at = np.asarray(indices, dtype=np.int64)
        runs = np.split(at, np.flatnonzero(np.diff(at // self._size)) + 1)
        parts = [nested.take(self._item(epoch, int(run[0]) // self._size), run % self._size) for run in runs]
        return nested.concatenate(parts, self._where)

    def first(self, times: int) -> Nested:
        return self.batch(TEST, [0] * times)

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
