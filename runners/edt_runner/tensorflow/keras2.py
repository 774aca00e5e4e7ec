"""Keras 2, which is ``tf_keras``: for scripts that are older than Keras 3. Room: runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.tensorflow import generation
from edt_runner.tensorflow.generation import loss_weights_of


class Keras2:
    """See ``Generation``."""

    name = "keras 2"
    autograph = True

    def __init__(self) -> None:
        import tf_keras

        self.keras = tf_keras
        optimizers = tf_keras.optimizers
        self.optimizer_types: tuple[type, ...] = (optimizers.Optimizer, optimizers.legacy.Optimizer)

    def value(self, variable: Any) -> Any:
        return variable

    def path(self, variable: Any) -> str:
        return str(variable.name).partition(":")[0]

    def generators(self, model: Any) -> list[Any]:
        """None by themselves: tracing shows the ``tf.random.Generator`` of each layer that draws."""
        return []

    def means_over_batches(self, model: Any) -> list[Any]:
        return []

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        if isinstance(optimizer, self.keras.optimizers.legacy.Optimizer):
            optimizer._create_all_weights(variables)  # private: the public way to have its slots is a step
        elif not getattr(optimizer, "_built", False):  # private: building twice would begin anew
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        """The rate, Nadam's product and a loss scale are in no list of an optimizer's: whatever it holds is looked at.
        Names with a line before them are private, as there is no other way to these."""
        import tensorflow as tf

        listed = optimizer.variables
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        scale = getattr(getattr(optimizer, "_loss_scale", None), "_weights", {})
        holders = [vars(optimizer), vars(inner), getattr(inner, "_hyper", {}), scale]
        found = list(listed() if callable(listed) else listed)
        found += [value for holder in holders for value in holder.values() if isinstance(value, tf.Variable)]
        return list({id(variable): variable for variable in found}.values())

    def compile(self, model: Any, optimizer: Any, loss: Any, metrics: Any) -> None:
        model.compile(optimizer=optimizer, loss=loss, loss_weights=loss_weights_of(model), metrics=metrics)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """Layers are told whether they train even where the model's own ``call`` is not."""
        return model(x, training=training)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        return model.compute_loss(x, y, outputs, weights)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        return optimizer.get_scaled_loss(loss) if hasattr(optimizer, "get_scaled_loss") else loss

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        if hasattr(optimizer, "get_unscaled_gradients"):
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def loss_scale(self, optimizer: Any) -> float:
        return float(getattr(optimizer, "loss_scale", 1.0))

    def learning_rate(self, optimizer: Any) -> float:
        """A schedule's, and that of an optimizer of ``legacy``, is what the coming step will compute."""
        if self._is_legacy(optimizer):
            return float(optimizer._decayed_lr("float32"))
        rate = optimizer._learning_rate
        return float(rate(optimizer.iterations) if callable(rate) else rate)

    def velocities(self, optimizer: Any) -> list[Any]:
        if not self._is_legacy(optimizer):
            return generation.named_velocities(self.keras, optimizer)
        legacy = self.keras.optimizers.legacy
        holds = isinstance(optimizer, legacy.SGD | legacy.RMSprop) and optimizer._momentum
        return [slots["momentum"] for slots in optimizer._slots.values()] if holds else []

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        if isinstance(optimizer, self.keras.optimizers.legacy.RMSprop):
            return ("rho",)
        return generation.named_betas(self.keras, optimizer)

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        """Compiled steps of single variables would be kept for all classes."""
        if self._is_legacy(optimizer):
            return _legacy_members(times, numbers)
        plain = {"jit_compile": property(lambda _: False)}
        return generation.scaled_property("learning_rate", times) | generation.fixed_properties(numbers) | plain

    def _is_legacy(self, optimizer: Any) -> bool:
        return isinstance(optimizer, self.keras.optimizers.legacy.Optimizer)

    def finish(self, model: Any) -> None:
        if isinstance(model.optimizer, self.keras.optimizers.Optimizer):  # those of ``legacy`` keep no averages
            model.optimizer.finalize_variable_values(model.trainable_variables)

    def export(self, model: Any, folder: str) -> None:
        model.export(folder)


def _legacy_members(times: Callable[[Any], Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Optimizers of ``legacy`` read their numbers by a function, which hands a schedule out as it is."""

    def get_hyper(self: Any, name: str, dtype: Any = None) -> Any:
        value = super(type(self), self)._get_hyper(name, dtype)
        if name == "learning_rate" and not callable(value):
            return times(value)
        return value * 0 + numbers[name] if name in numbers else value

    def decayed_lr(self: Any, dtype: Any) -> Any:
        rate = super(type(self), self)._decayed_lr(dtype)
        return times(rate) if callable(self._get_hyper("learning_rate")) else rate

    epsilon = {name: number for name, number in numbers.items() if name == "epsilon"}
    return {"_get_hyper": get_hyper, "_decayed_lr": decayed_lr, **generation.fixed_properties(epsilon)}
