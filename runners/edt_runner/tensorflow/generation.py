"""What Keras 3 and Keras 2 (``tf_keras``) name or do differently, behind one face: the protocol. Room: runners."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Generation(Protocol):
    """One generation of Keras."""

    name: str
    keras: Any
    """The module: ``keras`` or ``tf_keras``."""
    autograph: bool
    """Whether its own ``fit`` translates a user's Python branches and loops over tensors."""

    optimizer_types: tuple[type, ...]
    """What its optimizers are instances of."""

    def value(self, variable: Any) -> Any:
        """The ``tf.Variable`` behind one of Keras's."""

    def path(self, variable: Any) -> str:
        """Its name, layers included."""

    def generators(self, model: Any) -> list[Any]:
        """States of the seed generators that layers hold, as ``tf.Variable``."""

    def means_over_batches(self, model: Any) -> list[Any]:
        """Metrics that take a batch for one number, whatever its rows."""

    def build_optimizer(self, optimizer: Any, variables: list[Any]) -> None:
        """Create the variables of an optimizer that has none yet."""

    def optimizer_variables(self, optimizer: Any) -> list[Any]: ...

    def compile(self, model: Any, optimizer: Any, loss: Any, metrics: Any) -> None: ...

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
        """``tf.Variable``s that hold learning rate x gradient."""

    def betas(self, optimizer: Any) -> tuple[str, ...]:
        """Names of the decay rates of its moving averages of gradients."""

    def scaled_members(
        self, optimizer: Any, times: Callable[[Any], Any], numbers: Mapping[str, float]
    ) -> dict[str, Any]:
        """Members of a class between the optimizer and its own, by which a step takes ``times`` of the learning rate,
        and ``numbers`` in place of the attributes of these names."""

    def finish(self, model: Any) -> None:
        """What ``fit`` does after its last step: with ``use_ema`` the weights become their averages."""

    def export(self, model: Any, folder: str) -> None:
        """Write a SavedModel for serving."""


def scaled_property(name: str, times: Callable[[Any], Any]) -> dict[str, Any]:
    """The property of the class above, and ``times`` of it."""
    return {name: property(lambda self: times(getattr(super(type(self), self), name)))}


def fixed_properties(numbers: Mapping[str, float]) -> dict[str, Any]:
    """They come before an instance's own attributes."""

    def fixed(number: float) -> property:
        return property(lambda _: number)

    return {name: fixed(number) for name, number in numbers.items()}


def named_velocities(keras: Any, optimizer: Any) -> list[Any]:
    """Keras's SGD and RMSprop multiply with the learning rate before they average."""
    optimizers = keras.optimizers
    if isinstance(optimizer, optimizers.SGD | optimizers.RMSprop):
        names = ("momentums", "_momentums")
        return [each for name in names for each in getattr(optimizer, name, ()) if each is not None]
    return []


def named_betas(keras: Any, optimizer: Any) -> tuple[str, ...]:
    if isinstance(optimizer, keras.optimizers.RMSprop):
        return ("rho",)
    return ("beta_1", "beta_2") if hasattr(optimizer, "beta_1") and hasattr(optimizer, "beta_2") else ()


def loss_weights_of(model: Any) -> Any:
    """Those that a user has compiled the model with, who has no other place to say them. The name is private: the
    public ``get_compile_config`` serializes everything else, too, which not every loss can be."""
    return getattr(getattr(model, "_compile_config", None), "config", {}).get("loss_weights")


def takes(function: Any, argument: str) -> bool:
    """Whether a user's function can be called with it."""
    return argument in inspect.signature(function).parameters
