"""One update of the weights: what a learning-rate rule may use, and what it answers.

A rule may use the noise of the gradients, which is measured from the micro-batches of each update. Micro-batch i of an
update has n_i of its n samples and the mean gradient g_i over them; w_i = n_i / n. With G the true gradient and Sigma
the covariance of one sample's gradient, E|g_i|^2 = |G|^2 + tr Sigma / n_i and E|sum w_i g_i|^2 = |G|^2 + tr Sigma / n.
So for m micro-batches, even of different sizes, the estimates

    tr Sigma = n / (m - 1) * (sum w_i |g_i|^2 - |sum w_i g_i|^2),        |G|^2 = |sum w_i g_i|^2 - tr Sigma / n

are unbiased (for micro-batches of equal size: arXiv 2007.05105, appendix B.3; arXiv 1812.06162, appendix A.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DETAILS = ("batch", "learning_rate", "gradient_noise_scale", "gain", "scale_invariant_iterations")
"""Values of an update that logs and pages show beside loss and metrics, as far as they are known: its samples, the
learning rate of the first parameter group, the noise scale in samples, and two values of AdaScale."""
STEP_DETAILS = (*DETAILS, "grad_norm", "loss_scale", "skipped_steps")
"""All values beside loss and metrics: also the norm of the reduced gradient before it is clipped, the scale of the loss
in half precision, and the steps that were left out because they were not finite."""


@dataclass(frozen=True)
class Update:
    """The update that is about to be made.

    Args:
        batch: samples of the update, over all engines.
        reference: samples of the batch that the learning rate was chosen for.
        micro_batch: samples of a full micro-batch.
        index: updates before this one.
        samples: samples trained on before this update, over all epochs.
        epoch_samples: samples of one epoch.
    """

    batch: int
    reference: int
    micro_batch: int
    index: int
    samples: int
    epoch_samples: int

    @property
    def scale(self) -> float:
        """The papers' k: how many reference batches the update has."""
        return self.batch / self.reference

    @property
    def micro_batches(self) -> float:
        """AdaScale's S: how many full micro-batches the update has. Not a whole number if some were not full."""
        return self.batch / self.micro_batch


@dataclass(frozen=True)
class Scaling:
    """How the optimizer takes one step.

    Args:
        lr: factor on the learning rate of every parameter group.
        beta: 1 - beta_i becomes beta x (1 - beta_i), at most 1, for each beta_i of a moving average.
        eps: factor on epsilon.
        groups: factors by parameter group, used in place of ``lr`` if statistics were taken by group; empty: ``lr``.
        velocity: factor on velocities that hold lr x gradient: this update's ``lr`` over the last one's. Not set by a
            rule, but by the code that applies the rule. Optimizers such as PyTorch's do not need it.
    """

    lr: float = 1.0
    beta: float = 1.0
    eps: float = 1.0
    groups: tuple[float, ...] = ()
    velocity: float = 1.0

    def of(self, group: int) -> float:
        """The factor on the learning rate of parameter group number ``group``."""
        return self.groups[group] if self.groups else self.lr

    def betas(self, beta: float) -> float:
        """The new value of a ``beta`` of a moving average."""
        return beta if self.beta == 1.0 else max(0.0, 1.0 - self.beta * (1.0 - beta))


Array = NDArray[np.float64]

_HORIZON = 1000
"""How many micro-batches the running averages cover."""
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Norms:
    """Squared norms of the gradients of one update: one per parameter group, or a single one for all groups together.

    Args:
        count: m, the number of micro-batches that had samples.
        samples: n, the number of their samples.
        mean_square: sum_i w_i |g_i|^2.
        square_mean: |sum_i w_i g_i|^2.
    """

    count: int
    samples: int
    mean_square: Array
    square_mean: Array

    @property
    def noise(self) -> Array:
        """tr Sigma of one sample, unbiased. Needs two micro-batches."""
        return self.samples / (self.count - 1) * (self.mean_square - self.square_mean)

    @property
    def signal(self) -> Array:
        """|G|^2, unbiased, so sometimes below 0. Needs two micro-batches."""
        return self.square_mean - self.noise / self.samples


class Moments:
    """Running estimates of the variance of a micro-batch's gradient and of the squared norm of the true gradient.

    These are exponential averages with theta = max(0, 1 - m / 1000), divided by the sum of their weights, so that the
    first update counts in full. An update of one micro-batch contains no information about the variance and is left
    out.

    Args:
        micro_batch: samples of a full micro-batch; ``variance`` is that of its gradient.
        compat: use the averages of ETH's library instead. They begin at variance 0 and square 1 with all the weight,
            and each update's estimates are clipped. If m changes, the variance is multiplied by the old m over the
            new m, although the variance of a micro-batch does not depend on m. The gain then stays near 1 for hundreds
            of updates.
    """

    def __init__(self, micro_batch: int, *, compat: bool = False) -> None:
        self.micro_batch = micro_batch
        self.compat = compat
        self._noise: Array = np.zeros(1)
        self._signal: Array = np.ones(1) if compat else np.zeros(1)
        self._weight = 1.0 if compat else 0.0
        self._count = 0
        """Micro-batches of the last update that was measured."""

    def add(self, norms: Norms) -> None:
        """Add one update's norms."""
        if norms.count < 2:
            return
        noise, signal = norms.noise, norms.signal
        if self.compat:
            noise = np.maximum(noise, _LEAST_VARIANCE * self.micro_batch)
            signal = np.maximum(signal, 0.0)
            if self._count:
                self._noise = self._noise * (self._count / norms.count)
        theta = max(0.0, 1 - norms.count / _HORIZON)
        self._noise = theta * self._noise + (1 - theta) * noise
        self._signal = theta * self._signal + (1 - theta) * signal
        self._weight = theta * self._weight + (1 - theta)
        self._count = norms.count

    @property
    def known(self) -> bool:
        """Whether any update has been measured."""
        return self._count > 0

    @property
    def variance(self) -> Array:
        """Trace of the covariance of a full micro-batch's gradient, at least 1e-6 (at least 0 with ``compat``)."""
        least = 0.0 if self.compat else _LEAST_VARIANCE
        return np.maximum(self._noise / self._divisor / self.micro_batch, least)

    @property
    def square(self) -> Array:
        """|G|^2, at least 0."""
        return np.maximum(self._signal / self._divisor, 0.0)

    def gain(self, scale: float) -> Array:
        """How many steps at one micro-batch a step of ``scale`` micro-batches is worth: AdaScale's gain.

        The gain is (variance + square) / (variance / scale + square), from 1 to ``scale``; 1 before any measurement.
        """
        if not self.known:
            return np.ones_like(self._noise)
        variance, square = self.variance, self.square
        low, high = min(1.0, scale), max(1.0, scale)
        return np.clip((variance + square) / (variance / scale + square), low, high)

    @property
    def noise_scale(self) -> float:
        """B_simple = tr Sigma / |G|^2 in samples, for all groups together (arXiv 1812.06162).

        A batch larger than this gains little. NaN before any measurement; infinite if the gradient cannot be
        distinguished from the noise.
        """
        if not self.known:
            return float("nan")
        noise, signal = float(np.sum(self._noise)), float(np.sum(self._signal))
        return max(0.0, noise) / signal if signal > 0 else float("inf")

    def to_json_object(self) -> dict[str, Any]:
        return {
            "noise": self._noise.tolist(),
            "signal": self._signal.tolist(),
            "weight": self._weight,
            "count": self._count,
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Continue from what ``to_json_object`` has returned."""
        self._noise = np.asarray(data["noise"], dtype=np.float64)
        self._signal = np.asarray(data["signal"], dtype=np.float64)
        self._weight = float(data["weight"])
        self._count = int(data["count"])

    @property
    def _divisor(self) -> float:
        return self._weight or 1.0
