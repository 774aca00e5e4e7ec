"""A model's forward and backward pass as TensorFlow graphs. Room: runners.

Each is two graphs, one in the other. The inner one is what Keras's own train_step does, save the optimizer's step;
tracing it shows which variables a pass moves. The outer one sets the seed generators, runs the inner one, reads what
was moved and puts everything back: between two micro-batches all variables hold the committed values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from edt_runner.engine.permutation import key_of
from edt_runner.tensorflow.generation import Generation
from edt_runner.tensorflow.graphs import Effects, effects_of
from edt_runner.tensorflow.variables import Variables

_SEED_STATE = "seed_generator_state"


@dataclass(frozen=True)
class Pass:
    """One traced pass.

    ``run(leaves, share, count, seeds)`` takes the batch's arrays, the micro-batch's share of the step, its count of
    samples and ``seeds``, and returns the gradients that there are, and one flat tensor: in training

        float variables x share | a flag each: it changed | integer steps | 1 | count | loss x count | metric states

    and in evaluation what follows the 1.
    """

    run: Any
    used: tuple[bool, ...]
    """Of each trainable variable: the loss depends on it."""
    floats: tuple[Any, ...]
    """Variables that the pass moves."""
    integers: tuple[Any, ...]
    generators: tuple[Any, ...]
    foreign: tuple[str, ...]
    """Variables that the pass writes and that are none of the model's."""
    random: tuple[str, ...]
    """Ops that draw from a hidden state."""

    def seeds(self, seed: int) -> Any:
        """The numbers that its generators begin with, a pure function of ``seed``."""
        keys = [key_of(seed, index) for index in range(len(self.generators))]
        return np.array([[key & 0x7FFFFFFF, key >> 32 & 0x7FFFFFFF] for key in keys], np.int64).reshape(-1, 2)


class Passes:
    """Traces passes over batches of given shapes.

    Args:
        dtype: TensorFlow's type of leaves.
    """

    def __init__(self, keras: Generation, model: Any, variables: Variables, dtype: Any) -> None:
        self._keras, self._model, self._variables, self._dtype = keras, model, variables, dtype

    def train(self, signature: Any) -> Pass:
        """``signature``: a batch of ``tf.TensorSpec``."""
        used: list[bool] = []

        def forward_and_backward(x: Any, y: Any = None, weights: Any = None) -> Any:
            with tf.GradientTape() as tape:
                outputs, loss = self._forward(x, y, weights, training=True)
                scaled = self._keras.scale_loss(self._model.optimizer, loss)
            gradients = tape.gradient(scaled, self._variables.trainable)
            self._model.compute_metrics(x, y, outputs, weights)
            used[:] = [gradient is not None for gradient in gradients]
            return loss, [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

        return self._trace(forward_and_backward, signature, used)

    def evaluate(self, signature: Any) -> Pass:
        def forward(x: Any, y: Any = None, weights: Any = None) -> Any:
            outputs, loss = self._forward(x, y, weights, training=False)
            self._model.compute_metrics(x, y, outputs, weights)
            return loss, []

        return self._trace(forward, signature, None)

    def _forward(self, x: Any, y: Any, weights: Any, *, training: bool) -> tuple[Any, Any]:
        outputs = self._keras.call(self._model, x, training=training)
        return outputs, self._keras.compute_loss(self._model, x, y, outputs, weights, training=training)

    def _trace(self, function: Any, signature: Any, used: list[bool] | None) -> Pass:
        specs = tf.nest.flatten(signature)
        flat = tf.function(
            lambda *leaves: function(*tf.nest.pack_sequence_as(signature, leaves)), autograph=self._keras.autograph
        )
        inner = flat.get_concrete_function(*specs)
        effects = effects_of(inner)
        variables, training = self._variables, used is not None
        generators = self._generators(effects)
        own = {id(v) for v in (*variables.weights, *variables.metrics, *variables.shown, *generators)}
        written = {id(variable) for variable in effects.written}
        drawn = {id(variable) for variable in generators}
        state = [variable for variable in variables.weights if id(variable) in written - drawn]
        floats = tuple(variable for variable in state if variable.dtype.is_floating)
        integers = tuple(variable for variable in state if variable.dtype.is_integer or variable.dtype.is_bool)
        kept = [*floats, *integers, *variables.metrics, *variables.shown, *generators]

        def run(leaves: Sequence[Any], share: Any, count: Any, seeds: Any) -> Any:
            before = {id(variable): variable.read_value() for variable in kept}
            for index, generator in enumerate(generators):
                _set_generator(generator, seeds[index])
            loss, gradients = inner(*leaves)
            tail = [[count, count * self._number(loss)]]
            moved = [(v, self._flat(v - before[id(v)])) for v in variables.metrics]
            tail += [move * count if id(v) in variables.by_batch else move for v, move in moved]
            if training:
                changed = [tf.reduce_any(tf.not_equal(v, before[id(v)])) for v in floats]
                steps = [tf.cast(v, tf.int64) - tf.cast(before[id(v)], tf.int64) for v in integers]
                moves = [self._flat(v) * share for v in floats]
                moves += [self._flat(flag) for flag in changed] + [self._flat(step) for step in steps]
                tail = [*moves, tf.ones([1], self._dtype), *tail]
            for variable in kept:
                variable.assign(before[id(variable)])
            return [_on_host(gradient) for gradient in gradients], _on_host(tf.concat(tail, 0))

        number, pair = tf.TensorSpec([], self._dtype), tf.TensorSpec([len(generators), 2], tf.int64)
        outer = tf.function(run, autograph=False).get_concrete_function(specs, number, number, pair)
        return Pass(
            run=outer,
            used=tuple(used or ()),
            floats=floats,
            integers=integers,
            generators=tuple(generators),
            foreign=tuple(v.name.partition(":")[0] for v in effects.written if id(v) not in own),
            random=tuple(effects.random),
        )

    def _generators(self, effects: Effects) -> list[Any]:
        """Those of the layers, then those that only tracing shows: the global one, and whatever a user keeps."""
        known = self._keras.generators(self._model)
        found = [v for v in effects.written if _SEED_STATE in v.name and v.shape.as_list() == [2]]
        drawn = [v for v in effects.drawn if v.dtype.is_integer]
        ordered = {id(variable): variable for variable in (*known, *found, *drawn)}
        met = {id(variable) for variable in (*effects.written, *effects.drawn)}
        return [variable for key, variable in ordered.items() if key in met]

    def _flat(self, value: Any) -> Any:
        return tf.reshape(self._number(value), [-1])

    def _number(self, value: Any) -> Any:
        return tf.cast(value, self._dtype)


def _set_generator(generator: Any, pair: Any) -> None:
    """Keras's states are [seed, position]; those of ``tf.random.Generator`` end in their key, after counters."""
    if _SEED_STATE in generator.name:
        generator.assign(tf.cast(pair, generator.dtype))
    else:
        counters = tf.zeros([generator.shape[0] - 1], generator.dtype)
        key = tf.cast(pair[0] * 2**31 + pair[1], generator.dtype)
        generator.assign(tf.concat([counters, [key]], 0))


def _on_host(tensor: Any) -> Any:
    with tf.device("/CPU:0"):
        return tf.identity(tensor)
