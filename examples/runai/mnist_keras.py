"""A Keras model on any number of GPUs: handwritten digits at MNIST's size, from scikit-learn.

python examples/runai/mnist_keras.py                on this machine's GPUs, or its CPU
python examples/runai/mnist_keras.py --gpus 2       on two of them; without GPUs on two CPU engines
edt submit examples/runai/mnist_keras.py --framework edtTensorflow --max-workers 4
                                                    on a platform, while GPUs come and go
"""

from __future__ import annotations

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits

import runai.elastic.keras

HELD_OUT = 297


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """1,500 images to train on and the held-out ones, of 28 x 28 in a row of 784."""
    source = load_digits()
    order = np.random.default_rng(0).permutation(len(source.target))
    images = np.pad(source.images[order].astype("float32") / 16, ((0, 0), (3, 3), (3, 3))).repeat(2, 1).repeat(2, 2)
    images, targets = images.reshape(len(images), -1), source.target[order]
    return (images[:-HELD_OUT], targets[:-HELD_OUT]), (images[-HELD_OUT:], targets[-HELD_OUT:])


def network() -> keras.Model:
    layers = keras.layers
    hidden = [layer for _ in range(2) for layer in (layers.Dense(128, activation="relu"), layers.Dropout(0.2))]
    return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10, activation="softmax")])


def main() -> None:
    """Train and print the accuracy on held-out images."""
    parser = argparse.ArgumentParser(description="Train with one global batch on any number of GPUs.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--global-batch-size", type=int, default=125)
    parser.add_argument("--max-gpu-batch-size", type=int, default=40, help="samples that one GPU can hold")
    parser.add_argument("--gpus", type=int, help="default: those that are there, or the CPU as one")
    options = parser.parse_args()

    runai.elastic.keras.init(options.global_batch_size, options.max_gpu_batch_size, options.gpus)
    elastic = runai.elastic
    if elastic.master:
        print(f"{elastic.gpus} GPUs x {elastic.steps} steps of at most {elastic.batch_size}")
    train, held_out = digits()

    model = runai.elastic.keras.models.Model(network())
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    # On several GPUs, engines run this script from the top to here; only the first process goes on.
    told = model.fit(
        *train,
        batch_size=elastic.batch_size,
        epochs=options.epochs,
        verbose=2 if elastic.master else 0,
        validation_data=held_out,
    )
    print(f"loss {told.history['loss'][0]:.3f} -> {told.history['loss'][-1]:.3f}")
    print(f"accuracy {model.evaluate(*held_out, verbose=0)[1]:.3f}")


if __name__ == "__main__":
    main()
