"""What the engine asks of a framework and of the network. Room: runners; protocols only.

A *leaf* is the contribution of one logical worker to one reduction: a flat vector of numbers that belongs to
the plane and is filled by the adapter. A *vector* is the sum of all leaves. Both are opaque here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edt_runner.engine.schedule import TickKind
from edt_runner.engine.tree import ReductionPlan

Leaf = Any
Vector = Any
Batch = Any


@dataclass(frozen=True)
class State:
    """All that a training is at a tick boundary, by reference: nothing is copied until it is written or sent.

    Args:
        meta: plain JSON: optimizer hyperparameters and whatever is no tensor.
        tensors: name -> tensor of the framework, in a fixed order.
    """

    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]


@dataclass(frozen=True)
class BatchRequest:
    """One micro-batch to load."""

    kind: TickKind
    epoch: int
    indices: npt.NDArray[np.int64]


class Adapter(Protocol):
    """One framework's model, optimizer, loss and metrics behind flat vectors."""

    metric_names: tuple[str, ...]
    """Names of the sums after the loss, in their order."""

    def size(self, kind: TickKind) -> int:
        """Numbers in a leaf of this kind of tick."""

    def warm_up(self, batch: Batch) -> None:
        """One forward and backward pass whose result is thrown away."""

    def micro_batch(self, batch: Batch, count: int, total: int, seed: int, leaf: Leaf) -> None:
        """Forward and backward on ``count`` samples; write gradients and buffers weighted count / total, and
        sums weighted by count. Starts from the committed buffers, under ``seed``."""

    def evaluate(self, batch: Batch, count: int, seed: int, leaf: Leaf) -> None:
        """Forward in eval mode; write loss and metric sums weighted by ``count``."""

    def apply(self, vector: Vector) -> None:
        """Commit a training tick: buffers and one optimizer step from the reduced vector."""

    def sums(self, kind: TickKind, numbers: Leaf | Vector) -> list[float]:
        """[count, loss sum, metric sums …] of a leaf or a vector."""

    def export_state(self) -> State: ...

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tensors to write a received state into, by name. ``shapes``: as ``Plane`` sends them."""

    def end_import(self) -> None:
        """All tensors are filled: make them the state."""

    def digest(self) -> str:
        """SHA-256 over parameters, buffers and optimizer state, hexadecimal."""

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the model and the optimizer state in the framework's own format, as WMLA names them."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that ended the exactness guarantee since the last call."""


class Group(Protocol):
    """The engines of one generation, connected."""

    rank: int
    size: int

    def reduce(
        self,
        plan: ReductionPlan,
        length: int,
        fill: Callable[[int, Leaf], None],
        announce: Callable[[], int],
        *,
        exact: bool,
        before_sum: Callable[[], None],
    ) -> tuple[Vector, int]:
        """Sum the leaves of all logical workers; returns the sum and what all ranks announced alike (0: they differ).

        ``fill(worker, leaf)`` is called for each own logical worker, in order; ``announce()`` as late as possible;
        ``before_sum()`` when all own leaves are filled. Exact: the canonical tree of ``plan``.
        """

    def start_sending(
        self, state: State, extra: Mapping[str, Any], donors: Sequence[int], to: Sequence[int]
    ) -> Callable[[], None]:
        """Stream a state whose tensors stand still to ranks ``to``; each of ``donors`` sends its part.
        Returns a function that waits until everything has left."""

    def receive(self, adapter: Adapter, donors: Sequence[int]) -> Mapping[str, Any]:
        """The opposite: fill ``adapter`` and return ``extra``."""

    def close(self) -> None: ...


class Plane(Protocol):
    """The data plane: makes groups."""

    def build(self, store: str, key: str, rank: int, size: int) -> Group:
        """Connect with the ``size`` - 1 others that build the same ``key``. Raises PeerLost after a while."""

    def solo(self) -> Group:
        """A group of one."""


class Loader(Protocol):
    """Micro-batches, loaded ahead where it can."""

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        """Forget what was asked for; load these, in order."""

    def next(self) -> Batch: ...

    def close(self) -> None: ...
