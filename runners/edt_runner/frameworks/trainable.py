"""What the runner asks of a user's model and data sets, whatever their framework; and an adapter whose optimizer takes
each step as a learning-rate rule says (``scaled``).

With a rule the flat vector of a training step is two numbers longer: the share of its micro-batch times the squared
norm of its gradient, and a 1 where it had samples. They add up in the reduction with everything else, so that every
engine sees the same statistics of an update, whoever has computed it. What the rule remembers travels in the state, to
joining engines and into checkpoints.
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
from edt_runner.errors import StateMismatch, UsageError
from edt_runner.frameworks import Framework
from edt_runner.lr_scaling.rules import Rule
from edt_runner.lr_scaling.update import Moments, Norms, Scaling, Update
from edt_runner.schedule import StepKind

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


class EngineAdapter(Adapter, Protocol):
    """An adapter as it is set up outside the engine. Its flat vectors are torch tensors of one dimension in host
    memory, and its optimizer can take a step with other hyperparameters than its own."""

    @property
    def dtype(self) -> torch.dtype:
        """Of flat vectors, local and reduced: float32 or float64."""

    @property
    def gradient_size(self) -> int:
        """How many numbers of a training step's vector are gradients; they are its first."""

    @property
    def sums_rows(self) -> bool:
        """Gradients in vectors are weighted by rows, and a step divides by their number; else by shares of the step."""

    @property
    def gradient_scale(self) -> float:
        """Factor on the coming step's gradients in vectors, where the loss is scaled; else 1."""

    @property
    def optimizer_name(self) -> str: ...

    @property
    def has_betas(self) -> bool:
        """Whether the optimizer keeps moving averages of its gradients, as Adam and RMSprop do."""

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        """Inside the context ``apply`` takes its step with ``scaling``; it yields the learning rates of that step, by
        parameter group. Afterwards, whatever happened, the optimizer's hyperparameters are what they were."""

    def end_guarantee(self, what: str, why: str) -> None:
        """The result is no longer exact because of ``what``, which is reported once."""


class Trainable(Protocol):
    """A user's model with its loss, optimizer and metrics, checked."""

    @property
    def framework(self) -> Framework: ...

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


# ── learning-rate rules ───────────────────────────────────────────────────────────────────────────────────────────
_KEY = "scaling"
_CHUNK = 8192
"""Numbers that are squared at a time: few enough that no BLAS divides them among threads, whose number would show in
the last bits of the sum."""


class _Scaled:
    """The inner adapter with a rule. What is not here is the inner adapter's."""

    def __init__(
        self, inner: EngineAdapter, rule: Rule, *, reference: int, micro_batch: int, epoch_samples: int
    ) -> None:
        self._inner, self._rule = inner, rule
        self._reference, self._micro_batch, self._epoch_samples = reference, micro_batch, epoch_samples
        self._moments = Moments(micro_batch)
        self._updates = self._samples = 0
        self._factor = 1.0
        """On the learning rate of the last update."""
        self._details: dict[str, float] = {}
        self._incoming: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    # ── flat vectors ───────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: StepKind) -> int:
        return self._inner.size(kind) + (2 if kind is StepKind.TRAIN else 0)

    def sums(self, kind: StepKind, numbers: Tensor) -> list[float]:
        return self._inner.sums(kind, numbers[:-2] if kind is StepKind.TRAIN else numbers)

    def warm_up(self, batch: Any) -> None:
        with self._inner.rescaled(Scaling()):
            self._inner.warm_up(batch)

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self._inner.micro_batch(batch, count, total, seed, local[:-2])
        share = self._inner.sums(StepKind.TRAIN, local[:-2])[0] if self._inner.sums_rows else count / total
        local[-2] = _squared_norm(local[: self._inner.gradient_size]) / share
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
        """How the coming step is to be taken. The rule does not see one whose gradients are not finite: where the loss
        is scaled, the optimizer will skip it."""
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
        rows = batch if self._inner.sums_rows else 1
        scale = self._inner.gradient_scale
        return Norms(
            count=round(float(reduced[-1])),
            samples=batch,
            mean_square=np.array([float(reduced[-2]) / rows / scale**2]),
            square_mean=np.array([_squared_norm(reduced[: self._inner.gradient_size]) / rows**2 / scale**2]),
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
        return dict(self._details)

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
    """``inner``, whose steps are taken as ``rule`` says.

    Args:
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


def _squared_norm(numbers: Tensor) -> float:
    """The squared L2 norm of a vector in host memory, summed in float64 and always in the same order."""
    flat = numbers.detach().numpy()
    parts = (flat[start : start + _CHUNK].astype(np.float64) for start in range(0, len(flat), _CHUNK))
    return math.fsum(float(np.dot(part, part)) for part in parts)
