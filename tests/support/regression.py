"""A linear regression of 66 samples and 3 weights, and NumPy loops that train it along a trace of batch sizes.

The loops know nothing of the library: micro-batches of 4, in the epoch's order, each with a mean squared error; an
update takes the mean of its micro-batches' gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAMPLES, WEIGHTS, MICRO_BATCH = 66, 3, 4
LEARNING_RATE, REFERENCE = 0.02, 8
MAIN = [8, 8, 16, 16, 8, 12, 20, 32, 4, 4, 8, 24, 16, 24, 24, 8, 8, 64]
"""18 updates in 5 epochs, of which each has up to 64 samples."""
EPOCHS = [[8, 8, 16, 16, 8], [12, 20, 32], [4, 4, 8, 24, 16], [24, 24, 8, 8], [64]]


@functools.cache
def data() -> tuple[Array, Array]:
    """Inputs (66, 3) and targets (66,)."""
    random = np.random.default_rng(66)
    inputs = random.standard_normal((SAMPLES, WEIGHTS))
    return inputs, inputs @ np.array([1.0, -2.0, 0.5]) + 0.3 * random.standard_normal(SAMPLES)


def order(epoch: int) -> list[int]:
    """The sampler's, whose seed is 42."""
    indices: list[int] = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(42 + epoch)).tolist()
    return indices


def updates(epochs: list[list[int]] | None = None) -> Iterator[tuple[int, list[list[int]]]]:
    """(batch, indices of each micro-batch) of every update."""
    for epoch, batches in enumerate(EPOCHS if epochs is None else epochs):
        start, indices = 0, order(epoch)
        for batch in batches:
            taken = indices[start : start + batch]
            yield batch, [taken[place : place + MICRO_BATCH] for place in range(0, batch, MICRO_BATCH)]
            start += batch


def gradient(weights: Array, indices: list[int]) -> Array:
    """Of the mean squared error over the samples."""
    inputs, targets = data()
    inputs, targets = inputs[indices], targets[indices]
    return np.asarray(2 / len(indices) * inputs.T @ (inputs @ weights - targets))


def sgd(
    factor: Callable[[int], float],
    *,
    momentum: float = 0.0,
    decay: Callable[[int], float] = lambda _: 0.0,
    sums: bool = False,
) -> list[Array]:
    """Weights after each update; ``factor`` of the learning rate and ``decay`` of the weights, both by batch."""
    weights, velocity, seen = np.zeros(WEIGHTS), np.zeros(WEIGHTS), []
    for batch, micro_batches in updates():
        gradients = [gradient(weights, indices) for indices in micro_batches]
        total = np.sum(gradients, axis=0) if sums else np.mean(gradients, axis=0)
        velocity = momentum * velocity + total + decay(batch) * weights
        weights = weights - LEARNING_RATE * factor(batch) * velocity
        seen.append(weights)
    return seen


@dataclass
class AdaScale:
    """The paper's loop: what it had after each update."""

    theirs: bool = False
    """ETH's averages: weight 1 at variance 0 and square 1, the variance times the old S over the new."""
    differences: bool = False
    """ETH's norms: an update's first gradient less the sum of the update before."""
    weights: list[Array] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    sums_of_squares: list[float] = field(default_factory=list)

    def run(self, epochs: list[list[int]]) -> AdaScale:
        weights, before = np.zeros(WEIGHTS), np.zeros(WEIGHTS)
        variance, square, weight, last = 0.0, float(self.theirs), float(self.theirs), 0
        for _, micro_batches in updates(epochs):
            gradients = [gradient(weights, indices) for indices in micro_batches]
            mean, scale = np.mean(gradients, axis=0), len(gradients)
            squares = [float(own @ own) for own in gradients]
            if self.differences:
                squares[0] = float((gradients[0] - before) @ (gradients[0] - before))
                before = np.sum(gradients, axis=0)
            if scale > 1:
                theta = 1 - scale / 1000
                new = sum(squares) / (scale - 1) - scale / (scale - 1) * float(mean @ mean)
                signal = float(mean @ mean) - new / scale
                if self.theirs:
                    new, signal, variance = max(new, 1e-6), max(signal, 0.0), variance * (last or scale) / scale
                variance = theta * variance + (1 - theta) * new
                square = theta * square + (1 - theta) * signal
                weight, last = theta * weight + (1 - theta), scale
            gain = 1.0
            if last:
                low, high = max(variance / weight, 1e-6), max(square / weight, 0.0)
                gain = min(max((low + high) / (low / scale + high), 1.0), float(scale))
            weights = weights - LEARNING_RATE * MICRO_BATCH / REFERENCE * gain * mean
            self.weights.append(weights)
            self.gains.append(gain)
            self.sums_of_squares.append(sum(squares))
        return self
