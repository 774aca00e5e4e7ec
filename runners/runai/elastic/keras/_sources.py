"""What ``fit`` is given as x, cut so that one item of it is a global batch. Room: runners; Keras.

Arrays are cut by Keras itself, which is told the size. What comes in batches of its own is put together:

    tf.data.Dataset             batches of exactly the global batch, and a smaller last one
    PyDataset                   as many items in a row as hold a global batch, judged by the first item
    generator                   alike; with steps_per_epoch an epoch's last ones are put together by themselves
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from edt_runner.errors import UsageError


def is_arrays(x: Any) -> bool:
    """Whether Keras cuts it into batches itself."""
    return isinstance(x, (list, tuple, dict)) or hasattr(x, "__array__") or isinstance(x, tf.Tensor)


def regrouped(x: Any, batch: int, micro_batch: int, steps_per_epoch: int | None) -> tuple[Any, int | None]:
    """``x``, not arrays, and its ``steps_per_epoch``, in items of ``batch`` samples.

    Args:
        micro_batch: samples of an item of ``x`` that does not say how many it has.
        steps_per_epoch: items of ``x`` in an epoch; None: all that there are.
    """
    if isinstance(x, tf.data.Dataset):
        rows = next((_row_count(item) for item in x.take(1)), micro_batch)
        return _counted(x.rebatch(batch), int(x.cardinality()), rows, batch), _groups(steps_per_epoch, rows, batch)
    if isinstance(x, keras.utils.PyDataset):
        group = -(-batch // _row_count(x[0]))
        return _Grouped(x, group), _groups(steps_per_epoch, 1, group)
    if hasattr(x, "__next__"):
        first = next(x)
        group = -(-batch // _row_count(first))
        together = _together(itertools.chain([first], x), group, steps_per_epoch)
        return together, _groups(steps_per_epoch, 1, group)
    raise UsageError(
        f"x: got {type(x).__name__}, takes arrays, a tf.data.Dataset, a keras.utils.PyDataset or a generator"
    )


def _groups(items: int | None, rows: int, batch: int) -> int | None:
    return None if items is None else -(-int(items) * rows // batch)


def _counted(dataset: Any, items: int, rows: int, batch: int) -> Any:
    """With its length, which is lost where batches are cut anew; it follows if the last of ``items`` cannot matter."""
    least, most = -(-((items - 1) * rows + 1) // batch), -(-items * rows // batch)
    return dataset.apply(tf.data.experimental.assert_cardinality(most)) if items > 0 and least == most else dataset


class _Grouped(keras.utils.PyDataset):  # type: ignore[misc]
    """``inner`` with ``size`` items as one."""

    def __init__(self, inner: Any, size: int) -> None:
        super().__init__(
            workers=inner.workers, use_multiprocessing=inner.use_multiprocessing, max_queue_size=inner.max_queue_size
        )
        self._inner, self._size = inner, size

    @property
    def num_batches(self) -> int | None:
        count = self._inner.num_batches
        return None if count is None else -(-count // self._size)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._inner), self._size)
        return whole + (rest > 0)

    def __getitem__(self, index: int) -> Any:
        start, count = index * self._size, self._inner.num_batches
        stop = start + self._size if count is None else min(start + self._size, count)
        return _joined([self._inner[each] for each in range(start, stop)])

    def on_epoch_begin(self) -> None:
        self._inner.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._inner.on_epoch_end()


def _together(items: Iterator[Any], size: int, of_an_epoch: int | None) -> Iterator[Any]:
    while True:
        left = of_an_epoch
        while left is None or left > 0:
            group = list(itertools.islice(items, size if left is None else min(size, left)))
            if not group:
                return
            yield _joined(group)
            left = None if left is None else left - len(group)


def _joined(items: list[Any]) -> Any:
    return keras.tree.map_structure(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *items)


def _row_count(item: Any) -> int:
    return max(1, len(keras.tree.flatten(item)[0]))
