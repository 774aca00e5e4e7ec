"""A Keras optimizer that takes a step with other hyperparameters than its own. Room: runners; TensorFlow.

A step is a graph. While one is traced, the optimizer is of a class of its own for a moment, whose learning rate is the
user's times a variable of ours and whose betas and epsilon are the scaled ones; so nothing of the user's optimizer ever
changes, schedules are followed, and a new learning rate needs no new graph. New betas do: they are constants of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from edt_runner.scaling.update import Scaling
from edt_runner.tensorflow.generation import Generation

Averages = tuple[float, float]
"""Factors on 1 - beta and on epsilon."""


class Rescaling:
    """Of one optimizer, whose variables are built."""

    def __init__(self, keras: Generation, optimizer: Any) -> None:
        self._keras, self._optimizer = keras, getattr(optimizer, "inner_optimizer", optimizer)
        self._factor: Any = None
        self.averages: Averages | None = None
        """Which graph to take, or to trace; None: the user's own."""

    @property
    def has_betas(self) -> bool:
        """Whether it keeps moving averages of its gradients as Adam or RMSprop does."""
        return bool(self._keras.betas(self._optimizer))

    @contextlib.contextmanager
    def at(self, scaling: Scaling) -> Iterator[list[float]]:
        """Inside, steps are taken with ``scaling``; yields their learning rate. Velocities that hold learning rate x
        gradient go along with the learning rate."""
        if self._factor is None:
            self._factor = tf.Variable(1.0, trainable=False, dtype=tf.float32, name="edt_learning_rate_factor")
        rate = self._keras.learning_rate(self._optimizer) * scaling.lr
        moved = [] if scaling.velocity == 1.0 else self._keras.velocities(self._optimizer)
        before = [variable.read_value() for variable in moved]
        self._factor.assign(scaling.lr)
        self.averages = (scaling.beta, scaling.eps)
        try:
            for variable, value in zip(moved, before, strict=True):
                variable.assign(value * tf.cast(scaling.velocity, value.dtype))
            yield [rate]
        except BaseException:
            for variable, value in zip(moved, before, strict=True):
                variable.assign(value)
            raise
        finally:
            self.averages = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Around the tracing of a step."""
        if self.averages is None:
            yield
            return
        beta, eps = self.averages
        chosen: Any = self._optimizer
        kind: Any = type(chosen)
        metaclass: Any = type(kind)
        scaling = Scaling(beta=beta)
        names = self._keras.betas(chosen) if beta != 1.0 else ()
        numbers = {name: scaling.betas(float(self._keras.value(getattr(chosen, name)))) for name in names}
        if eps != 1.0 and isinstance(getattr(chosen, "epsilon", None), float):
            numbers["epsilon"] = chosen.epsilon * eps
        changes = self._keras.scaled_members(chosen, self._times, numbers)
        object.__setattr__(chosen, "__class__", metaclass(kind.__name__, (kind,), changes))
        try:
            yield
        finally:
            object.__setattr__(chosen, "__class__", kind)

    def _times(self, rate: Any) -> Any:
        rate = tf.convert_to_tensor(self._keras.value(rate))
        return rate * tf.cast(self._factor, rate.dtype)
