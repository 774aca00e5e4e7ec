"""Keras 3, the package ``keras``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, takes


class Keras3(KerasVersion):
    """``keras``.

    Raises:
        UsageError: Keras does not compute with TensorFlow here.
    """

    name = "keras 3"
    autograph = False
    compile_options: Mapping[str, Any] = {"jit_compile": False}

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
        """The losses of several outputs. In a graph for any number of rows, Keras does not know how many there are.

        ``_compile_loss`` is private. The public ``metrics`` does not distinguish these from a user's metrics.
        """
        return list(getattr(model._compile_loss, "metrics", []))

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        if not optimizer.built:
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        return list(optimizer.variables)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """If the model's ``call`` has no parameter ``training``, it and its layers are called without it."""
        return model(x, training=training) if takes(model.call, "training") else model(x)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        named = {"training": training} if takes(model.compute_loss, "training") else {}
        return model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights, **named)

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        return optimizer.scale_loss(loss)

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        optimizer.apply(gradients, variables)

    def capturing_members(self, optimizer: Any, take: Callable[[list[tuple[Any, Any]]], None]) -> Mapping[str, Any]:
        def apply(own: Any, grads: Any, trainable_variables: Any = None) -> None:
            take(list(zip(grads, trainable_variables or own._trainable_variables, strict=True)))

        return {"apply": apply}

    def has_schedule(self, optimizer: Any) -> bool:
        """``_learning_rate`` is private; ``learning_rate`` is the schedule's present value."""
        return not isinstance(optimizer._learning_rate, self.keras.Variable)

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        """Make the optimizer anew, in place, from its config: after Keras's own setter, which removes a variable from a
        list, TensorFlow refuses to write a SavedModel of the model."""
        try:
            fresh = (
                None
                if optimizer.built
                else type(optimizer).from_config({**optimizer.get_config(), "learning_rate": schedule})
            )
        except (NotImplementedError, TypeError, ValueError):  # a user's own optimizer without a config
            fresh = None
        if fresh is None:
            super().set_schedule(optimizer, schedule)
            return
        own = {name: value for name, value in vars(optimizer).items() if name not in vars(fresh)}
        vars(optimizer).clear()
        vars(optimizer).update(vars(fresh), **own)

    def loss_scale(self, optimizer: Any) -> float:
        scale = getattr(optimizer, "dynamic_scale", None)
        if scale is None:
            scale = getattr(optimizer, "loss_scale_factor", None)
        return 1.0 if scale is None else float(self.value(scale))

    def learning_rate(self, optimizer: Any) -> float:
        return float(self.value(optimizer.learning_rate))

    def export(self, model: Any, folder: str) -> None:
        model.export(folder, verbose=False)
