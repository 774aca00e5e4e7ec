"""Handwritten digits with Keras: an elastic training on real images that need no download (scikit-learn brings them).

python examples/digits_tensorflow/main.py --epochs 20         on this machine's own slots
edt submit examples/digits_tensorflow/main.py --framework edtTensorflow --max-workers 4 on a platform
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from fabric_model import FabricModel

keras = tf.keras

HELD_OUT = 360
"""Images of 1797 that no engine ever trains on."""


class Digits:
    """Images of 8 x 8 and the digits that they show."""

    def __init__(self, images: np.ndarray, targets: np.ndarray) -> None:
        self.images, self.targets = images, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.images[index], self.targets[index]


def datasets() -> tuple[Digits, Digits]:
    """Training and held-out images, in an order of our own: the source sorts them by writer."""
    digits = load_digits()
    order = np.random.default_rng(1797).permutation(len(digits.target))
    images = digits.images.astype("float32")[order, ..., None] / 16
    targets = digits.target[order]
    return Digits(images[:-HELD_OUT], targets[:-HELD_OUT]), Digits(images[-HELD_OUT:], targets[-HELD_OUT:])


def network() -> keras.Model:
    """A small convolutional network with what makes elastic training hard: batch statistics and dropout."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same"),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.Conv2D(64, 3, padding="same"),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    """Train; the model's files are in RESULT_DIR/model afterwards."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="samples of one micro-batch")
    parser.add_argument("--engines", type=int, default=4, help="E: micro-batches of one step, the most engines")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    options = parser.parse_args()

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(options.learning_rate)
    FabricModel(network(), datasets, loss, optimizer, metrics=["accuracy"]).train(
        options.epochs, options.batch_size, options.engines, validation_freq=5, checkpoint_freq=0
    )
    print(f"trained for {options.epochs} epochs")


if __name__ == "__main__":
    main()
