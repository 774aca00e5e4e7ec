"""Nested NumPy arrays: the form of samples and batches on TensorFlow's side.

A leaf is an array. Leaves may be nested in dicts, tuples and lists. They keep the form that the user gave them, since
Keras compares it with the form of the model's inputs and outputs. A list of numbers is an array, not a structure. All
leaves of a batch have the same number of rows, one per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edt_runner.errors import UsageError

Nested = Any
"""An array, or a dict, tuple or list of ``Nested``."""
Array = npt.NDArray[Any]

_PLAIN = bool | int | float | complex | str | bytes


def to_numpy(value: Any, floats: str, where: str) -> Nested:
    """``value`` with an array for each leaf.

    Arrays and tensors keep their type. Python's numbers become int64, bool or ``floats``. Strings become objects, as
    TensorFlow takes them.

    Args:
        value: a user's sample or batch.
        floats: type of Python's floats, Keras's ``floatx``.
        where: names the value in error messages.

    Raises:
        UsageError: a leaf is no array, tensor, number or string.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, _PLAIN):
        return _of_python(value, floats)
    if isinstance(value, Mapping):
        return {key: to_numpy(item, floats, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list) and _is_array(value):
        try:
            return _of_python(value, floats)
        except ValueError as error:
            raise UsageError(f"{where}: got lists of different lengths, takes an array") from error
    if isinstance(value, list | tuple):
        items = [to_numpy(item, floats, f"{where}[{place}]") for place, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)  # a tensor of TensorFlow or torch, a pandas column, a PIL image
    raise UsageError(f"{where}: got {described(value)}, takes numbers, arrays, tensors, or dicts and tuples of them")


def stack(samples: Sequence[Nested], where: str) -> Nested:
    """Samples of one form as a batch.

    Raises:
        UsageError: their forms or shapes differ.
    """
    return _together(samples, np.stack, where)


def concatenate(batches: Sequence[Nested], where: str) -> Nested:
    """Batches of one form as one batch. It shares no memory with them, because a sequence may return views of an array
    that it shuffles later.

    Raises:
        UsageError: their forms or shapes differ.
    """
    return _together(batches, np.concatenate, where)


def take(batch: Nested, rows: Any) -> Nested:
    """Some rows of a batch. ``rows`` is an index of an array: a number, a slice or an array of numbers."""
    return tf.nest.map_structure(lambda leaf: leaf[rows], batch)


def rows(batch: Nested, where: str) -> int:
    """How many samples a batch holds.

    Raises:
        UsageError: its leaves have different numbers of rows, or none.
    """
    lengths = lengths_of(batch)
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(f"{where}: got arrays of {lengths} rows, takes as many rows in each, at least one")
    return lengths[0]


def lengths_of(batch: Nested) -> list[int]:
    """The different numbers of rows of a batch's leaves, in ascending order."""
    return sorted({len(leaf) if leaf.ndim else 0 for leaf in tf.nest.flatten(batch)})


def equal(ours: Nested, theirs: Nested) -> bool:
    """Whether two values of one form are equal, bit for bit."""
    pairs = zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and _words(a) == _words(b) for a, b in pairs)


def described(value: Any) -> str:
    """The type of a value, for error messages."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _together(values: Sequence[Nested], join: Callable[[list[Array]], Array], where: str) -> Nested:
    first = values[0]
    form = _form(first)
    for value in values:
        if _form(value) != form:
            raise UsageError(f"{where}: got {form} and {_form(value)} in one data set, takes one form")
    if isinstance(first, dict):
        return {key: _together([value[key] for value in values], join, f"{where}[{key!r}]") for key in first}
    if isinstance(first, list | tuple):
        columns = zip(*values, strict=True)
        return type(first)(_together(column, join, f"{where}[{n}]") for n, column in enumerate(columns))
    try:
        return join(list(values))
    except ValueError as error:
        shapes = sorted({value.shape for value in values})
        raise UsageError(
            f"{where}: got arrays of shapes {', '.join(map(str, shapes[:4]))} in one batch, takes one shape; "
            "pad them, or give fn_batch_collate a function that does"
        ) from error


def _form(value: Nested) -> str:
    if isinstance(value, dict):
        return f"a dict of {', '.join(sorted(map(repr, value)))}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "an array"


def _is_array(value: list[Any]) -> bool:
    """Whether a list, or a list of lists, holds only numbers or strings."""
    return bool(value) and all(_is_number(item) or (isinstance(item, list) and _is_array(item)) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, _PLAIN | np.generic) or (isinstance(value, np.ndarray) and not value.ndim)


def _of_python(value: Any, floats: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return np.asarray(value, dtype=object)
    return array.astype(floats) if array.dtype == np.float64 and not _has_doubles(value) else array


def _has_doubles(value: Any) -> bool:
    """Whether the numbers are doubles because of NumPy's own types, and not only because they are Python floats."""
    if isinstance(value, list):
        return any(map(_has_doubles, value))
    return isinstance(value, np.generic | np.ndarray)


def _words(array: Array) -> Any:
    return array.tolist() if array.dtype.hasobject else array.tobytes()
