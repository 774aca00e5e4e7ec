"""A model's own ``train_step`` and ``test_step``, called on one micro-batch each.

A ``train_step`` computes gradients and gives them to the optimizer. While its graph is traced here, the optimizer keeps
what it is given and changes nothing. The gradients of all micro-batches are then weighted and added up as those of any
other model, and the optimizer takes one step with their sum. So a ``train_step`` sees the weights of before the step,
also in what it does after its call of the optimizer.

What a step returns, by name, is the loss, metrics whose states add up (those of ``model.metrics``), or else numbers
that are taken as means over the samples of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion

LOSS = "loss"


class OwnSteps:
    """The steps that a model's class overrides.

    Args:
        keras: the model's version of Keras.
        model: the compiled model.
    """

    def __init__(self, keras: KerasVersion, model: Any) -> None:
        self._keras, self._model = keras, model
        self.trains, self.tests = (overrides(keras, model, name) for name in ("train_step", "test_step"))
        self._returned: set[str] = set()
        """Names that the steps have returned."""
        self._states: set[str] = set()
        """Names of metrics whose states add up."""

    @property
    def any(self) -> bool:
        """Whether there are own steps."""
        return bool(self.trains or self.tests)

    @property
    def told(self) -> tuple[str, ...]:
        """Names of the numbers that are means over a micro-batch, in order."""
        return tuple(sorted(self._returned - self._states - {LOSS}))

    def tells(self, name: str) -> bool:
        """Whether a metric of this name is to be shown. Without own steps all are."""
        if not self.any:
            return True
        return name in self._returned or (name in self._states and not (self.trains and self.tests))

    def build(self, batch: Any) -> None:
        """Trace the steps once, which creates variables and shows what they return. Nothing is executed.

        Args:
            batch: a batch of tensors.

        Raises:
            UsageError: a step does something that several engines cannot compute together.
        """
        if self.trains:
            self._trace(self.train, batch)
        if self.tests:
            self._trace(self.test, batch)
        if self.any:
            self._states = {*results_of(self._model)} - {LOSS}

    def _trace(self, step: Callable[[Any], Any], batch: Any) -> None:
        tf.function(lambda: step(batch)[0], autograph=self._keras.autograph).get_concrete_function()

    def train(self, batch: Any) -> tuple[Any, dict[int, Any], dict[str, Any]]:
        """Call ``train_step``. Only while a graph is traced.

        Returns:
            The loss, the gradients by id of their ``tf.Variable``, and what the step returned beside the loss.
        """
        gradients: dict[int, Any] = {}
        graph = tf.compat.v1.get_default_graph()

        def take(pairs: list[tuple[Any, Any]]) -> None:
            self._check_place(graph, again=bool(gradients))
            for gradient, variable in pairs:
                if gradient is not None:
                    gradients[id(self._keras.value(variable))] = tf.convert_to_tensor(gradient)

        with self._keras.capturing(self._model.optimizer, take):
            loss, told = self._call("train_step", batch)
        if not gradients:
            raise UsageError(
                f"{self._where('train_step')} gives no gradients to self.optimizer, takes one that calls "
                "self.optimizer.apply(gradients, self.trainable_variables) once"
            )
        trainable = {id(self._keras.value(variable)) for variable in self._model.trainable_variables}
        if gradients.keys() - trainable:
            raise UsageError(
                f"{self._where('train_step')} gives self.optimizer the gradient of a variable that is none of "
                "model.trainable_variables, takes these alone"
            )
        return loss, gradients, told

    def test(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Call ``test_step``. Returns the loss, and what the step returned beside it."""
        return self._call("test_step", batch)

    def check_written(self, written: list[Any]) -> None:
        """Check what the graph of ``train_step`` writes.

        Args:
            written: ``tf.Variable``s.

        Raises:
            UsageError: it writes a weight that the optimizer trains.
        """
        trainable = {id(self._keras.value(variable)) for variable in self._model.trainable_variables}
        names = [str(variable.name).partition(":")[0] for variable in written if id(variable) in trainable]
        if self.trains and names:
            raise UsageError(
                f"{self._where('train_step')} itself changes {', '.join(names[:3])}, by assign or by another optimizer "
                "than self.optimizer; takes one that leaves trainable weights to self.optimizer.apply, because the "
                "step is taken once, with the gradients of all engines"
            )

    def _check_place(self, graph: Any, *, again: bool) -> None:
        if again:
            raise UsageError(
                f"{self._where('train_step')} calls self.optimizer more than once, takes one call with all gradients: "
                "the later ones would have to see weights that the earlier ones have changed"
            )
        if tf.compat.v1.get_default_graph() is not graph:
            raise UsageError(
                f"{self._where('train_step')} calls self.optimizer inside a tf.function, a loop or a branch of its "
                "own, takes a call in train_step itself"
            )

    def _call(self, name: str, batch: Any) -> tuple[Any, dict[str, Any]]:
        returned = getattr(self._model, name)(batch)
        if not isinstance(returned, Mapping) or LOSS not in returned:
            got = f"a dict of {', '.join(map(repr, returned))}" if isinstance(returned, Mapping) else type(returned)
            raise UsageError(
                f"{self._where(name)} returns {got}, takes a dict of numbers by name with 'loss' among them, such as "
                '{"loss": loss, **{metric.name: metric.result() for metric in self.metrics}}'
            )
        self._returned |= {str(key) for key in returned}
        told = {str(key): value for key, value in returned.items() if key != LOSS}
        return tf.reduce_mean(tf.convert_to_tensor(returned[LOSS])), told

    def _where(self, name: str) -> str:
        return f"model: {type(self._model).__name__}.{name}"


def results_of(model: Any) -> dict[str, Any]:
    """The values of a model's metrics by name. Keras's own function fails if those of ``compile`` were never used."""
    found: dict[str, Any] = {}
    for metric in model.metrics:
        if getattr(metric, "built", True):
            result = metric.result()
            found |= result if isinstance(result, dict) else {metric.name: result}
    return found


def overrides(keras: KerasVersion, model: Any, name: str) -> bool:
    """Whether the model's class, and not Keras, defines a method."""
    method: Callable[..., Any] = getattr(type(model), name)
    return method is not getattr(keras.keras.Model, name)
