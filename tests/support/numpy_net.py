"""A network of one hidden layer, its mean squared error and SGD with momentum, in float64 NumPy: what others must
equal."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class NumpyNet:
    """outputs = tanh(x A + a) B + b; Keras's order of weights: [A, a, B, b].

    Args:
        weights: at first.
        rate, momentum: of SGD as Keras has it, v = momentum v - rate g, w = w + v.
    """

    def __init__(self, weights: list[Any], rate: float, momentum: float) -> None:
        self.weights: list[Array] = [np.asarray(weight, dtype=np.float64) for weight in weights]
        self._velocities = [np.zeros_like(weight) for weight in self.weights]
        self._rate, self._momentum = rate, momentum
        self.losses: list[float] = []
        """Of each epoch, the mean over its samples at the time of their step."""

    def fit(self, x: Array, y: Array, batch: int, epochs: int) -> NumpyNet:
        """Train on the rows in their order; an epoch's last batch may be smaller."""
        for _ in range(epochs):
            total = 0.0
            for start in range(0, len(x), batch):
                rows = slice(start, start + batch)
                total += self._step(x[rows].astype(np.float64), y[rows].astype(np.float64)) * len(x[rows])
            self.losses.append(total / len(x))
        return self

    def _step(self, x: Array, y: Array) -> float:
        first, bias, second, last = self.weights
        hidden = np.tanh(x @ first + bias)
        error = hidden @ second + last - y
        out = 2 * error / error.size
        inner = out @ second.T * (1 - hidden**2)
        gradients = [x.T @ inner, inner.sum(0), hidden.T @ out, out.sum(0)]
        for index, gradient in enumerate(gradients):
            self._velocities[index] = self._momentum * self._velocities[index] - self._rate * gradient
            self.weights[index] = self.weights[index] + self._velocities[index]
        return float(np.mean(error**2))
