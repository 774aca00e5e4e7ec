"""An adapter whose optimizer takes each step as a learning-rate rule says. Room: runners; torch tensors in host memory.

A leaf of a training tick is two numbers longer: the share of its micro-batch times the squared norm of its gradient,
and a 1 where it had samples. They add up in the reduction with everything else, so that every engine sees the same
statistics of an update, whoever has computed it. What the rule remembers travels in the state: newcomers have it, and
checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from torch import Tensor

from edt_runner.engine.adapter import State
from edt_runner.engine.schedule import TickKind
from edt_runner.errors import StateMismatch, UsageError
from edt_runner.scaling.moments import Moments, Norms
from edt_runner.scaling.rules import Rule
from edt_runner.scaling.scalable import Scalable
from edt_runner.scaling.update import Scaling, Update

_Inner = TypeVar("_Inner", bound=Scalable)
_KEY = "scaling"
_CHUNK = 8192
"""Numbers that are squared at a time: few enough that no BLAS deals them out to threads, whose number would show in the
last bits of the sum."""


class _Scaled:
    """Everything else is the inner adapter's."""

    def __init__(self, inner: Scalable, rule: Rule, *, reference: int, micro_batch: int, epoch_samples: int) -> None:
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

    # ── leaves ────────────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: TickKind) -> int:
        return self._inner.size(kind) + (2 if kind is TickKind.TRAIN else 0)

    def sums(self, kind: TickKind, numbers: Tensor) -> list[float]:
        return self._inner.sums(kind, numbers[:-2] if kind is TickKind.TRAIN else numbers)

    def warm_up(self, batch: Any) -> None:
        with self._inner.rescaled(Scaling()):
            self._inner.warm_up(batch)

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, leaf: Tensor) -> None:
        self._inner.micro_batch(batch, count, total, seed, leaf[:-2])
        share = self._inner.sums(TickKind.TRAIN, leaf[:-2])[0] if self._inner.sums_rows else count / total
        leaf[-2] = _square(leaf[: self._inner.gradient_size]) / share
        leaf[-1] = 1.0

    # ── updates ───────────────────────────────────────────────────────────────────────────────────────────────
    def apply(self, vector: Tensor) -> bool:
        body = vector[:-2]
        batch = round(self._inner.sums(TickKind.TRAIN, body)[0])
        scaling = self._next(vector, batch) if batch else Scaling(self._factor)
        with self._inner.rescaled(scaling) as rates:
            whole = self._inner.apply(body)
        if batch:
            self._tell(batch, scaling, rates)
        return whole

    def _next(self, vector: Tensor, batch: int) -> Scaling:
        """How the coming step is to be taken. One whose gradients are not finite says nothing to the rule: where the
        loss is scaled, the optimizer will skip it."""
        norms = self._norms(vector, batch)
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

    def _norms(self, vector: Tensor, batch: int) -> Norms:
        rows = batch if self._inner.sums_rows else 1
        scale = self._inner.gradient_scale
        return Norms(
            count=round(float(vector[-1])),
            samples=batch,
            mean_square=np.array([float(vector[-2]) / rows / scale**2]),
            square_mean=np.array([_square(vector[: self._inner.gradient_size]) / rows**2 / scale**2]),
        )

    def _tell(self, batch: int, scaling: Scaling, rates: Sequence[float]) -> None:
        self._updates += 1
        self._samples += batch
        self._factor = scaling.lr
        noise = self._moments.noise_scale
        told = {
            "batch": float(batch),
            "learning_rate": rates[0] if rates else math.nan,
            "gradient_noise_scale": noise,
            **self._rule.details(),
        }
        self._details = {name: value for name, value in told.items() if math.isfinite(value)}

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


def scaled(inner: _Inner, rule: Rule, *, reference: int, micro_batch: int, epoch_samples: int) -> _Inner:
    """``inner`` under ``rule``.

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
    return cast(_Inner, made)


def _square(numbers: Tensor) -> float:
    """Of the norm, summed in float64 and always in the same order."""
    flat = numbers.detach().numpy()
    parts = (flat[start : start + _CHUNK].astype(np.float64) for start in range(0, len(flat), _CHUNK))
    return math.fsum(float(np.dot(part, part)) for part in parts)
