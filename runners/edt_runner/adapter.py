"""The interface between the engine and a framework, and the data that they exchange.

Each micro-batch adds one flat vector of numbers, its local, to the reduction of a step. The adapter fills the vector;
its memory belongs to the data plane (``comm.group``). The reduced vector is the sum of the locals of all
micro-batches. The engine does not interpret either vector. ``frameworks.flat`` describes their layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edt_runner.schedule import StepKind

Sink = Any
"""A ``comm.tree_reduction.Sink``."""
Local = Any
Reduced = Any
Batch = Any


@dataclass(frozen=True)
class State:
    """The complete state of a training between two steps. It contains references: tensors are copied only when they are
    written or sent.

    Args:
        meta: plain JSON: the optimizer's hyperparameters and everything else that is not a tensor.
        tensors: name -> tensor of the data plane, in a fixed order.
        names: for some tensors, the name by which the user knows the tensor.
        ready: the point of a GPU's stream since which the tensors hold the state (``host_copies.moment``). None:
            they hold it when whoever reads them comes to it.
    """

    meta: Mapping[str, Any]
    tensors: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    ready: Any = None


@dataclass(frozen=True)
class BatchRequest:
    """One micro-batch to load: the kind of its step, the 0-based epoch, and sample indices of shape (samples,)."""

    kind: StepKind
    epoch: int
    indices: npt.NDArray[np.int64]


class Adapter(Protocol):
    """The model, optimizer, loss and metrics of one framework, seen as flat tensors."""

    @property
    def width(self) -> int:
        """How many numbers ``sums`` returns. It is final after ``warm_up``."""

    def size(self, kind: StepKind) -> int:
        """Return how many numbers the flat vector of a step of this kind has."""

    def warm_up(self, batch: Batch) -> None:
        """Run one forward and backward pass and discard its result."""

    def begin_step(self) -> None:
        """Note that a step is about to be tried: memory of earlier vectors will be used again."""

    def micro_batch(self, batch: Batch, count: int, total: int, seed: int, local: Local) -> None:
        """Run the forward and backward pass on one micro-batch of a training step. The pass starts from the committed
        buffers.

        Args:
            batch: the micro-batch, as the loader has made it.
            count, total: number of samples of the micro-batch, and of the whole step.
            seed: seed of all random generators during the pass.
            local: the flat vector of shape (``size``,) to fill. Gradients and buffers are weighted by count / total,
                and sums by count.
        """

    def buckets(self, kind: StepKind) -> Sequence[tuple[int, int]]:
        """Return the pieces (start, end) in which a vector of a step of this kind is reduced, in their order. They are
        the same in every process."""

    def stream(self, batch: Batch, count: int, total: int, seed: int, sink: Sink) -> None:
        """Do what ``micro_batch`` does, and give the vector to ``sink``: in parts while the backward pass runs if the
        framework allows it, else at the end."""

    def evaluate(self, batch: Batch, count: int, seed: int, local: Local) -> None:
        """Run the forward pass in evaluation mode, and write the sums of loss and metrics, weighted by ``count``, to
        ``local``.

        Args:
            batch: the micro-batch, as the loader has made it.
            count: number of its samples.
            seed: seed of all random generators during the pass.
            local: the flat vector of shape (``size``,) to fill.
        """

    def apply(self, reduced: Reduced) -> bool:
        """Commit a training step: set the buffers and make one optimizer step, both from the reduced vector.

        Returns:
            False if the optimizer has written into ``reduced``, so that no other engine may apply it; else True.
        """

    def sums(self, kind: StepKind, numbers: Local | Reduced) -> list[float]:
        """Return the ``width`` sums in a local or a reduced vector.

        The sums are the number of samples, the loss summed over the samples, and the values from which the metrics are
        computed. Sums of several micro-batches, steps or engines can be added.
        """

    def loss(self, sums: Sequence[float]) -> float:
        """Return the loss, computed from sums."""

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        """Return loss and metrics, ``{"loss": …, metric: …}``, computed from sums."""

    def details(self) -> dict[str, float]:
        """Return further values of the last committed training step by name, for example its global batch and its
        learning rate."""

    def export_state(self) -> State:
        """Return the state by reference. The thread that trains calls this between two steps. The returned state does
        not change until the next ``apply``, even while forward and backward passes run."""

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return tensors, by name, into which the caller writes a received state.

        Args:
            meta: the ``meta`` of the state.
            shapes: name -> [dtype, shape], in the form in which ``Group.send_state`` sends them.
        """

    def end_import(self) -> None:
        """Make the tensors of ``begin_import``, which are filled now, the state."""

    def digest(self) -> str:
        """Return the SHA-256 of parameters, buffers and optimizer state, in hexadecimal."""

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the model and the optimizer state to ``folder``, in the framework's own format and with WMLA's file
        names."""

    @property
    def left_out(self) -> bool:
        """Whether the last ``apply`` has left its step out."""

    def is_finite(self) -> bool:
        """Whether all trained parameters are finite numbers."""

    def recommit(self) -> None:
        """Make the current contents of the model the state, because user code may have changed the model between two
        steps."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """Return (cause, explanation) of everything that has ended the guarantee of exactness since the last call."""
