"""What the engine asks of a framework, and the data they exchange.

A micro-batch contributes one flat vector of local numbers to a step's reduction, which the adapter fills and whose
memory is the data plane's (``comm.process_groups``); the reduced vector is the sum of all of them. The engine looks
into neither (``frameworks.flat`` says how they are laid out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edt_runner.schedule import StepKind

Local = Any
Reduced = Any
Batch = Any


@dataclass(frozen=True)
class State:
    """All that a training is at a step boundary, by reference: nothing is copied until it is written or sent.

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

    kind: StepKind
    epoch: int
    indices: npt.NDArray[np.int64]


class Adapter(Protocol):
    """One framework's model, optimizer, loss and metrics behind flat tensors."""

    width: int
    """Numbers that ``sums`` returns."""

    def size(self, kind: StepKind) -> int:
        """Numbers in a flat vector of this kind of step."""

    def warm_up(self, batch: Batch) -> None:
        """One forward and backward pass whose result is thrown away."""

    def micro_batch(self, batch: Batch, count: int, total: int, seed: int, local: Local) -> None:
        """Forward and backward on one micro-batch of a training step.

        Args:
            batch: what the loader has made of its samples.
            count, total: samples of the micro-batch and of the whole step.
            seed: of all random generators while it is computed.
            local: the flat vector to fill: gradients and buffers weighted count / total, sums weighted by count.
                The pass starts from the committed buffers.
        """

    def evaluate(self, batch: Batch, count: int, seed: int, local: Local) -> None:
        """Forward in eval mode on ``count`` samples; writes loss and metric sums weighted by ``count`` to ``local``."""

    def apply(self, reduced: Reduced) -> bool:
        """Commit a training step: buffers, and one optimizer step, from the reduced vector.

        Returns:
            False if the optimizer has written into ``reduced``, so that others should not apply it.
        """

    def sums(self, kind: StepKind, numbers: Local | Reduced) -> list[float]:
        """The sums of a local or a reduced vector, ``width`` of them: the samples counted, the loss summed over them,
        and whatever the metrics are made of. All of them add up over micro-batches, steps and engines."""

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        """{"loss": …, metric: …} out of sums."""

    def details(self) -> dict[str, float]:
        """What there is to say of the last committed training step beside loss and metrics, by name: its batch and its
        learning rate, for example."""

    def export_state(self) -> State:
        """The state, by reference. Called between two steps by the thread that trains; what it returns stays what it is
        until the next ``apply``, also while passes are computed."""

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tensors to write a received state into, by name. ``shapes``: name -> [dtype, shape], as
        ``GlooGroup.send_state`` and ``GlooGroup.receive_state`` carry them."""

    def end_import(self) -> None:
        """All tensors are filled: make them the state."""

    def digest(self) -> str:
        """SHA-256 over parameters, buffers and optimizer state, hexadecimal."""

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the model and the optimizer state in the framework's own format, as WMLA names them."""

    def recommit(self) -> None:
        """User code has had the model between two steps: whatever it left there is the state."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything that ended the exactness guarantee since the last call."""
