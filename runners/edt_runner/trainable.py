"""What the runner asks of a user's model and data sets, whatever their framework. Room: runners; protocols only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from edt_runner.framework import Framework
from edt_runner.scaling.scalable import Scalable

Collate = Callable[[list[Any]], Any]


class Samples(Protocol):
    """A training and a test set as the engine draws from them: by unit, whatever the process, always the same."""

    train_units: int
    """What an epoch permutes; a unit is a sample, or a batch where a user's data set gives whole ones."""
    test_units: int
    """0: there is no test set."""

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know of how the data sets are used; none of it ends the guarantee."""

    def units_per_batch(self, batch_size: int) -> int:
        """Units of one micro-batch."""

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Any:
        """A micro-batch; each of its samples is loaded under a seed of its own."""

    def probe(self) -> Any:
        """The first training sample, for comparison between processes."""

    def probe_batch(self, units: int) -> Any:
        """The first unit several times over, as a batch to warm up with."""

    def enter_loader(self) -> None:
        """What a freshly forked loader process does first."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything in the data that ends the exactness guarantee, once."""


class EngineAdapter(Scalable, Protocol):
    """An adapter as set up outside the engine: what it sums lies in torch tensors in host memory."""

    @property
    def dtype(self) -> torch.dtype:
        """Of leaves and sums."""

    def end_guarantee(self, what: str, why: str) -> None:
        """The result is no longer exact because of ``what``; told once."""


class Trainable(Protocol):
    """A user's model with its loss, optimizer and metrics, checked."""

    @property
    def framework(self) -> Framework: ...

    @property
    def optimizer_name(self) -> str: ...

    @property
    def model(self) -> Any:
        """As a user's callbacks see it."""

    @property
    def optimizer(self) -> Any:
        """As a user's callbacks see it."""

    def parts(self) -> list[Any]:
        """Model, optimizer and whatever of them a callback may refer to, in the same order in every process."""

    def parameters(self) -> list[list[Any]]:
        """[name, type, shape] of each, in order."""

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        """Raises UsageError for data sets that it cannot draw from; ``test`` may be None."""

    def adapter(self, samples: Samples, *, on_device: bool) -> EngineAdapter:
        """``on_device``: on the process's first GPU, if it sees one; else on the processor. ``samples``: for models
        that take their shapes from the data."""

    def finish(self) -> None:
        """In the driver, which has the trained weights now: what the framework's own loop does to a model when it is
        through."""
