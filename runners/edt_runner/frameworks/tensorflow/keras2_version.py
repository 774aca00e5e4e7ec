"""Keras 2, the package ``tf_keras``, for scripts that are older than Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, fixed_properties, inner_optimizer


class Keras2(KerasVersion):
    """``tf_keras``, for scripts that are older than Keras 3."""

    name = "keras 2"
    autograph = True

    def __init__(self) -> None:
        import tf_keras

        self.keras = tf_keras
        optimizers = tf_keras.optimizers
        self.optimizer_types: tuple[type, ...] = (optimizers.Optimizer, optimizers.legacy.Optimizer)

    def path(self, variable: Any) -> str:
        return str(variable.name).partition(":")[0]

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        if isinstance(optimizer, self.keras.optimizers.legacy.Optimizer):
            optimizer._create_all_weights(variables)  # private: the only public way to create the slots is a step
        elif not getattr(optimizer, "_built", False):  # private: a second build would reset its state
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        """All variables of the optimizer, listed or not.

        The learning rate, Nadam's product and the loss scale are in no list of an optimizer, so all its attributes are
        searched. Names that begin with an underscore are private, since there is no public way to these variables.
        """
        listed = optimizer.variables
        inner = inner_optimizer(optimizer)
        scale = getattr(getattr(optimizer, "_loss_scale", None), "_weights", {})
        holders = [vars(optimizer), vars(inner), getattr(inner, "_hyper", {}), scale]
        found = list(listed() if callable(listed) else listed)
        found += [value for holder in holders for value in holder.values() if isinstance(value, tf.Variable)]
        return list({id(variable): variable for variable in found}.values())

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """Give layers ``training`` even if the model's own ``call`` has no such parameter."""
        return model(x, training=training)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        return model.compute_loss(x, y, outputs, weights)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        return optimizer.get_scaled_loss(loss) if hasattr(optimizer, "get_scaled_loss") else loss

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        if hasattr(optimizer, "get_unscaled_gradients"):
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def capturing_members(self, optimizer: Any, take: Callable[[list[tuple[Any, Any]]], None]) -> Mapping[str, Any]:
        """An optimizer that scales the loss takes gradients of the loss that is not scaled, unlike in Keras 3."""
        scale = optimizer.loss_scale if self.scales_loss(optimizer) else None

        def apply_gradients(own: Any, grads_and_vars: Any, *more: Any, **named: Any) -> Any:
            pairs = list(grads_and_vars)
            if scale is not None:
                pairs = [(g if g is None else g * tf.cast(scale, g.dtype), variable) for g, variable in pairs]
            take(pairs)
            return own.iterations

        return {"apply_gradients": apply_gradients}

    def has_schedule(self, optimizer: Any) -> bool:
        rate = optimizer._get_hyper("learning_rate") if self._is_legacy(optimizer) else optimizer._learning_rate
        return callable(rate) and not isinstance(rate, tf.Variable)

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        """``_build_learning_rate`` is private; it also makes the variable that holds the schedule's present value."""
        if self._is_legacy(optimizer):
            optimizer.learning_rate = schedule
        else:
            optimizer._learning_rate = optimizer._build_learning_rate(schedule)

    def loss_scale(self, optimizer: Any) -> float:
        return float(getattr(optimizer, "loss_scale", 1.0))

    def leaves_out_overflows(self, optimizer: Any) -> bool:
        return bool(getattr(optimizer, "dynamic", False))

    def learning_rate(self, optimizer: Any) -> float:
        """The learning rate that the coming step computes, also from a schedule or in a ``legacy`` optimizer."""
        if self._is_legacy(optimizer):
            return float(optimizer._decayed_lr("float32"))
        rate = optimizer._learning_rate
        return float(rate(optimizer.iterations) if callable(rate) else rate)

    def velocities(self, optimizer: Any) -> list[Any]:
        if not self._is_legacy(optimizer):
            return super().velocities(optimizer)
        legacy = self.keras.optimizers.legacy
        holds = isinstance(optimizer, legacy.SGD | legacy.RMSprop) and optimizer._momentum
        return [slots["momentum"] for slots in optimizer._slots.values()] if holds else []

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        if isinstance(optimizer, self.keras.optimizers.legacy.RMSprop):
            return ("rho",)
        return super().betas(optimizer)

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        """Compilation is switched off: compiled steps of single variables would be kept for all classes."""
        if self._is_legacy(optimizer):
            return _legacy_members(times, numbers)
        return super().scaled_members(optimizer, times, numbers) | {"jit_compile": property(lambda _: False)}

    def _is_legacy(self, optimizer: Any) -> bool:
        return isinstance(optimizer, self.keras.optimizers.legacy.Optimizer)

    def finish(self, model: Any) -> None:
        if isinstance(model.optimizer, self.keras.optimizers.Optimizer):  # ``legacy`` optimizers keep no averages
            super().finish(model)


def _legacy_members(times: Callable[[Any], Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Members for optimizers of ``legacy``, which read their numbers by a function. It returns a schedule as it is."""

    def get_hyper(self: Any, name: str, dtype: Any = None) -> Any:
        value = super(type(self), self)._get_hyper(name, dtype)
        if name == "learning_rate" and not callable(value):
            return times(value)
        return value * 0 + numbers[name] if name in numbers else value

    def decayed_lr(self: Any, dtype: Any) -> Any:
        rate = super(type(self), self)._decayed_lr(dtype)
        return times(rate) if callable(self._get_hyper("learning_rate")) else rate

    epsilon = {name: number for name, number in numbers.items() if name == "epsilon"}
    return {"_get_hyper": get_hyper, "_decayed_lr": decayed_lr, **fixed_properties(epsilon)}
