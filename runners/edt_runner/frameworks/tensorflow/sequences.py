"""Keras sequences: data sets whose items are whole batches, as in IBM's older samples.

An item is a unit. The engine itself shuffles the units anew each epoch, so a sequence's own shuffling is switched off.
If an image iterator (``ImageDataGenerator.flow`` and similar ones) would shuffle, the engine shuffles its *rows* in
each epoch, as a function of (seed, epoch). Such an iterator gives items of any size, so its items are cut to the
``batch_size`` of ``train()``, whatever its own is. If a sequence has its own ``on_epoch_end``, this is called at the
end of every epoch, under a seed that follows from the epoch. As for any other unit, the random numbers that an item
draws from Python's, NumPy's and TensorFlow's global generators follow from (seed, epoch, index).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow import nested
from edt_runner.frameworks.tensorflow.nested import Nested
from edt_runner.frameworks.tensorflow.sources import TEST, Seeding, Source, as_sample
from edt_runner.seeds import Permutation, key_of

_MOST_KEPT = 256 << 20
"""The largest sequence, in bytes, that is copied. An engine needs a copy to go back to an earlier epoch."""
_BEGINS, _ENDS = -1, -2
"""Used in place of an index, for the seeds of a sequence's epoch hooks."""
_SHUFFLES = -3
"""Used in place of an index, for the seed of the order of an image iterator's rows."""
_EPOCH_HOOKS = ("on_epoch_begin", "on_epoch_end")
_KERAS = ("keras", "tf_keras", "tensorflow", "keras_preprocessing")
_OF_IMAGES = ("_get_batches_of_transformed_samples", "index_array", "total_batches_seen", "n", "seed", "shuffle")
"""Attributes that the image iterators of Keras 2 and 3 have in common. Some are private, because there is no public way
to set which rows an item holds, or the seed of its augmentation."""


def is_sequence(dataset: object) -> bool:
    """Whether the data set is a Keras ``Sequence`` or ``PyDataset``, or an image iterator of any Keras."""
    return _base_of(dataset) is not None or _is_images(dataset)


class Batches(Source):
    """The items of a Keras sequence, as a ``Source``.

    Args:
        sequence: the user's sequence; its own shuffling is switched off.
        floats: type of Python's own floats, Keras's ``floatx``.
        seeding: the random state under which items are loaded.
        where: the data set's name in errors and notes.
        trains: whether it is the training set; the items of a test set are the same in every epoch.

    Raises:
        UsageError: the sequence has no known length.
    """

    def __init__(self, sequence: Any, floats: str, seeding: Seeding, where: str, *, trains: bool) -> None:
        self._floats, self._seeding, self._where, self._trains = floats, seeding, where, trains
        self.notes: list[str] = []
        """Sentences for the user about how the sequence is used."""
        self.units = _length(sequence, where)
        self._note_processes(sequence)
        self._images_alone = sequence if _is_images(sequence) else None
        self._epochs = _Epochs(sequence, self._copy_with_hooks(sequence), seeding)
        self._images = [_Images(images, seeding, trains=trains) for images in _images_in(sequence)]
        self._rows: int | None = None

    def rows(self) -> int:
        if self._rows is None:
            self._rows = nested.rows(self.probe(), self._where)
        return self._rows

    def cut(self, rows: int) -> bool:
        """Give items of ``rows`` rows from now on. Only an image iterator can; returns whether this is one."""
        if self._images_alone is None:
            return False
        self._images_alone.batch_size = rows
        self.units, self._rows = _length(self._images_alone, self._where), None
        return True

    def batch(self, epoch: int, indices: Sequence[int]) -> Nested:
        with self._seeding.loading():
            return nested.concatenate([self._item(epoch, index) for index in indices], f"{self._where}: items")

    def first(self, times: int) -> Nested:
        return nested.concatenate([self.probe()] * times, f"{self._where}: items")

    def probe(self) -> Nested:
        return self.batch(0 if self._trains else TEST, [0])

    def _item(self, epoch: int, index: int) -> Nested:
        sequence = self._epochs.at(max(epoch, 0))
        for images in self._images:
            images.prepare(epoch, index)
        self._seeding.start(epoch, index)
        where = f"{self._where}: item {index}"
        item = as_sample(sequence[index], self._floats, where)
        nested.rows(item, where)
        return item

    def _copy_with_hooks(self, sequence: Any) -> Any:
        """A copy whose epoch hooks can be called; None if the sequence has no hooks or cannot be copied."""
        hooks = [name for name in _EPOCH_HOOKS if _is_own(sequence, name)]
        if not hooks or not self._trains:
            return None
        why = "it holds more than 256 MB, which an engine would keep twice" if _bytes(sequence) > _MOST_KEPT else None
        if why is None:
            try:
                return copy.deepcopy(sequence)
            except Exception as error:  # its own __deepcopy__ may raise anything
                why = f"it cannot be copied ({error})"
        self.notes.append(
            f"{self._where}: {' and '.join(hooks)} of {nested.described(sequence)} is not called, since {why}; "
            "the engine deals its items in a new order each epoch, but what is in an item stays"
        )
        return None

    def _note_processes(self, sequence: Any) -> None:
        workers = getattr(sequence, "_workers", 1)
        if getattr(sequence, "_use_multiprocessing", False) or (isinstance(workers, int) and workers > 1):
            self.notes.append(
                f"{self._where}: workers and use_multiprocessing of {nested.described(sequence)} are not used; "
                "num_dataloader_threads says how many processes load"
            )


class _Epochs:
    """Calls a sequence's epoch hooks in order, as ``fit`` does, in every process that loads.

    Each call is made under a seed that follows from the epoch. If an earlier epoch is needed, as after a resize
    between two epochs, the calls begin again from the first epoch.

    Args:
        sequence: the user's sequence, which is not changed.
        copied: a copy of the sequence, whose hooks are called; None: no hooks are called.
        seeding: the random state under which hooks are called.
    """

    def __init__(self, sequence: Any, copied: Any, seeding: Seeding) -> None:
        self._start, self._copy, self._seeding = sequence, copied, seeding
        self._epoch: int | None = None

    def at(self, epoch: int) -> Any:
        """The sequence in ``epoch``. Its items may only be used until another epoch is asked for."""
        if self._copy is None:
            return self._start
        if self._epoch is not None and epoch < self._epoch:
            self._copy, self._epoch = copy.deepcopy(self._start), None
        if self._epoch is None:
            self._epoch = 0
            self._call_hook("on_epoch_begin", _BEGINS)
        while self._epoch < epoch:
            self._call_hook("on_epoch_end", _ENDS)
            self._epoch += 1
            self._call_hook("on_epoch_begin", _BEGINS)
        return self._copy

    def _call_hook(self, name: str, seed_index: int) -> None:
        assert self._epoch is not None
        if hasattr(self._copy, name):  # Keras 2 has no on_epoch_begin
            self._seeding.start(self._epoch, seed_index)
            getattr(self._copy, name)()


class _Images:
    """An image iterator whose state is set before each item, so that it does not depend on earlier items."""

    def __init__(self, iterator: Any, seeding: Seeding, *, trains: bool) -> None:
        self._iterator, self._seeding = iterator, seeding
        self._shuffles = trains and bool(iterator.shuffle)
        iterator.shuffle = False
        self._rows, self._epoch = np.arange(iterator.n), TEST

    def prepare(self, epoch: int, index: int) -> None:
        """Set the iterator's state before the item ``index`` is loaded."""
        iterator = self._iterator
        if self._shuffles and epoch != self._epoch:
            order = Permutation(iterator.n, key_of(self._seeding.seed_of(epoch, _SHUFFLES)))
            self._rows, self._epoch = order(np.arange(iterator.n)), epoch
        iterator.index_array = self._rows  # set each time, because one iterator may be training and test set
        if iterator.seed is not None:
            # The iterator seeds NumPy with the sum of the two. Two iterators with one seed, as for images and their
            # masks, therefore draw the same numbers.
            seen = self._seeding.seed_of(epoch, index) % ((1 << 32) - int(iterator.seed))
            iterator.total_batches_seen = seen


def _base_of(dataset: object) -> type | None:
    """Keras's own base class of the data set; None if there is none."""
    for base in type(dataset).__mro__:
        if base.__name__ in ("PyDataset", "Sequence") and base.__module__.split(".")[0] in _KERAS:
            return base
    return None


def _is_images(dataset: object) -> bool:
    return all(hasattr(dataset, name) for name in _OF_IMAGES)


def _images_in(sequence: Any) -> Iterator[Any]:
    """The sequence itself if it is an image iterator, or else the image iterators among its attributes."""
    if _is_images(sequence):
        yield sequence
        return
    for value in vars(sequence).values() if hasattr(sequence, "__dict__") else ():
        several = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
        )
        yield from (each for each in several if _is_images(each))


def _is_own(sequence: Any, name: str) -> bool:
    """Whether the sequence overrides a method that does nothing in Keras's own class."""
    kind = type(sequence)
    return not _is_images(sequence) and getattr(kind, name, None) is not getattr(_base_of(sequence), name, None)


def _length(sequence: Any, where: str) -> int:
    length = len(sequence) if hasattr(sequence, "__len__") else sequence.num_batches
    if length is None:
        raise UsageError(
            f"{where}: got {nested.described(sequence)} without an end, takes one whose num_batches is known"
        )
    return int(length)


def _bytes(value: Any, depth: int = 4) -> int:
    """Roughly how many bytes a copy of ``value`` takes."""
    if isinstance(getattr(value, "nbytes", None), int):
        return int(value.nbytes)
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list | tuple | set):
        inner = list(value)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        inner = list(vars(value).values())
    return sys.getsizeof(value) + (sum(_bytes(item, depth - 1) for item in inner) if depth else 0)
