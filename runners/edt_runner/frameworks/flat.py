"""The flat vector that one micro-batch adds to a step's reduction, as the adapters of both frameworks lay it out.

A micro-batch of a training step writes one vector of one dimension, in host memory whatever the device, and the step's
reduction is the sum of the vectors of all its micro-batches. Its sections, in this order:

    section     numbers                            what a micro-batch writes there
    gradients   those of all trained parameters    gradient x the micro-batch's share of the step
    present     one a parameter, or none           1 where the parameter has a gradient
    floats      those of all float state           value after forward x share
    changed     one a tensor of float state        1 where forward has changed it
    integers    those of all integer state         how far forward has moved it
    active      1                                  1; their sum counts the micro-batches that were not empty
    sums        ``width`` of the adapter           samples, loss x samples, then what the metrics are made of

A micro-batch of an evaluation step writes ``sums`` alone. State is what forward changes beside gradients: buffers of
PyTorch, variables of Keras that are not trained. Everything is float32, or float64 where a model has any float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edt_runner.adapter import State
from edt_runner.frameworks.checksums import digest_of
from edt_runner.schedule import StepKind


class Sections(NamedTuple):
    """A flat vector by sections: tensors of one dimension, of torch or of TensorFlow."""

    gradients: Any
    present: Any
    floats: Any
    changed: Any
    integers: Any
    active: Any
    sums: Any


@dataclass(frozen=True)
class FlatLayout:
    """Where everything lies in a training step's vector.

    Args:
        gradients: numbers of each trained parameter.
        present: length of the section of that name.
        floats: numbers of each tensor of float state.
        integers: numbers of each tensor of integer state.
        sums: length of the section of that name.
    """

    gradients: list[int]
    present: int
    floats: list[int]
    integers: list[int]
    sums: int

    @cached_property
    def sizes(self) -> Sections:
        """The length of each section."""
        floats, integers = sum(self.floats), sum(self.integers)
        return Sections(sum(self.gradients), self.present, floats, len(self.floats), integers, 1, self.sums)

    def sections(self, flat: Any, split: Callable[[Any, list[int]], Any] = torch.split) -> Sections:
        """``flat`` by sections: views where ``split`` is torch's; ``tf.split`` copies."""
        return Sections(*split(flat, list(self.sizes)))


def flat_dtype(types: Iterable[str]) -> torch.dtype:
    """The type of flat vectors of a model whose tensors have these ``types``, named as NumPy names them."""
    return torch.float64 if "float64" in types else torch.float32


def type_name(dtype: torch.dtype) -> str:
    """``float32`` of ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


class FlatAdapter:
    """What the adapters of both frameworks share: flat vectors, and an account of what ended the exactness guarantee.

    A subclass sets ``width`` and ``layout``.
    """

    width: int
    """Length of the section ``sums``."""
    layout: FlatLayout

    def __init__(self) -> None:
        self._endings: dict[str, str] = {}
        self._reported = 0

    def size(self, kind: StepKind) -> int:
        """Numbers in a vector of this kind of step."""
        return self.width if kind is StepKind.VALIDATE else sum(self.layout.sizes)

    @property
    def gradient_size(self) -> int:
        """Numbers in the section ``gradients``, the first of a training step's vector."""
        return int(self.layout.sizes.gradients)

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        """The section ``sums`` of a vector, local or reduced."""
        values: list[float] = numbers[-self.width :].tolist()
        return values

    def details(self) -> dict[str, float]:
        return {}

    def export_state(self) -> State:
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 over names, types, shapes and bytes of the state, hexadecimal."""
        return digest_of(self.export_state())

    def end_guarantee(self, what: str, why: str) -> None:
        """The result is no longer exact because of ``what``, for which only the first reason counts."""
        self._endings.setdefault(what, why)

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that ended the guarantee since the last call."""
        news = list(self._endings.items())[self._reported :]
        self._reported = len(self._endings)
        return news
