"""Keras sequences: data sets whose item is a whole batch, as IBM's older samples return them.

An item is a unit. The engine itself shuffles the units anew each epoch, so a sequence's own shuffling is off: an image
iterator (``ImageDataGenerator.flow`` and its kin) that would shuffle has its *rows* shuffled anew by the engine, as a
function of (seed, epoch), and a sequence with an ``on_epoch_end`` of its own is called at every epoch's end under a
seed that follows from the epoch. What an item's loading draws from Python's, NumPy's and TensorFlow's global generators
follows from (seed, epoch, index), as for any other unit.
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
"""Bytes of a sequence that is copied, so that an engine may go back to an epoch."""
_BEGINS, _ENDS = -1, -2
"""In the place of an index: the seeds under which a sequence's epoch hooks are called."""
_SHUFFLES = -3
"""… and that of its rows' order."""
_EPOCH_HOOKS = ("on_epoch_begin", "on_epoch_end")
_KERAS = ("keras", "tf_keras", "tensorflow", "keras_preprocessing")
_OF_IMAGES = ("_get_batches_of_transformed_samples", "index_array", "total_batches_seen", "n", "seed", "shuffle")
"""What image iterators of Keras 2 and 3 have in common: partly private, but there is no public way to say which rows an
iterator's item holds, nor which number its augmentation is seeded with."""


def is_sequence(dataset: object) -> bool:
    """A Keras ``Sequence`` or ``PyDataset``, or an image iterator of any Keras."""
    return _base_of(dataset) is not None or _is_images(dataset)


class Batches(Source):
    """The items of a Keras sequence, as a ``Source``.

    Args:
        sequence: is changed: its own shuffling is switched off.
        floats: type of Python's own floats, Keras' ``floatx``.
        trains: False: a test set, whose items are the same in every epoch.
        where: the data set's name in errors and notes.
    """

    def __init__(self, sequence: Any, floats: str, seeding: Seeding, where: str, *, trains: bool) -> None:
        self._floats, self._seeding, self._where, self._trains = floats, seeding, where, trains
        self.notes: list[str] = []
        """What a user should know of how it is used."""
        self.units = _length(sequence, where)
        self._note_processes(sequence)
        self._epochs = _Epochs(sequence, self._copy_with_hooks(sequence), seeding)
        self._images = [_Images(images, seeding, trains=trains) for images in _images_in(sequence)]
        self._rows: int | None = None

    def rows(self) -> int:
        if self._rows is None:
            self._rows = nested.rows(self.probe(), self._where)
        return self._rows

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
        """A copy whose epoch hooks can be called; None: it has none, or cannot be copied."""
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
    """A sequence whose epoch hooks are called as ``fit`` would, in every process that loads, in order.

    Each time under a seed that follows from the epoch. Whoever needs an earlier epoch than the one he is at, as after a
    resize between two epochs, begins again.

    Args:
        sequence: stays as it is.
        copied: a copy of it, whose hooks are called; None: none are.
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
        if hasattr(self._copy, name):  # Keras 2 knows no on_epoch_begin
            self._seeding.start(self._epoch, seed_index)
            getattr(self._copy, name)()


class _Images:
    """An image iterator, in whose state nothing is left that depends on what was loaded before."""

    def __init__(self, iterator: Any, seeding: Seeding, *, trains: bool) -> None:
        self._iterator, self._seeding = iterator, seeding
        self._shuffles = trains and bool(iterator.shuffle)
        iterator.shuffle = False
        self._rows, self._epoch = np.arange(iterator.n), TEST

    def prepare(self, epoch: int, index: int) -> None:
        """Before the item ``index`` is loaded."""
        iterator = self._iterator
        if self._shuffles and epoch != self._epoch:
            order = Permutation(iterator.n, key_of(self._seeding.seed_of(epoch, _SHUFFLES)))
            self._rows, self._epoch = order(np.arange(iterator.n)), epoch
        iterator.index_array = self._rows  # each time: it may serve as training and test set
        if iterator.seed is not None:
            # It seeds NumPy by itself, with the sum of the two; two iterators of one seed, as for images and their
            # masks, go on drawing the same.
            seen = self._seeding.seed_of(epoch, index) % ((1 << 32) - int(iterator.seed))
            iterator.total_batches_seen = seen


def _base_of(dataset: object) -> type | None:
    """Keras' own class that it derives from."""
    for base in type(dataset).__mro__:
        if base.__name__ in ("PyDataset", "Sequence") and base.__module__.split(".")[0] in _KERAS:
            return base
    return None


def _is_images(dataset: object) -> bool:
    return all(hasattr(dataset, name) for name in _OF_IMAGES)


def _images_in(sequence: Any) -> Iterator[Any]:
    """The image iterators that it is, or draws from."""
    if _is_images(sequence):
        yield sequence
        return
    for value in vars(sequence).values() if hasattr(sequence, "__dict__") else ():
        several = (
            value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
        )
        yield from (each for each in several if _is_images(each))


def _is_own(sequence: Any, name: str) -> bool:
    """Whether it has a method of its own where Keras' does nothing."""
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
    """About what a copy of it takes."""
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
