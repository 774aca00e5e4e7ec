"""One training in Keras, as a user writes it: with FabricModel, with ``model.fit``, or with a loop of one's own that
adds up gradients. See ``throughput``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

sys.path.insert(0, str(Path(__file__).parent))  # engines run this file from another place

from _turns import Turn

NETWORKS = ("conv", "dense-25M")
SHAPE, CLASSES = (32, 32, 3), 10
EPOCHS, SAMPLES, IMAGES = 1000, 1 << 18, 4096
"""The images come again and again: the end of an epoch, at which an engine writes a checkpoint, lies out of the way."""


def network(name: str) -> Any:
    """115,000 parameters in convolutions on 32 x 32 images, or 25 million in dense layers."""
    if name == "conv":
        blocks: list[Any] = []
        for filters in (32, 64, 128):
            blocks += [layers.Conv2D(filters, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
            blocks += [layers.MaxPooling2D()]
        return keras.Sequential([keras.Input(SHAPE), *blocks, layers.Flatten(), layers.Dense(CLASSES)])
    dense = [layers.Dense(2048, activation="relu") for _ in range(5)]
    return keras.Sequential(
        [keras.Input(SHAPE), layers.Flatten(), *dense, layers.Dense(1000, "relu"), layers.Dense(CLASSES)]
    )


def images() -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    return generator.standard_normal((IMAGES, *SHAPE), dtype=np.float32), generator.integers(0, CLASSES, IMAGES)


class Images:
    def __init__(self) -> None:
        self._images, self._labels = images()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._images[index % IMAGES], self._labels[index % IMAGES]


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer() -> Any:
    return keras.optimizers.SGD(1e-3, momentum=0.9)


def ours(name: str, batch: int, logical: int, turn: Turn) -> None:
    from fabric_model import FabricModel

    class Logger:
        def on_train_begin(self) -> None: ...
        def on_train_end(self) -> None: ...
        def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...
        def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, engines: int) -> None:
            turn.step(iteration)

    FabricModel(
        network(name), lambda: (Images(), None), loss(), optimizer(), metrics=[], worker_logger_callback=Logger()
    ).train(EPOCHS, batch, logical, checkpoint_freq=0, recovery_interval=1e6)


def fit(name: str, batch: int, turn: Turn) -> None:
    class Note(keras.callbacks.Callback):  # type: ignore[misc]
        steps = 0

        def on_train_batch_end(self, number: int, logs: Any = None) -> None:
            self.steps += 1
            turn.step(self.steps)

    model = network(name)
    model.compile(optimizer=optimizer(), loss=loss())
    x, y = images()
    model.fit(x, y, batch_size=batch, epochs=EPOCHS, verbose=0, callbacks=[Note()])


def accumulate(name: str, batch: int, parts: int, turn: Turn) -> None:
    """A loop that adds up the gradients of so many micro-batches and then applies them."""
    import tensorflow as tf

    model, loss_of, applied = network(name), loss(), optimizer()
    weights = model.trainable_variables
    applied.build(weights)
    sums = [tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in weights]

    @tf.function  # type: ignore[untyped-decorator]
    def add(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss_of(y, model(x, training=True)) / parts
        for total, gradient in zip(sums, tape.gradient(value, weights), strict=True):
            total.assign_add(gradient)
        return value

    @tf.function  # type: ignore[untyped-decorator]
    def apply() -> None:
        applied.apply_gradients(zip(sums, weights, strict=True))
        for total in sums:
            total.assign(tf.zeros_like(total))

    samples = tf.data.Dataset.from_tensor_slices(images()).shuffle(IMAGES).repeat().batch(batch).prefetch(2)
    for number, (x, y) in enumerate(samples, 1):
        add(x, y)
        if number % parts == 0:
            apply()
            turn.step(number // parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("ours", "fit", "deterministic", "accumulate"))
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("batch", type=int, help="samples of a micro-batch")
    parser.add_argument("logical", type=int, help="E")
    parser.add_argument("turn", type=int)
    chosen = parser.parse_args()
    turn = Turn(chosen.turn)
    if chosen.who == "ours":
        ours(chosen.network, chosen.batch, chosen.logical, turn)
        return
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ["OMP_NUM_THREADS"]))
    if chosen.who == "deterministic":
        tf.config.experimental.enable_op_determinism()
        keras.utils.set_random_seed(1)
    if chosen.who == "accumulate":
        accumulate(chosen.network, chosen.batch, chosen.logical, turn)
    else:
        fit(chosen.network, chosen.batch * chosen.logical, turn)


if __name__ == "__main__":
    main()
