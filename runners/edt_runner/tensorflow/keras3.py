"""Keras 3. Room: runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.errors import UsageError
from edt_runner.tensorflow import generation
from edt_runner.tensorflow.generation import loss_weights_of, takes


class Keras3:
    """See ``Generation``."""

    name = "keras 3"
    autograph = False

    def __init__(self) -> None:
        import keras

        if keras.backend.backend() != "tensorflow":
            raise UsageError(
                f"model: Keras computes with {keras.backend.backend()} here, takes TensorFlow: set KERAS_BACKEND to "
                "tensorflow, or leave it unset"
            )
        self.keras = keras
        self.optimizer_types: tuple[type, ...] = (keras.optimizers.Optimizer,)

    def value(self, variable: Any) -> Any:
        return variable.value if isinstance(variable, self.keras.Variable) else variable

    def path(self, variable: Any) -> str:
        return str(getattr(variable, "path", variable.name))

    def generators(self, model: Any) -> list[Any]:
        weights = {id(weight) for weight in model.weights}
        return [self.value(variable) for variable in model.variables if id(variable) not in weights]

    def means_over_batches(self, model: Any) -> list[Any]:
        """The losses of several outputs: a graph for any number of rows does not tell Keras how many there are. The
        name is private: ``metrics`` does not tell them from a user's."""
        return list(getattr(model._compile_loss, "metrics", []))

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        if not optimizer.built:
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        return list(optimizer.variables)

    def compile(self, model: Any, optimizer: Any, loss: Any, metrics: Any) -> None:
        weights = loss_weights_of(model)
        model.compile(optimizer=optimizer, loss=loss, loss_weights=weights, metrics=metrics, jit_compile=False)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """A model whose ``call`` knows no ``training`` is called without: its layers are then not told."""
        return model(x, training=training) if takes(model.call, "training") else model(x)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        named = {"training": training} if takes(model.compute_loss, "training") else {}
        return model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights, **named)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        return optimizer.scale_loss(loss)

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        optimizer.apply(gradients, variables)

    def loss_scale(self, optimizer: Any) -> float:
        scale = getattr(optimizer, "dynamic_scale", None)
        if scale is None:
            scale = getattr(optimizer, "loss_scale_factor", None)
        return 1.0 if scale is None else float(self.value(scale))

    def learning_rate(self, optimizer: Any) -> float:
        return float(self.value(optimizer.learning_rate))

    def velocities(self, optimizer: Any) -> list[Any]:
        return [self.value(each) for each in generation.named_velocities(self.keras, optimizer)]

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        return generation.named_betas(self.keras, optimizer)

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        return generation.scaled_property("learning_rate", times) | generation.fixed_properties(numbers)

    def finish(self, model: Any) -> None:
        model.optimizer.finalize_variable_values(model.trainable_variables)

    def export(self, model: Any, folder: str) -> None:
        model.export(folder, verbose=False)
