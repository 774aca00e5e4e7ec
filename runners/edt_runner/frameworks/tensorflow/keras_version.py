"""The differences between Keras 3 (``keras``) and Keras 2 (``tf_keras``), behind one protocol."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import tensorflow as tf

from edt_runner.errors import UsageError


class KerasVersion(Protocol):
    """One major version of Keras, which computes with TensorFlow. Methods take Keras's own variables, unless their
    docstrings name another type."""

    name: str
    keras: Any
    """The module: ``keras`` or ``tf_keras``."""
    autograph: bool
    """Whether this version's own ``fit`` translates a user's Python branches and loops over tensors."""
    compile_options: Mapping[str, Any] = {}
    """Arguments of ``compile`` in addition to the user's."""
    optimizer_types: tuple[type, ...]
    """Classes of which this version's optimizers are instances."""

    def value(self, variable: Any) -> Any:
        """The ``tf.Variable`` behind a variable of Keras."""
        return variable

    def path(self, variable: Any) -> str:
        """The variable's name, with the names of its layers."""

    def generators(self, model: Any) -> list[Any]:
        """States of the seed generators that layers hold, as ``tf.Variable``s."""
        return []

    def means_over_batches(self, model: Any) -> list[Any]:
        """Metrics that count a batch as one number, whatever the number of its rows."""
        return []

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        """Create the variables of an optimizer that has none yet."""

    def optimizer_variables(self, optimizer: Any) -> list[Any]: ...

    def compile(self, model: Any, optimizer: Any, loss: Any, metrics: Any) -> None:
        """Compile the model, with the loss weights that the user has compiled it with.

        A user has no other place for loss weights. ``_compile_config`` is private. The public ``get_compile_config``
        serializes everything else, too, and not every loss can be serialized.
        """
        weights = getattr(getattr(model, "_compile_config", None), "config", {}).get("loss_weights")
        model.compile(optimizer=optimizer, loss=loss, loss_weights=weights, metrics=metrics, **self.compile_options)

    def call(self, model: Any, x: Any, *, training: bool) -> Any:
        """The model's outputs, as ``fit`` asks for them."""

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any: ...

    def scale_loss(self, optimizer: Any, loss: Any) -> Any:
        """Multiply the loss by a factor if small gradients would vanish in half precision."""

    def apply(self, optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
        """Take one step of the optimizer, from gradients of a scaled loss."""

    def loss_scale(self, optimizer: Any) -> float:
        """The factor by which ``scale_loss`` multiplies now."""

    def scales_loss(self, optimizer: Any) -> bool:
        """Whether ``scale_loss`` multiplies at all."""
        return inner_optimizer(optimizer) is not optimizer

    def leaves_out_overflows(self, optimizer: Any) -> bool:
        """Whether the optimizer takes no step with gradients that are not finite, because it halves the scale then."""
        return self.scales_loss(optimizer)

    @contextlib.contextmanager
    def capturing(self, optimizer: Any, take: Callable[[list[tuple[Any, Any]]], None]) -> Iterator[None]:
        """A context in which a user's step gives gradients to ``take`` instead of to the optimizer, which stays as it
        is.

        Args:
            optimizer: the model's optimizer.
            take: gets (gradient, variable) pairs, of a loss that is scaled if the optimizer scales it.
        """
        kind: Any = type(optimizer)
        metaclass: Any = type(kind)
        object.__setattr__(
            optimizer, "__class__", metaclass(kind.__name__, (kind,), dict(self.capturing_members(optimizer, take)))
        )
        try:
            yield
        finally:
            object.__setattr__(optimizer, "__class__", kind)

    def capturing_members(self, optimizer: Any, take: Callable[[list[tuple[Any, Any]]], None]) -> Mapping[str, Any]:
        """Members of a subclass of the optimizer's class, for ``capturing``."""

    def has_schedule(self, optimizer: Any) -> bool:
        """Whether the learning rate is a schedule or a function."""

    def set_schedule(self, optimizer: Any, schedule: Any) -> None:
        """Make a schedule the learning rate, in an optimizer that has no variables yet."""
        optimizer.learning_rate = schedule

    def learning_rate(self, optimizer: Any) -> float:
        """Learning rate of the coming step.

        Args:
            optimizer: here and in the methods below, an optimizer that does not itself scale the loss.
        """

    def velocities(self, optimizer: Any) -> list[Any]:
        """``tf.Variable``s that hold learning rate x gradient. Keras's SGD and RMSprop multiply by the learning rate
        before they average."""
        if not isinstance(optimizer, self.keras.optimizers.SGD | self.keras.optimizers.RMSprop):
            return []
        named = (getattr(optimizer, name, ()) for name in ("momentums", "_momentums"))
        return [self.value(each) for several in named for each in several if each is not None]

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        """Names of the decay rates of the optimizer's moving averages of gradients."""
        if isinstance(optimizer, self.keras.optimizers.RMSprop):
            return ("rho",)
        return ("beta_1", "beta_2") if hasattr(optimizer, "beta_1") and hasattr(optimizer, "beta_2") else ()

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        """Members of a subclass that an optimizer gets while a step is traced (``Rescaling``).

        Args:
            optimizer: the optimizer.
            times: (learning rate) -> the learning rate of the step.
            numbers: values that the step uses in place of the attributes of these names.
        """

        def rate(own: Any) -> Any:
            above: Any = super(type(own), own)
            return times(above.learning_rate)

        return {"learning_rate": property(rate), **_fixed_properties(numbers)}

    def finish(self, model: Any) -> None:
        """Do what ``fit`` does after its last step: with ``use_ema`` the weights become their averages."""
        model.optimizer.finalize_variable_values(model.trainable_variables)

    def export(self, model: Any, folder: str) -> None:
        """Write a SavedModel for serving."""
        model.export(folder)


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
        return model(x, training=training) if _takes(model.call, "training") else model(x)

    def compute_loss(self, model: Any, x: Any, y: Any, outputs: Any, weights: Any, *, training: bool) -> Any:
        named = {"training": training} if _takes(model.compute_loss, "training") else {}
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
    return {"_get_hyper": get_hyper, "_decayed_lr": decayed_lr, **_fixed_properties(epsilon)}


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside one that scales the loss; else ``optimizer`` itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def keras_version_of(model: Any) -> KerasVersion:
    """Import the version of Keras that ``model`` belongs to.

    Raises:
        UsageError: Keras does not compute with TensorFlow here.
    """
    is_keras2 = any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(model).__mro__)
    return Keras2() if is_keras2 else Keras3()


def _fixed_properties(numbers: Mapping[str, float]) -> dict[str, Any]:
    """Properties with fixed values. They take precedence over an instance's own attributes."""

    def fixed(number: float) -> property:
        return property(lambda _: number)

    return {name: fixed(number) for name, number in numbers.items()}


def _takes(function: Any, argument: str) -> bool:
    """Whether ``function`` has a parameter ``argument``."""
    return argument in inspect.signature(function).parameters
