"""What the runner needs from a user's model and data sets, whatever their framework; and adapters with a learning-rate
rule (``scaled``).

With a rule, the flat vector of a training step has two more numbers: the squared norm of the micro-batch's gradient
times the micro-batch's share of the step, and a 1 if the micro-batch had samples. The reduction adds them up with
everything else, so every engine sees the same statistics of an update. What the rule remembers is part of the state,
which travels to joining engines and into checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from edt_runner.adapter import Adapter, State
from edt_runner.callbacks.hooks import UserCallback
from edt_runner.checkpoints.user_files import Copy
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import StateMismatch, UsageError
from edt_runner.frameworks import Framework
from edt_runner.frameworks.flat import squared_norm
from edt_runner.frameworks.options import StepOptions
from edt_runner.lr_scaling.rules import Rule
from edt_runner.lr_scaling.update import Moments, Norms, Scaling, Update
from edt_runner.schedule import StepKind

Collate = Callable[[list[Any]], Any]
_PLAIN = StepOptions()


class Samples(Protocol):
    """A training and a test set, from which the engine loads units. A unit has the same value in every process."""

    train_units: int
    """How many units an epoch permutes. A unit is a sample, or a batch if the user's data set gives whole batches."""
    test_units: int
    """How many units the test set has; 0: there is no test set."""

    shuffled: bool = True
    """Whether an epoch may have an order of its own; if not, it has that of the training set, as the user asked."""
    notes: Sequence[str] = ()
    """What a user should know about the use of the data sets. None of these notes ends the exactness guarantee."""

    def units_per_batch(self, batch_size: int) -> int:
        """Units of one micro-batch of ``batch_size`` samples. This may cut the data sets into other units."""
        return batch_size

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Any:
        """Load a micro-batch, in the form that the adapter takes. Each unit is loaded under its own seed.

        Args:
            of_train: take units of the training set; else of the test set.
            epoch: 0-based; it matters if samples are augmented.
            indices: the units, at least one.
        """

    def probe(self) -> Any:
        """The first unit of the training set, which processes compare with each other."""

    def probe_batch(self, units: int) -> Any:
        """A batch for the warm-up, made of the first unit ``units`` times."""

    def enter_loader(self) -> None:
        """Prepare a newly forked loader process."""

    def take_warnings(self) -> list[tuple[str, str]]:
        """(what, why) of everything in the data that ends the exactness guarantee. A later call may return nothing."""
        return []


class EngineAdapter(Adapter, Protocol):
    """An adapter as it is set up outside the engine.

    Its flat vectors are torch tensors of one dimension. Its optimizer can take a step with other
    hyperparameters than its own.
    """

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of flat vectors, local and reduced: float32 or float64."""

    @property
    def vector_device(self) -> torch.device:
        """The device of flat vectors."""

    def placed(self, batch: Any) -> Any:
        """Begin to copy a batch to the model's device, for a later pass. Returns what the pass takes in its place."""

    @property
    def gradient_size(self) -> int:
        """How many numbers of a training step's vector are gradients. They come first in the vector."""

    def gradient_weight(self, sums: Sequence[float]) -> float | None:
        """What gradients in a vector are weighted by, so that a step divides by it: the rows or tokens in ``sums``.

        None: they are weighted by the micro-batch's share of the step.
        """

    @property
    def gradient_scale(self) -> float:
        """The factor on the coming step's gradients in vectors if the loss is scaled; else 1."""

    @property
    def optimizer_name(self) -> str: ...

    @property
    def has_betas(self) -> bool:
        """Whether the optimizer keeps moving averages of its gradients, as Adam and RMSprop do."""

    def absorbs(self, reduced: Tensor) -> bool:
        """Whether ``apply`` itself leaves out this step, whose gradient is not finite, because the loss's scale may be
        too large.

        Args:
            reduced: the step's reduced vector.
        """

    def has_finite_gradient(self, reduced: Tensor) -> bool:
        """Whether all numbers of the gradients in a training step's reduced vector are finite."""

    @property
    def learning_rate(self) -> float | None:
        """The learning rate of the first parameter group; None: it has none."""

    def carried(self) -> Sequence[Any]:
        """Objects beside model and optimizer whose state is part of this adapter's. The order is the same in every
        process."""
        return ()

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        """A context in which ``apply`` takes its step with ``scaling``.

        The context yields the learning rates of that step, by parameter group. At its end the optimizer has its own
        hyperparameters again, even after an error.
        """

    def end_guarantee(self, what: str, why: str) -> None:
        """Note that the result is no longer exact because of ``what``. Each ``what`` is reported once."""


class Trainable(Protocol):
    """A user's model with its loss, optimizer and metrics, after they have been checked."""

    @property
    def framework(self) -> Framework: ...

    @property
    def model(self) -> Any:
        """The model, as a user's callbacks see it."""

    @property
    def optimizer(self) -> Any:
        """The optimizer, as a user's callbacks see it."""

    def parts(self) -> list[Any]:
        """Model, optimizer and those of their parts that a callback may refer to. The order is the same in every
        process."""

    def parameters(self) -> list[list[Any]]:
        """[name, type, shape] of each parameter, in order."""

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        """Wrap the data sets for the engine.

        Args:
            train, test: the data sets that the user gives; ``test`` may be None.
            seed: the training's seed.
            collate: list of samples -> batch; None: the framework's default.

        Raises:
            UsageError: the engine cannot load samples of a data set.
        """

    def adapter(self, samples: Samples, *, on_device: bool, options: StepOptions = _PLAIN) -> EngineAdapter:
        """Wrap the model for the engine.

        Args:
            samples: the data, for models that take their shapes from the data.
            on_device: compute on the process's first GPU, if it sees one; else on the processor.
            options: what the user asks of passes and steps.

        Raises:
            UsageError: the framework or the model cannot do what the options ask.
        """

    def checked_options(self, options: StepOptions) -> StepOptions:
        """Check what ``train()`` was asked for, before anything starts. Returns the options, perhaps completed.

        Raises:
            UsageError: the framework or the model cannot do what the options ask.
        """
        return options

    def epoch_callbacks(self, options: StepOptions) -> Sequence[UserCallback]:
        """Callbacks of the platform that run at ends of epochs before the user's, for example a scheduler's."""
        return ()

    def exporter(self, adapter: EngineAdapter) -> Callable[[], Copy] | None:
        """What ``UserFiles`` calls to copy the contents of the user's files, so that they are written while the
        training goes on. None: the framework can only write the living model.

        Args:
            adapter: an adapter of this model.
        """
        return None

    def finish(self) -> None:
        """Do what the framework's own training loop does to a model after its last step. The driver calls this when it
        has the trained weights."""


# ── learning-rate rules ───────────────────────────────────────────────────────────────────────────────────────────
_KEY = "scaling"


class _Scaled:
    """An adapter that applies a learning-rate rule to an inner adapter. All other methods are the inner adapter's."""

    def __init__(
        self, inner: EngineAdapter, rule: Rule, *, reference: int, micro_batch: int, epoch_samples: int
    ) -> None:
        self._inner, self._rule = inner, rule
        self._reference, self._micro_batch, self._epoch_samples = reference, micro_batch, epoch_samples
        self._moments = Moments(micro_batch)
        self._updates = self._samples = 0
        self._factor = 1.0
        """Factor on the learning rate of the last update."""
        self._details: dict[str, float] = {}
        self._incoming: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    # ── flat vectors ───────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: StepKind) -> int:
        return self._inner.size(kind) + (2 if kind is StepKind.TRAIN else 0)

    def buckets(self, kind: StepKind) -> Sequence[tuple[int, int]]:
        *others, (start, _) = self._inner.buckets(kind)
        return (*others, (start, self.size(kind)))

    def stream(self, batch: Any, count: int, total: int, seed: int, sink: Sink) -> None:
        with sink.whole() as vector:  # the norm of the whole gradient is one of the numbers
            self.micro_batch(batch, count, total, seed, vector)

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        return self._inner.sums(kind, numbers[:-2] if kind is StepKind.TRAIN else numbers)

    def warm_up(self, batch: Any) -> None:
        with self._inner.rescaled(Scaling()):
            self._inner.warm_up(batch)

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self._inner.micro_batch(batch, count, total, seed, local[:-2])
        weight = self._inner.gradient_weight(self._inner.sums(StepKind.TRAIN, local[:-2]))
        share = count / total if weight is None else weight
        local[-2] = squared_norm(local[: self._inner.gradient_size]) / share if share else 0.0
        local[-1] = 1.0

    # ── updates ───────────────────────────────────────────────────────────────────────────────────────────────
    def apply(self, reduced: Tensor) -> bool:
        body = reduced[:-2]
        batch = round(self._inner.sums(StepKind.TRAIN, body)[0])
        scaling = self._next(reduced, batch) if batch else Scaling(self._factor)
        with self._inner.rescaled(scaling) as rates:
            whole = self._inner.apply(body)
        if batch:
            self._note(batch, scaling, rates)
        return whole

    def _next(self, reduced: Tensor, batch: int) -> Scaling:
        """How the optimizer takes the coming step.

        A step whose gradients are not finite is not passed to the rule: the optimizer will skip it if it scales the
        loss.
        """
        norms = self._norms(reduced, batch)
        if not (np.isfinite(norms.mean_square).all() and np.isfinite(norms.square_mean).all()):
            return Scaling(self._factor)
        self._moments.add(norms)
        update = Update(
            batch=batch,
            reference=self._reference,
            micro_batch=self._micro_batch,
            index=self._updates,
            samples=self._samples,
            epoch_samples=self._epoch_samples,
        )
        scaling = self._rule.scaling(update, self._moments)
        velocity = scaling.lr / self._factor if scaling.lr and self._factor and self._updates else 1.0
        return Scaling(scaling.lr, scaling.beta, scaling.eps, scaling.groups, velocity)

    def _norms(self, reduced: Tensor, batch: int) -> Norms:
        weight = self._inner.gradient_weight(self._inner.sums(StepKind.TRAIN, reduced[:-2])) or 1.0
        scale = self._inner.gradient_scale
        return Norms(
            count=round(float(reduced[-1])),
            samples=batch,
            mean_square=np.array([float(reduced[-2]) / weight / scale**2]),
            square_mean=np.array([squared_norm(reduced[: self._inner.gradient_size]) / weight**2 / scale**2]),
        )

    def _note(self, batch: int, scaling: Scaling, rates: Sequence[float]) -> None:
        self._updates += 1
        self._samples += batch
        self._factor = scaling.lr
        details = {
            "batch": float(batch),
            "learning_rate": rates[0] if rates else math.nan,
            "gradient_noise_scale": self._moments.noise_scale,
            **self._rule.details(),
        }
        self._details = {name: value for name, value in details.items() if math.isfinite(value)}

    def details(self) -> dict[str, float]:
        return {**self._inner.details(), **self._details}

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        state = self._inner.export_state()
        own = {
            "updates": self._updates,
            "samples": self._samples,
            "factor": self._factor,
            "moments": self._moments.to_json_object(),
            "rule": self._rule.to_json_object(),
        }
        return replace(state, meta={**state.meta, _KEY: own})

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Any]:
        if _KEY not in meta:
            raise StateMismatch("lr_rule: the training has none, this process has one")
        self._incoming = meta[_KEY]
        return self._inner.begin_import({key: value for key, value in meta.items() if key != _KEY}, shapes)

    def end_import(self) -> None:
        self._inner.end_import()
        own = self._incoming
        self._updates, self._samples, self._factor = int(own["updates"]), int(own["samples"]), float(own["factor"])
        self._moments.load(own["moments"])
        self._rule.load(own["rule"])


def scaled(inner: EngineAdapter, rule: Rule, *, reference: int, micro_batch: int, epoch_samples: int) -> EngineAdapter:
    """An adapter like ``inner`` that takes its steps with the learning rates of ``rule``.

    Args:
        inner: the framework's adapter.
        rule: the learning-rate rule.
        reference: samples of the batch that the learning rate was chosen for.
        micro_batch: samples of a full micro-batch.
        epoch_samples: samples of one epoch.

    Raises:
        UsageError: the rule changes betas, and the optimizer has none.
    """
    if rule.changes_betas and not inner.has_betas:
        raise UsageError(
            f"lr_rule: got {rule.name!r}, which changes an optimizer's betas, with {inner.optimizer_name}, which has "
            "none; takes 'root' with it, whose factor on the learning rate is the same, or an optimizer such as Adam"
        )
    made = _Scaled(inner, rule, reference=reference, micro_batch=micro_batch, epoch_samples=epoch_samples)
    return cast(EngineAdapter, made)
