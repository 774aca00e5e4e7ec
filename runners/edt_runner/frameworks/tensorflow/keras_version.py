"""What the runner needs from a major version of Keras, behind one protocol: ``keras3_version``, ``keras2_version``."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol


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

        return {"learning_rate": property(rate), **fixed_properties(numbers)}

    def finish(self, model: Any) -> None:
        """Do what ``fit`` does after its last step: with ``use_ema`` the weights become their averages."""
        model.optimizer.finalize_variable_values(model.trainable_variables)

    def export(self, model: Any, folder: str) -> None:
        """Write a SavedModel for serving."""
        model.export(folder)


def inner_optimizer(optimizer: Any) -> Any:
    """The optimizer inside one that scales the loss; else ``optimizer`` itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def fixed_properties(numbers: Mapping[str, float]) -> dict[str, Any]:
    """Properties with fixed values. They take precedence over an instance's own attributes."""

    def fixed(number: float) -> property:
        return property(lambda _: number)

    return {name: fixed(number) for name, number in numbers.items()}


def takes(function: Any, argument: str) -> bool:
    """Whether ``function`` has a parameter ``argument``."""
    return argument in inspect.signature(function).parameters
