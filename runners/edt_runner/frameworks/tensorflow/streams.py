"""Data sets of ``tf.data``: read once into memory, because an engine must reach any sample by itself.

What is read are samples, in the order in which the data set gives them. If its elements are batches, as ``fit`` takes
them, they are taken apart. So ``batch_size`` of ``train()`` says how samples are put together, and the engine deals
them in a new order each epoch; the data set's own ``shuffle`` and ``map`` have run once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from edt_runner.errors import UsageError
from edt_runner.frameworks.flat import checksum
from edt_runner.frameworks.tensorflow import nested
from edt_runner.frameworks.tensorflow.nested import Nested
from edt_runner.frameworks.tensorflow.sources import as_sample

MOST_BYTES = 1 << 30
"""The largest data set that is read. Each engine of a node keeps a copy."""
ADVICE = """. These lines make one of it:
    class Samples:
        def __len__(self): return N
        def __getitem__(self, i): return x, y   # sample i, read with NumPy
or, if all samples fit in memory: samples = list(stream)"""


@dataclass(frozen=True)
class Read:
    """What was read from a data set.

    Args:
        samples: (x, y) or (x, y, sample weight) as arrays, with one row for each sample; or a list of samples, if they
            have different shapes.
        note: a sentence for the user.
        checksum: of all samples in their order, as hexadecimal digits.
    """

    samples: Any
    note: str
    checksum: str


def read(dataset: Any, floats: str, where: str, input_rank: int | None) -> Read:
    """Read a whole data set.

    Args:
        dataset: the ``tf.data.Dataset``.
        floats: type of Python's own floats, Keras's ``floatx``.
        where: the data set's name in errors and notes.
        input_rank: number of dimensions of a batch of each of the model's inputs; None: not known.

    Raises:
        UsageError: the data set has no end, no known end, or too many bytes; or its elements may be both samples and
            batches.
    """
    elements = int(dataset.cardinality())
    takes = f"takes one of known length and of at most {MOST_BYTES >> 20} MiB, which is read once"
    if elements == tf.data.INFINITE_CARDINALITY:
        raise UsageError(f"{where}: got a tf.data.Dataset without an end, {takes}; leave its repeat() out{ADVICE}")
    if elements == tf.data.UNKNOWN_CARDINALITY:
        raise UsageError(
            f"{where}: got a tf.data.Dataset of unknown length, {takes}; dataset.apply("
            f"tf.data.experimental.assert_cardinality(N)) says how many elements it has{ADVICE}"
        )
    batched = _is_batched(dataset.element_spec, where, input_rank)
    found: list[Nested] = []
    size = samples = 0
    for index, element in enumerate(dataset.as_numpy_iterator()):
        part = as_sample(element, floats, f"{where}: element {index}")
        size += sum(leaf.nbytes for leaf in tf.nest.flatten(part))
        if max(size, (size // (index + 1)) * (elements - 1)) > MOST_BYTES:
            raise UsageError(f"{where}: got a tf.data.Dataset of more than {MOST_BYTES >> 20} MiB, {takes}{ADVICE}")
        samples += nested.rows(part, f"{where}: element {index}") if batched else 1
        found.append(part)
    apart = f" Its {elements} batches were taken apart: batch_size of train() makes others." if batched else ""
    note = (
        f"{where} is a tf.data.Dataset, of which {elements} elements ({samples} samples, {size / (1 << 20):.1f} MiB) "
        f"were read into memory.{apart} What its own shuffle and map do was done once; samples are dealt anew each "
        "epoch"
    )
    return Read(_together(found, where, batched=batched), note, _checksum(found))


def _is_batched(spec: Any, where: str, input_rank: int | None) -> bool:
    """Whether elements are batches: their rank is that of a batch of the model's input. If that is not known, all
    arrays of a batch have the same number of rows, and an open one unless it is the same by chance."""
    leaves = [leaf for leaf in tf.nest.flatten(spec) if leaf is not None]
    if not all(isinstance(leaf, tf.TensorSpec) for leaf in leaves):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves}))
        raise UsageError(f"{where}: got a tf.data.Dataset of {kinds}, takes one of dense tensors (to_tensor, to_dense)")
    ranks = [leaf.shape.rank for leaf in leaves]
    if input_rank is not None and ranks[0] in (input_rank, input_rank - 1):
        return bool(ranks[0] == input_rank)
    if None in ranks or 0 in ranks:
        return False  # a label alone is a sample's
    first = {leaf.shape[0] for leaf in leaves}
    if len(first) > 1:
        return False
    if first == {None}:
        return True
    raise UsageError(
        f"{where}: got a tf.data.Dataset whose elements may be samples or batches (all arrays have {first.pop()} "
        "rows), takes one of samples (dataset.unbatch()), or a model that is built, so that its input is known"
    )


def _together(parts: list[Nested], where: str, *, batched: bool) -> Any:
    """All samples as arrays; as a list if they have different shapes, for a collate function that pads them."""
    if not parts:
        return []
    try:
        return nested.concatenate(parts, where) if batched else nested.stack(parts, where)
    except UsageError:
        if not batched:
            return parts
    return [nested.take(part, row) for part in parts for row in range(nested.rows(part, where))]


def _checksum(parts: list[Nested]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        for leaf in map(np.asarray, tf.nest.flatten(part)):
            words = repr(leaf.tolist()).encode() if leaf.dtype.hasobject else np.ascontiguousarray(leaf).tobytes()
            digest.update(words if len(words) < 1 << 16 else checksum(np.frombuffer(words, np.uint8)).encode())
    return digest.hexdigest()
