"""Values of metrics from sums, which can be added up over micro-batches, steps and engines.

A Keras metric has states that add up. Its value is computed from their sums, so metrics that are no means (AUC,
precision) are correct, too. A number that a train_step or test_step of the model's own returns has two sums: value x
samples, and samples.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from edt_runner.frameworks.tensorflow.keras_version import KerasVersion
from edt_runner.frameworks.tensorflow.own_steps import LOSS, OwnSteps, results_of
from edt_runner.frameworks.tensorflow.variables import Variables, parts_of, sizes_of


class Metrics:
    """The metrics of one compiled model, whose variables exist.

    Args:
        keras: the model's version of Keras.
        model: the compiled model.
        variables: the model's variables.
        own: the model's own steps, which have been traced once.
        dtype: TensorFlow's type of flat vectors.
    """

    def __init__(self, keras: KerasVersion, model: Any, variables: Variables, own: OwnSteps, dtype: Any) -> None:
        self._keras, self._model, self._variables, self._own, self._dtype = keras, model, variables.metrics, own, dtype
        self._states = sum(sizes_of(self._variables))
        self.width = self._states + 2 * len(own.told)
        """How many sums there are."""

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        """The metrics by name. A metric of a model with own steps is left out if the sums are of a step that does not
        update it."""
        found: dict[str, float] = {}
        states, told = sums[: self._states], sums[self._states :]
        shown, moved = self._valuing(tf.constant(states, self._dtype)) if self._states else ({}, {})
        for name, value in shown.items():
            if name != LOSS and self._own.tells(name) and (name not in moved or bool(moved[name])):
                numbers = value.numpy().reshape(-1).tolist()
                several = len(numbers) > 1  # the metric has a value for each class
                found |= {f"{name}_{index}" if several else name: number for index, number in enumerate(numbers)}
        pairs = zip(self._own.told, told[::2], told[1::2], strict=True)
        return found | {name: total / count for name, total, count in pairs if count}

    @functools.cached_property
    def _valuing(self) -> Any:
        spec = tf.TensorSpec([self._states], self._dtype)
        return tf.function(self._results, autograph=False).get_concrete_function(spec)

    def _results(self, states: Any) -> Any:
        """The metrics' values for summed states; and with own steps, whether a state of theirs differs from 0."""
        before = [variable.read_value() for variable in self._variables]
        parts = parts_of(states, self._variables)
        for variable, first, part in zip(self._variables, before, parts, strict=True):
            variable.assign(first + part)
        values = {name: tf.identity(value) for name, value in results_of(self._model).items()}
        moved = self._moved(parts) if self._own.any else {}
        for variable, first in zip(self._variables, before, strict=True):
            variable.assign(first)
        return values, moved

    def _moved(self, parts: Sequence[Any]) -> dict[str, Any]:
        of_variable = {id(variable): part for variable, part in zip(self._variables, parts, strict=True)}
        found: dict[str, Any] = {}
        for metric in self._model.metrics:
            own = [of_variable[key] for key in map(id, map(self._keras.value, metric.variables)) if key in of_variable]
            if own:
                flag = tf.reduce_any(tf.stack([tf.reduce_any(tf.not_equal(part, 0)) for part in own]))
                result = metric.result()
                found |= dict.fromkeys(result if isinstance(result, dict) else [metric.name], flag)
        return found
