"""A convolutional network on images of CIFAR-10's shape, loaded in augmented batches, on any number of GPUs.

python examples/runai/cifar10_keras.py              on this machine's GPUs, or its CPU
python examples/runai/cifar10_keras.py --gpus 2     on two of them; without GPUs on two CPU engines

The images are drawn here, so that nothing is downloaded: ten colours in ten patterns, and noise.
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import numpy as np

import runai.elastic.keras


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """``count`` images of 32 x 32 x 3 and their classes, the same for the same seed."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 10, count)
    across, down = np.meshgrid(np.linspace(0, 1, 32), np.linspace(0, 1, 32))
    patterns = np.stack([np.sin((1 + k) * 3 * across + (10 - k) * 3 * down) for k in range(10)])
    colours = np.random.default_rng(0).random((10, 3))
    clean = patterns[targets][..., None] * colours[targets][:, None, None, :]
    return (clean + generator.normal(0, 0.5, clean.shape)).astype("float32"), targets


class Augmented(keras.utils.PyDataset):
    """Micro-batches of images, mirrored by chance. It draws from NumPy's global generator, as engines ask."""

    def __init__(self, count: int, batch_size: int) -> None:
        super().__init__()
        self.images, self.targets = images(count, seed=1)
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(range(0, len(self.images), self.batch_size))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        chosen = self.images[rows].copy()
        mirrored = np.random.random(len(chosen)) < 0.5
        chosen[mirrored] = chosen[mirrored, :, :, ::-1]
        return chosen, self.targets[rows]


def network() -> keras.Model:
    layers = keras.layers
    blocks = [
        layer
        for filters in (16, 32)
        for layer in (
            layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
        )
    ]
    return keras.Sequential([keras.Input((32, 32, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(10)])


def main() -> None:
    """Train and print the accuracy on other images."""
    parser = argparse.ArgumentParser(description="Train a small convolutional network with one global batch.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--max-gpu-batch-size", type=int, default=16, help="samples that one GPU can hold")
    parser.add_argument("--gpus", type=int, help="default: those that are there, or the CPU as one")
    options = parser.parse_args()

    runai.elastic.keras.init(options.global_batch_size, options.max_gpu_batch_size, options.gpus)
    model = runai.elastic.keras.models.Model(network())
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    data = Augmented(options.samples, runai.elastic.batch_size)
    held_out = images(256, seed=2)
    told = model.fit(
        data,
        epochs=options.epochs,
        verbose=2 if runai.elastic.master else 0,
        validation_data=held_out,
        callbacks=[keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1)],
    )
    print(f"loss {told.history['loss'][0]:.3f} -> {told.history['loss'][-1]:.3f}")
    print(f"accuracy {model.evaluate(*held_out, verbose=0)[1]:.3f}")


if __name__ == "__main__":
    main()
