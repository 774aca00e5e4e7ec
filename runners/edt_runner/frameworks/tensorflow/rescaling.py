"""A step of an optimizer of either version of Keras with other hyperparameters than its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, inner_optimizer
from edt_runner.lr_scaling.update import Scaling

Averages = tuple[float, float]
"""(factor on 1 - beta, factor on epsilon)"""


class Rescaling:
    """Steps of one optimizer, whose variables are built, with other hyperparameters than its own.

    A step is a graph. While a graph is traced, the optimizer temporarily belongs to a new class. In this class, the
    learning rate is the user's times a variable of the runner, and betas and epsilon are the scaled ones. So the
    user's optimizer never changes, schedules are respected, and a new learning rate needs no new graph. New betas or a
    new epsilon need a new graph, because they are constants in it.
    """

    def __init__(self, keras: KerasVersion, optimizer: Any) -> None:
        self._keras, self._optimizer = keras, inner_optimizer(optimizer)
        self._factor: Any = None
        self.averages: Averages | None = None
        """Which graph to use or to trace; None: the one with the user's own betas and epsilon."""

    @property
    def has_betas(self) -> bool:
        """Whether the optimizer keeps moving averages of its gradients, as Adam and RMSprop do."""
        return bool(self._keras.betas(self._optimizer))

    @contextlib.contextmanager
    def at(self, scaling: Scaling) -> Iterator[list[float]]:
        """A context in which steps are taken with ``scaling``. It yields their learning rate, in a list.

        Velocities that hold learning rate x gradient are scaled with the learning rate.
        """
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
        """A context in which a step is traced, with the present ``averages``."""
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
