"""Nested NumPy: what a sample or a batch of TensorFlow's side is made of.

A leaf is an array; dicts, tuples and lists of leaves, nested, keep the form that the user gave them, since Keras
compares it with that of the model's inputs and outputs. A list of numbers is no structure but an array. A batch's
leaves have one row a sample, and as many as each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from edt_runner.errors import UsageError

Nested = Any
"""An array, or a dict, tuple or list of nested."""
Array = npt.NDArray[Any]

_PLAIN = bool | int | float | complex | str | bytes


def to_numpy(value: Any, floats: str, where: str) -> Nested:
    """``value`` with an array for each leaf.

    Arrays and tensors keep their type. Python's numbers become int64, bool and ``floats`` (Keras' ``floatx``), words
    become objects, as TensorFlow takes them. ``where`` names the value in errors.

    Raises:
        UsageError: a leaf is no array, tensor, number or word.
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
    """Samples of one form as a batch."""
    return _together(samples, np.stack, where)


def concatenate(batches: Sequence[Nested], where: str) -> Nested:
    """Batches of one form as one, which shares no memory with them: a sequence may give views of what it shuffles."""
    return _together(batches, np.concatenate, where)


def take(batch: Nested, rows: Any) -> Nested:
    """Some rows; ``rows`` as an array takes them."""
    return tf.nest.map_structure(lambda leaf: leaf[rows], batch)


def rows(batch: Nested, where: str) -> int:
    """How many samples a batch holds.

    Raises:
        UsageError: its leaves differ.
    """
    lengths = lengths_of(batch)
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(f"{where}: got arrays of {lengths} rows, takes as many rows in each, at least one")
    return lengths[0]


def lengths_of(batch: Nested) -> list[int]:
    """The different numbers of rows of its leaves, ascending."""
    return sorted({len(leaf) if leaf.ndim else 0 for leaf in tf.nest.flatten(batch)})


def equal(ours: Nested, theirs: Nested) -> bool:
    """Whether two values of one form are the same, bit for bit."""
    pairs = zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and _words(a) == _words(b) for a, b in pairs)


def described(value: Any) -> str:
    """A value by its type, for errors."""
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
    """Whether it holds numbers or words only, in lists or not."""
    return bool(value) and all(_is_number(item) or (isinstance(item, list) and _is_array(item)) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, _PLAIN | np.generic) or (isinstance(value, np.ndarray) and not value.ndim)


def _of_python(value: Any, floats: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return np.asarray(value, dtype=object)
    return array.astype(floats) if array.dtype == np.float64 and not _has_doubles(value) else array


def _has_doubles(value: Any) -> bool:
    """Whether NumPy's own, not Python's, make it double."""
    if isinstance(value, list):
        return any(map(_has_doubles, value))
    return isinstance(value, np.generic | np.ndarray)


def _words(array: Array) -> Any:
    return array.tolist() if array.dtype.hasobject else array.tobytes()
