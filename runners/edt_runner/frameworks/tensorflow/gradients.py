"""Gradients between TensorFlow's graphs and flat vectors: a large one by itself, small neighbours as one tensor.

A call of a graph, and each view of a tensor's memory, costs some microseconds for each tensor. Copying a large tensor
costs far more. So a pass returns each large gradient as it is, and joins small ones that follow one another in the
flat vector. The optimizer's step takes large gradients as slices of the reduced vector, which share its memory.

On a GPU a pass joins all gradients there, and one copy brings them to the host. TensorFlow's graphs use pinned memory
for that. Flat vectors are in host memory in any case.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from torch import Tensor

from edt_runner.comm.tree_reduction import Sink
from edt_runner.frameworks.tensorflow import FRAMEWORK
from edt_runner.frameworks.tensorflow.variables import aligned, parts_of, sizes_of, to_tensorflow, to_torch

_SMALL = 1 << 14
"""Below so many numbers, a gradient is joined with its neighbours."""


class Run(NamedTuple):
    """Trainable variables that follow one another in the flat vector, whose gradients travel as one tensor."""

    first: int
    """Index of the first variable."""
    last: int
    """Index of the last variable, plus 1."""
    start: int
    """Position of the first number in the flat vector."""
    end: int


def runs_of(sizes: Sequence[int]) -> tuple[Run, ...]:
    """Divide variables into runs, as their gradients leave a pass: on a GPU all together, else as ``parted``.

    Args:
        sizes: how many numbers each variable has.
    """
    return (Run(0, len(sizes), 0, sum(sizes)),) if FRAMEWORK.gpus() else parted(sizes)


def parted(sizes: Sequence[int]) -> tuple[Run, ...]:
    """Divide variables into runs: each large one by itself, and small neighbours together.

    Args:
        sizes: how many numbers each variable has.
    """
    runs: list[Run] = []
    end = 0
    for index, size in enumerate(sizes):
        start, end = end, end + size
        if runs and size < _SMALL and sizes[index - 1] < _SMALL:
            runs[-1] = runs[-1]._replace(last=index + 1, end=end)
        else:
            runs.append(Run(index, index + 1, start, end))
    return tuple(runs)


def joined(gradients: Sequence[Any], sizes: Sequence[int], flat: Callable[[Any], Any]) -> list[Any]:
    """The gradients of each run as one tensor of one dimension, or None if none of its variables has one. In a graph.

    Args:
        gradients: of each trainable variable; None: it has none.
        sizes: how many numbers each variable has.
        flat: gives a tensor of one dimension with the type of flat vectors.
    """
    found: list[Any] = []
    for run in runs_of(sizes):
        parts = gradients[run.first : run.last]
        given = [part for part in parts if part is not None]
        if not given or len(parts) == 1:
            found.append(flat(given[0]) if given else None)
            continue
        pairs = zip(parts, sizes[run.first : run.last], strict=True)
        found.append(tf.concat([flat(tf.zeros([n]) if part is None else part) for part, n in pairs], 0))
    return found


def divided(flat: Any, variables: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    """The gradients of ``variables``, from a flat vector that begins with them. In a graph.

    A slice shares the vector's memory if it begins and ends at multiples of TensorFlow's alignment.

    Args:
        flat: the vector.
        variables: all trainable variables.
        change: is called with the gradients of each run, of one dimension, and returns them as they are to be used.
    """
    found: list[Any] = []
    for run in parted(sizes_of(variables)):
        part = change(tf.slice(flat, [run.start], [run.end - run.start]))
        found += parts_of(part, variables[run.first : run.last])
    return found


def put(sink: Sink, gradients: Iterable[Any], runs: Sequence[Run], present: Sequence[bool], factor: float) -> None:
    """Give the gradients of one pass to a sink, the last ones first, as the sink's buckets need them.

    Args:
        sink: takes them.
        gradients: tensors of TensorFlow, one for each run that has any.
        runs: the runs of trainable variables.
        present: for each run, whether it has any.
        factor: is multiplied first.
    """
    left = list(gradients)
    for run, given in zip(reversed(runs), reversed(present), strict=True):
        if given:
            sink.put(run.start, to_torch(left.pop()), factor)
        else:
            sink.put_zeros(run.start, run.end)


def apply(commit: Callable[..., None], vector: Tensor, numbers: Sequence[Any], written: Sequence[Any]) -> None:
    """Call the graph of an optimizer's step with a TensorFlow tensor that shares a vector's memory.

    TensorFlow shares memory instead of copying it where it can. So an optimizer that keeps a gradient as it is, as
    ``held.assign(gradient)`` does, keeps a part of the vector, which the next step overwrites. Such a variable is given
    memory of its own here.

    Args:
        commit: (the vector, numbers ...) -> None.
        vector: tensor of one dimension in host memory.
        numbers: further arguments of ``commit``.
        written: the ``tf.Variable``s that ``commit`` writes.
    """
    view = aligned(vector).numpy()
    lent = weakref.ref(view)  # TensorFlow holds the view until it has let go of the memory
    commit(tf.experimental.dlpack.from_dlpack(view.__dlpack__()), *numbers)
    begin, end = view.ctypes.data, view.ctypes.data + view.nbytes
    del view
    if lent() is None:
        return
    for variable in written:
        if variable.dtype.is_floating and "GPU" not in variable.device:  # memory of a GPU is never the vector's
            value = to_torch(variable.read_value())
            if begin <= value.data_ptr() < end:
                variable.assign(to_tensorflow(value.clone()))
