"""What a learning-rate rule needs of an adapter. Room: runners; protocols only."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from edt_runner.engine.adapter import Adapter
from edt_runner.scaling.update import Scaling


class Scalable(Adapter, Protocol):
    """An adapter whose optimizer can take a step with other hyperparameters than its own."""

    @property
    def gradient_size(self) -> int:
        """The gradients are the first so many numbers of a training tick's leaf."""

    @property
    def sums_rows(self) -> bool:
        """Gradients in a leaf are weighted by rows, and a step divides by their number; else by shares of the step."""

    @property
    def gradient_scale(self) -> float:
        """Factor on the coming step's gradients in leaves, where the loss is scaled."""

    @property
    def optimizer_name(self) -> str: ...

    @property
    def has_betas(self) -> bool:
        """The optimizer keeps moving averages of its gradients."""

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        """Inside, ``apply`` takes its step with ``scaling``; the context is the learning rates that it takes it with.
        Afterwards, whatever happened, the optimizer's hyperparameters are what they were."""
