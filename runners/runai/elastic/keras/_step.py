"""One update of a Keras model out of micro-batches, on one device. Room: runners; Keras 3 on TensorFlow.

What ``fit`` is given is a global batch. It goes through the model in parts that the device can hold, each part's mean
gradient counts by its share of the samples, and the optimizer takes one step: for a loss that is a mean over samples
the step of the whole batch, however many samples the last one of an epoch has. Floating-point variables that a forward
pass moves (batch normalization's moving averages) become the same weighted mean over the parts, each of which starts
from what was before: as our engines do it, so that they do not depend on the number of devices either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from edt_runner.tensorflow.keras3 import Keras3

_KERAS = Keras3()


def train_step_of(model: Any, most: int) -> Callable[[Any], dict[str, Any]]:
    """A ``train_step`` for ``model``.

    Args:
        model: compiled by the time that it is called.
        most: samples of a part.
    """

    def train_step(data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        rows = tf.shape(_first(x))[0]
        parts = tf.maximum(1, (rows + most - 1) // most)
        base, extra = rows // parts, rows % parts
        weights = model.trainable_weights
        moving = [w for w in model.non_trainable_weights if keras.backend.is_float_dtype(w.dtype)]
        before = [tf.identity(_KERAS.value(weight)) for weight in moving]
        used: list[bool] = []

        def one(index: Any, sums: list[Any], moves: list[Any]) -> tuple[Any, list[Any], list[Any]]:
            start = index * base + tf.minimum(index, extra)
            size = base + tf.cast(index < extra, rows.dtype)
            share = tf.cast(size, tf.float64) / tf.cast(tf.maximum(rows, 1), tf.float64)
            for weight, value in zip(moving, before, strict=True):
                weight.assign(value)
            part = [_rows(each, start, size) for each in (x, y, sample_weight)]
            gradients = _gradients(model, weights, *part)
            used[:] = [gradient is not None for gradient in gradients]
            return (
                index + 1,
                [held if g is None else held + _dense(g, held.dtype) * tf.cast(share, held.dtype)
                 for held, g in zip(sums, gradients, strict=True)],
                [move + (_KERAS.value(weight) - value) * tf.cast(share, value.dtype)
                 for move, weight, value in zip(moves, moving, before, strict=True)],
            )  # fmt: skip

        zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
        _, sums, moves = tf.while_loop(
            lambda index, *_: index < parts,
            one,
            [tf.constant(0), zeros, [tf.zeros_like(value) for value in before]],
            parallel_iterations=1,
        )
        for weight, value, move in zip(moving, before, moves, strict=True):
            weight.assign(value + move)
        pairs = [(total if seen else None, weight) for total, weight, seen in zip(sums, weights, used, strict=True)]
        model.optimizer.apply_gradients(pairs)
        return dict(model.get_metrics_result())

    return train_step


def _gradients(model: Any, weights: list[Any], x: Any, y: Any, sample_weight: Any) -> list[Any]:
    """Of the mean loss of one part; its metrics are counted."""
    with tf.GradientTape() as tape:
        outputs = _KERAS.call(model, x, training=True)
        loss = _KERAS.compute_loss(model, x, y, outputs, sample_weight, training=True)
        scaled = model.optimizer.scale_loss(loss)
    model._loss_tracker.update_state(loss, sample_weight=tf.shape(_first(x))[0])
    model.compute_metrics(x, y, outputs, sample_weight=sample_weight)
    return list(tape.gradient(scaled, weights))


def _first(x: Any) -> Any:
    return next(leaf for leaf in keras.tree.flatten(x) if leaf is not None)


def _rows(nest: Any, start: Any, size: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[start : start + size], nest)


def _dense(gradient: Any, dtype: Any) -> Any:
    return tf.cast(tf.convert_to_tensor(gradient), dtype)
