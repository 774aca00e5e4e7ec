"""What the runner asks of a user's model and data sets, whatever their framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from edt_runner.frameworks.framework import Framework
from edt_runner.lr_scaling.adapter import Scalable

Collate = Callable[[list[Any]], Any]


class Samples(Protocol):
    """A training and a test set as the engine draws from them: by unit, whatever the process, always the same."""

    train_units: int
    """What an epoch permutes; a unit is a sample, or a batch where a user's data set gives whole ones."""
    test_units: int
    """0: there is no test set."""

    notes: Sequence[str] = ()
    """What a user should know of how the data sets are used; none of it ends the guarantee."""

    def units_per_batch(self, batch_size: int) -> int:
        """Units of one micro-batch."""
        return batch_size

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Any:
        """A micro-batch as the adapter takes it; each of its samples is loaded under a seed of its own.

        Args:
            of_train: of the training set; else of the test set.
            epoch: 0-based; it matters where samples are augmented.
            indices: units, at least one.
        """

    def probe(self) -> Any:
        """The first training sample, for comparison between processes."""

    def probe_batch(self, units: int) -> Any:
        """The first unit several times over, as a batch to warm up with."""

    def enter_loader(self) -> None:
        """What a freshly forked loader process does first."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything in the data that ends the exactness guarantee, once."""
        return []


class EngineAdapter(Scalable, Protocol):
    """An adapter as it is set up outside the engine. Its flat vectors are torch tensors of one dimension in host
    memory."""

    @property
    def dtype(self) -> torch.dtype:
        """Of flat vectors, local and reduced: float32 or float64."""

    def end_guarantee(self, what: str, why: str) -> None:
        """The result is no longer exact because of ``what``, which is reported once."""


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
        """[name, type, shape] of each parameter, in order."""

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        """The data sets, as the engine draws from them.

        Args:
            train, test: as the user gives them; ``test`` may be None.
            seed: of the training.
            collate: list of samples -> batch; None: the framework's default.

        Raises:
            UsageError: a data set cannot be drawn from.
        """

    def adapter(self, samples: Samples, *, on_device: bool) -> EngineAdapter:
        """The model as the engine computes with it.

        Args:
            samples: for models that take their shapes from the data.
            on_device: on the process's first GPU, if it sees one; else on the processor.
        """

    def finish(self) -> None:
        """In the driver, which has the trained weights now: what the framework's own loop does to a model when it is
        through."""
