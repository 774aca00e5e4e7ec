"""Batches as TensorFlow takes them. Room: runners.

A graph is made for the shapes of the first sample, with any number of rows. A batch of other shapes has a graph of its
own, which leaves open what is different; which graph a batch goes through depends on the batch alone, as exactness
asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from edt_runner.errors import UsageError

Graph = TypeVar("Graph")


def tensors(batch: Any, float_type: str) -> Any:
    """``batch`` with tensors in the place of arrays; numbers with a point become ``float_type``, as in ``fit``."""
    if not isinstance(batch, tuple) or not 1 <= len(batch) <= 3:
        raise UsageError(
            f"datasets_function: a batch is a {type(batch).__name__}, takes (x, y) or (x, y, sample_weight)"
        )
    return tf.nest.map_structure(lambda leaf: _tensor(leaf, float_type), batch)


def _tensor(leaf: Any, float_type: str) -> Any:
    if isinstance(leaf, tf.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind == "f" and array.dtype != float_type:
        array = array.astype(float_type)
    return tf.convert_to_tensor(array)


class ByShape(Generic[Graph]):
    """One graph for each way in which batches differ from the first sample.

    Args:
        first: a batch of tensors.
        make: a batch of ``tf.TensorSpec`` -> graph.
    """

    def __init__(self, first: Any, make: Callable[[Any], Graph]) -> None:
        self._make = make
        self._shapes = [tuple(leaf.shape) for leaf in tf.nest.flatten(first)]
        self._made: dict[Any, Graph] = {}
        self.first = self.of(first)

    def of(self, batch: Any) -> Graph:
        """The graph that ``batch`` goes through."""
        leaves = tf.nest.flatten(batch)
        key = tuple((leaf.dtype, self._open(index, leaf)) for index, leaf in enumerate(leaves))
        if len(self._shapes) != len(leaves):
            raise UsageError(
                f"datasets_function: a batch is made of {len(leaves)} arrays, the first sample of {len(self._shapes)}"
            )
        if key not in self._made:
            specs = [tf.TensorSpec(shape, dtype) for dtype, shape in key]
            self._made[key] = self._make(tf.nest.pack_sequence_as(batch, specs))
        return self._made[key]

    def _open(self, index: int, leaf: Any) -> tuple[int | None, ...]:
        """Its shape, with None for the rows and for what is different in the first sample."""
        shape = tuple(leaf.shape)
        first = self._shapes[index] if index < len(self._shapes) else ()
        if len(first) != len(shape):
            return (None,) * len(shape)
        return (None, *(size if size == was else None for size, was in zip(shape[1:], first[1:], strict=True)))
