"""What the engine asks of a framework and of the network. Room: runners; protocols only.

A *leaf* is the contribution of one logical worker to one reduction: a flat vector of numbers that belongs to
the plane and is filled by the adapter. A *vector* is the sum of all leaves. Both are opaque here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edt_runner.engine.schedule import TickKind
from edt_runner.engine.tree import ReductionPlan, Span

Leaf = Any
Vector = Any
Batch = Any


@dataclass(frozen=True)
class State:
    """All that a training is at a tick boundary, by reference: nothing is copied until it is written or sent.

    Args:
        meta: plain JSON: optimizer hyperparameters and whatever is no tensor.
        tensors: name -> tensor of the data plane, in a fixed order.
        names: what a user calls a tensor, where its name does not say.
    """

    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchRequest:
    """One micro-batch to load."""

    kind: TickKind
    epoch: int
    indices: npt.NDArray[np.int64]


class Adapter(Protocol):
    """One framework's model, optimizer, loss and metrics behind flat vectors."""

    width: int
    """Numbers that ``sums`` returns."""

    def size(self, kind: TickKind) -> int:
        """Numbers in a leaf of this kind of tick."""

    def warm_up(self, batch: Batch) -> None:
        """One forward and backward pass whose result is thrown away."""

    def micro_batch(self, batch: Batch, count: int, total: int, seed: int, leaf: Leaf) -> None:
        """Forward and backward on ``count`` samples; write gradients and buffers weighted count / total, and
        sums weighted by count. Starts from the committed buffers, under ``seed``."""

    def evaluate(self, batch: Batch, count: int, seed: int, leaf: Leaf) -> None:
        """Forward in eval mode; write loss and metric sums weighted by ``count``."""

    def apply(self, vector: Vector) -> bool:
        """Commit a training tick: buffers and one optimizer step from the reduced vector. False: the optimizer has
        written into the vector, so it is no longer what others should apply."""

    def sums(self, kind: TickKind, numbers: Leaf | Vector) -> list[float]:
        """Of a leaf or a vector: the samples counted, the loss summed over them, and whatever the metrics are made
        of. All of them add up over micro-batches, steps and engines."""

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        """{"loss": …, metric: …} out of sums."""

    def details(self) -> dict[str, float]:
        """What there is to say of the last committed training tick beside loss and metrics, by name: its batch and its
        learning rate, for example."""

    def export_state(self) -> State:
        """The state, by reference. Called between two ticks by the thread that trains; what it returns stays what it is
        until the next ``apply``, also while passes are computed."""

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tensors to write a received state into, by name. ``shapes``: as ``Plane`` sends them."""

    def end_import(self) -> None:
        """All tensors are filled: make them the state."""

    def digest(self) -> str:
        """SHA-256 over parameters, buffers and optimizer state, hexadecimal."""

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the model and the optimizer state in the framework's own format, as WMLA names them."""

    def recommit(self) -> None:
        """User code has had the model between two ticks: whatever it left there is the state."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that ended the exactness guarantee since the last call."""


class Sums(Protocol):
    """What one engine has summed of the leaves of one tick. Outlives the group that it was begun with, so that after
    a crash only what was lost is computed again."""

    def workers(self) -> tuple[int, ...]:
        """Logical workers whose leaves are in it, ascending, as far as they can be used in another group."""

    def spans(self) -> tuple[Span, ...]:
        """The subtrees they form."""

    def restrict(self, run: Sequence[int]) -> None:
        """Forget every subtree that is not wholly of ``run``."""

    def vectors(self) -> list[Vector]:
        """All that is in it, each of the tick's length."""


class Group(Protocol):
    """The engines of one generation, connected. Everything may raise PeerLost; then the group is of no more use."""

    rank: int
    size: int

    def begin(self, length: int, *, exact: bool, kept: Any = None) -> Sums:
        """Begin a tick's sums, with what is ``kept`` of a try that failed: all three take the plane's own ``Sums``.
        Exact: the canonical tree of a plan."""

    def gather(self, plan: ReductionPlan, sums: Any, fill: Callable[[int, Leaf], None]) -> None:
        """Call ``fill(worker, leaf)`` for each own logical worker that is not kept, in order, and sum."""

    def combine(self, plan: ReductionPlan, sums: Any, announce: Callable[[], int]) -> tuple[Vector, int]:
        """Sum over all ranks; returns the sum and what all ranks announced alike (0: they differ).

        ``announce()`` is called as late as possible. The sum stays valid until the next one of this length has been
        returned; ``sums`` is used up then, and is whole as long as this has not returned.
        """

    def give(self, vector: Vector, to: Sequence[int]) -> None:
        """Send a reduced vector to those who lack it."""

    def take(self, length: int, donor: int) -> Vector:
        """The opposite."""

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

    @property
    def addresses(self) -> tuple[str, ...]:
        """``host:port`` at which others connect to this engine."""

    door: str
    """``host:port`` at which others may knock, to see whether they reach this engine."""

    def build(self, store: str, key: str, rank: int, size: int) -> Group:
        """Connect with the ``size`` - 1 others that build the same ``key``. Raises PeerLost after a while."""

    def solo(self) -> Group:
        """A group of one."""

    def shut(self, peers: Collection[str]) -> None:
        """Break every connection of every group, so that whatever waits on one raises PeerLost at once. ``peers``:
        addresses of the others' planes and of the store. Called by another thread than the one that waits."""

    def renew(self) -> None:
        """Take new addresses: what is built from now on shares nothing with what was shut, of which a peer may still
        hold an address."""

    def reaches(self, door: str) -> bool:
        """Whether another engine can be connected to at all."""


class Loader(Protocol):
    """Micro-batches, loaded ahead where it can."""

    def restart(self, requests: Iterator[BatchRequest]) -> None:
        """Forget what was asked for; load these, in order."""

    def next(self) -> Batch: ...

    def close(self) -> None: ...
