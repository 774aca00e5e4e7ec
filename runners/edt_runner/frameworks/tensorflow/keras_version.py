"""What Keras 3 (``keras``) and Keras 2 (``tf_keras``) name or do differently, behind one protocol, and a step of an
optimizer of either with other hyperparameters than its own."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import tensorflow as tf

from edt_runner.errors import UsageError
from edt_runner.lr_scaling.update import Scaling


class KerasVersion(Protocol):
    """One major version of Keras, computing with TensorFlow. Variables that its methods take are Keras's own, unless
    they say otherwise."""

    name: str
    keras: Any
    """The module: ``keras`` or ``tf_keras``."""
    autograph: bool
    """Whether its own ``fit`` translates a user's Python branches and loops over tensors."""
    compile_options: Mapping[str, Any] = {}
    """Arguments of ``compile`` beside the user's."""
    optimizer_types: tuple[type, ...]
    """What its optimizers are instances of."""

    def value(self, variable: Any) -> Any:
        """The ``tf.Variable`` behind one of Keras's."""
        return variable

    def path(self, variable: Any) -> str:
        """Its name, layers included."""

    def generators(self, model: Any) -> list[Any]:
        """States of the seed generators that layers hold, as ``tf.Variable``."""
        return []

    def means_over_batches(self, model: Any) -> list[Any]:
        """Metrics that take a batch for one number, whatever its rows."""
        return []

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        """Create the variables of an optimizer that has none yet."""

    def optimizer_variables(self, optimizer: Any) -> list[Any]: ...

    def compile(self, model: Any, optimizer: Any, loss: Any, metrics: Any) -> None:
        """Loss weights are those that a user has compiled the model with, who has no other place to say them. The name
        is private: the public ``get_compile_config`` serializes everything else, too, which not every loss can be."""
        weights = getattr(getattr(model, "_compile_config", None), "config", {}).get("loss_weights")
        model.compile(optimizer=optimizer, loss=loss, loss_weights=weights, metrics=metrics, **self.compile_options)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """A model's outputs, as ``fit`` asks for them."""

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any: ...

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        """Where small gradients would vanish in half precision."""

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        """One step of the optimizer, from gradients of a scaled loss."""

    def loss_scale(self, optimizer: Any) -> float:
        """What ``scale_loss`` multiplies with now."""

    def learning_rate(self, optimizer: Any) -> float:
        """Of the coming step. ``optimizer``, here and below: one that scales no loss itself."""

    def velocities(self, optimizer: Any) -> list[Any]:
        """``tf.Variable``s that hold learning rate x gradient: Keras's SGD and RMSprop multiply with the learning rate
        before they average."""
        if not isinstance(optimizer, self.keras.optimizers.SGD | self.keras.optimizers.RMSprop):
            return []
        named = (getattr(optimizer, name, ()) for name in ("momentums", "_momentums"))
        return [self.value(each) for several in named for each in several if each is not None]

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        """Names of the decay rates of its moving averages of gradients."""
        if isinstance(optimizer, self.keras.optimizers.RMSprop):
            return ("rho",)
        return ("beta_1", "beta_2") if hasattr(optimizer, "beta_1") and hasattr(optimizer, "beta_2") else ()

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        """Members of a class between the optimizer and its own, by which a step takes ``times`` of the learning rate,
        and ``numbers`` in place of the attributes of these names."""

        def rate(own: Any) -> Any:
            above: Any = super(type(own), own)
            return times(above.learning_rate)

        return {"learning_rate": property(rate), **_fixed_properties(numbers)}

    def finish(self, model: Any) -> None:
        """What ``fit`` does after its last step: with ``use_ema`` the weights become their averages."""
        model.optimizer.finalize_variable_values(model.trainable_variables)

    def export(self, model: Any, folder: str) -> None:
        """Write a SavedModel for serving."""
        model.export(folder)


class Keras3(KerasVersion):
    """``keras``.

    Raises:
        UsageError: Keras computes with another library than TensorFlow.
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
        """The losses of several outputs: a graph for any number of rows does not tell Keras how many there are. The
        name is private: ``metrics`` does not tell them from a user's."""
        return list(getattr(model._compile_loss, "metrics", []))

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        if not optimizer.built:
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        return list(optimizer.variables)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """A model whose ``call`` knows no ``training`` is called without: so are its layers then."""
        return model(x, training=training) if _takes(model.call, "training") else model(x)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        named = {"training": training} if _takes(model.compute_loss, "training") else {}
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

    def export(self, model: Any, folder: str) -> None:
        model.export(folder, verbose=False)


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
            optimizer._create_all_weights(variables)  # private: the public way to have its slots is a step
        elif not getattr(optimizer, "_built", False):  # private: building twice would begin anew
            optimizer.build(variables)

    def optimizer_variables(self, optimizer: Any) -> list[Any]:
        """The rate, Nadam's product and a loss scale are in no list of an optimizer's: whatever it holds is looked at.
        Names with a line before them are private, as there is no other way to these."""
        listed = optimizer.variables
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        scale = getattr(getattr(optimizer, "_loss_scale", None), "_weights", {})
        holders = [vars(optimizer), vars(inner), getattr(inner, "_hyper", {}), scale]
        found = list(listed() if callable(listed) else listed)
        found += [value for holder in holders for value in holder.values() if isinstance(value, tf.Variable)]
        return list({id(variable): variable for variable in found}.values())

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """Layers are given ``training`` even where the model's own ``call`` takes none."""
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
        """Compiled steps of single variables would be kept for all classes."""
        if self._is_legacy(optimizer):
            return _legacy_members(times, numbers)
        return super().scaled_members(optimizer, times, numbers) | {"jit_compile": property(lambda _: False)}

    def _is_legacy(self, optimizer: Any) -> bool:
        return isinstance(optimizer, self.keras.optimizers.legacy.Optimizer)

    def finish(self, model: Any) -> None:
        if isinstance(model.optimizer, self.keras.optimizers.Optimizer):  # those of ``legacy`` keep no averages
            super().finish(model)


def _legacy_members(times: Callable[[Any], Any], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Optimizers of ``legacy`` read their numbers by a function, which returns a schedule as it is."""

    def get_hyper(self: Any, name: str, dtype: Any = None) -> Any:
        value = super(type(self), self)._get_hyper(name, dtype)
        if name == "learning_rate" and not callable(value):
            return times(value)
        return value * 0 + numbers[name] if name in numbers else value

    def decayed_lr(self: Any, dtype: Any) -> Any:
        rate = super(type(self), self)._decayed_lr(dtype)
        return times(rate) if callable(self._get_hyper("learning_rate")) else rate

    epsilon = {name: number for name, number in numbers.items() if name == "epsilon"}
    return {"_get_hyper": get_hyper, "_decayed_lr": decayed_lr, **_fixed_properties(epsilon)}


def keras_version_of(model: Any) -> KerasVersion:
    """Imports the version that the model is of. Raises UsageError where Keras computes with another library than
    TensorFlow."""
    is_keras2 = any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(model).__mro__)
    return Keras2() if is_keras2 else Keras3()


def _fixed_properties(numbers: Mapping[str, float]) -> dict[str, Any]:
    """They come before an instance's own attributes."""

    def fixed(number: float) -> property:
        return property(lambda _: number)

    return {name: fixed(number) for name, number in numbers.items()}


def _takes(function: Any, argument: str) -> bool:
    """Whether a user's function can be called with it."""
    return argument in inspect.signature(function).parameters


Averages = tuple[float, float]
"""Factors on 1 - beta and on epsilon."""


class Rescaling:
    """Steps of one optimizer, whose variables are built, with other hyperparameters than its own.

    A step is a graph. While one is traced, the optimizer is of a class of its own for a moment, whose learning rate is
    the user's times a variable of ours and whose betas and epsilon are the scaled ones; so nothing of the user's
    optimizer ever changes, schedules are followed, and a new learning rate needs no new graph. New betas do: they are
    constants of it.
    """

    def __init__(self, keras: KerasVersion, optimizer: Any) -> None:
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
