"""Keras 3 optimizers that take one step from the gradients of several batches.

    Optimizer(optimizer, steps)                 around any optimizer of Keras, its state included
    SGD(steps, …), Adam(steps, …), …            Keras's own by their names, with their own arguments

The batches' gradients are added up. With every ``steps``-th batch, the optimizer takes one step with their *mean*. If
the loss is a mean and the batches have the same size, this step is that of one batch with all their samples. The
optimizer counts its steps. Learning-rate schedules, moving averages of weights, weight decay, clipping and constraints
therefore count updates. (Keras's own ``gradient_accumulation_steps`` averages in the same way, but reads schedules and
moves averages with every batch, and cannot be used for an optimizer that already has state.)

If an epoch ends within a cycle, the next epoch continues the cycle. ``flush()`` ends the cycle with its batches so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras

from edt_runner.errors import UsageError, whole

if int(keras.__version__.partition(".")[0]) < 3:
    raise ImportError(
        f"runai.ga.keras and runai.elastic.keras take Keras 3, and keras is {keras.__version__} here: install "
        "keras>=3, and leave TF_USE_LEGACY_KERAS unset"
    )

_OF_THE_INNER = ("weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor")
"""Arguments of every optimizer of Keras; they are read from the inner optimizer."""


@keras.saving.register_keras_serializable(package="runai")
class Optimizer(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Wraps ``optimizer``, which then takes one step with the mean gradient of ``steps`` batches.

    Attributes that this class does not have are read from the inner optimizer.

    Args:
        optimizer: a ``keras.optimizers.Optimizer``; its state, if it has any, stays.
        steps: batches per update; 1: the plain optimizer.
        name: the optimizer's name; None: the inner name with ``_cycle``.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes.
    """

    def __init__(self, optimizer: Any, steps: int, name: str | None = None) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise UsageError(f"optimizer: got {optimizer!r}, takes an instance of a keras.optimizers.Optimizer")
        steps = whole("steps", steps, "a whole number of batches, at least 1")
        if steps > 1 and (inner := accumulates(optimizer)) > 1:
            raise UsageError(f"optimizer: got one that accumulates {inner} batches by itself, takes one that does not")
        if steps > 1 and keras.backend.backend() == "jax":
            raise UsageError(
                "steps: Keras computes with JAX here, whose optimizers keep no state between calls; takes 1, or "
                f"Keras's own gradient_accumulation_steps={steps}"
            )
        # The name differs from the inner one: HDF5 files find variables by optimizer names, and there are two counters.
        super().__init__(learning_rate=0.0, name=name or f"{optimizer.name}_cycle")
        for attribute in _OF_THE_INNER:
            self.__dict__.pop(attribute, None)
        self.optimizer = optimizer
        self.steps = steps
        self._sums: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "optimizer" not in vars(self):
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def build(self, variables: list[Any]) -> None:
        """Create the variables of the sums, and those of the inner optimizer if it has none yet."""
        if not self.optimizer.built:
            self.optimizer.build(variables)
        super().build(variables)
        if self.steps > 1:
            self._sums = [self.add_variable_from_reference(variable, name="gradient_sum") for variable in variables]

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Take the gradients of one batch. With the last batch of a cycle, update the variables.

        Args:
            grads: one gradient per variable; None: the batch's loss does not depend on the variable.
            trainable_variables: the variables; None: those that the optimizer was built with.

        Raises:
            UsageError: the optimizer is not built, and there are no variables.
        """
        grads = list(grads)
        variables = list(trainable_variables) if trainable_variables is not None else list(self._trainable_variables)
        if not self.built:
            if not variables:
                raise UsageError("trainable_variables: got none, takes the variables that the gradients are of")
            self.build(variables)
        if self.steps == 1:
            self.optimizer.apply(grads, variables)
        else:
            self._collect(grads, variables)
        self._iterations.assign_add(1)

    def _collect(self, grads: list[Any], variables: list[Any]) -> None:
        self._check_variables_are_known(variables)
        sums = [self._sums[self._get_variable_index(variable)] for variable in variables]
        ops = keras.ops
        sums_now = [held if grad is None else ops.add(grad, held) for grad, held in zip(grads, sums, strict=True)]

        def update() -> None:
            means = [None if g is None else ops.divide(s, self.steps) for g, s in zip(grads, sums_now, strict=True)]
            self.optimizer.apply(means, variables)
            for held in self._sums:
                held.assign(ops.zeros_like(held))

        def keep() -> None:
            for grad, held, value in zip(grads, sums, sums_now, strict=True):
                if grad is not None:
                    held.assign(value)

        ops.cond(ops.equal(ops.mod(self._iterations + 1, self.steps), 0), update, keep)

    def flush(self) -> bool:
        """End an incomplete cycle: take one step with the mean gradient of its batches so far.

        Call this between batches, outside of compiled functions.

        Returns:
            Whether there were any batches.
        """
        waiting = int(self._iterations) % self.steps if self.built else 0
        if not waiting:
            return False
        self.optimizer.apply([keras.ops.divide(held, waiting) for held in self._sums], self._trainable_variables)
        for held in self._sums:
            held.assign(keras.ops.zeros_like(held))
        self._iterations.assign_add(self.steps - waiting)
        return True

    # ── the inner optimizer's interface ───────────────────────────────────────────────────────────────────────
    @property
    def variables(self) -> list[Any]:
        """This object's own variables (the counter of batches and the sums), then the inner optimizer's."""
        return [*self._variables, *self.optimizer.variables]

    @property
    def iterations(self) -> Any:
        """Number of updates."""
        return self.optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        return self.optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.optimizer.learning_rate = value

    lr = learning_rate
    """The learning rate under its name in Keras 2."""

    def get_weights(self) -> list[Any]:
        """The values of ``variables``, as arrays."""
        return [keras.ops.convert_to_numpy(variable) for variable in self.variables]

    def set_weights(self, weights: list[Any]) -> None:
        """Set ``variables`` to values that ``get_weights`` has returned.

        Raises:
            UsageError: the number of arrays is wrong.
        """
        if len(weights) != len(self.variables):
            raise UsageError(f"weights: got {len(weights)} arrays, takes {len(self.variables)}: build it first")
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)

    def scale_loss(self, loss: Any) -> Any:
        return self.optimizer.scale_loss(loss)

    def exclude_from_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        self.optimizer.exclude_from_weight_decay(*args, **kwargs)

    def finalize_variable_values(self, var_list: list[Any]) -> None:
        self.optimizer.finalize_variable_values(var_list)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer": keras.saving.serialize_keras_object(self.optimizer),
            "steps": self.steps,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        given = dict(config)
        inner = keras.saving.deserialize_keras_object(given.pop("optimizer"), custom_objects=custom_objects)
        return cls(inner, **given)


class _Named(Optimizer):
    """Wraps Keras's optimizer of the same name, which it makes itself."""

    kind = ""

    def __init__(self, steps: int, *args: Any, **kwargs: Any) -> None:
        kind = getattr(keras.optimizers, self.kind, None)
        if kind is None:
            raise UsageError(f"{self.kind}: Keras {keras.__version__} has no optimizer of this name")
        super().__init__(kind(*args, **kwargs), steps)

    def get_config(self) -> dict[str, Any]:
        return {**self.optimizer.get_config(), "steps": self.steps}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        given = dict(config)
        rate = given.get("learning_rate")
        if isinstance(rate, Mapping):  # a schedule
            given["learning_rate"] = keras.saving.deserialize_keras_object(rate, custom_objects=custom_objects)
        return cls(given.pop("steps"), **given)


def accumulates(optimizer: Any) -> int:
    """Batches per update of any optimizer of Keras; 1: it does not accumulate."""
    if isinstance(optimizer, Optimizer):
        return max(optimizer.steps, accumulates(optimizer.optimizer))
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return accumulates(optimizer.inner_optimizer)
    return optimizer.gradient_accumulation_steps or 1


def _named(name: str) -> Any:
    about = f"``keras.optimizers.{name}``, one step of which takes ``steps`` batches: ``{name}(steps, …)``."
    made = type(name, (_Named,), {"kind": name, "__doc__": about, "__module__": __name__})
    return keras.saving.register_keras_serializable(package="runai")(made)


SGD = _named("SGD")
RMSprop = _named("RMSprop")
Adagrad = _named("Adagrad")
Adadelta = _named("Adadelta")
Adam = _named("Adam")
Adamax = _named("Adamax")
Nadam = _named("Nadam")
AdamW = _named("AdamW")
Adafactor = _named("Adafactor")
Ftrl = _named("Ftrl")
Lion = _named("Lion")
Muon = _named("Muon")
