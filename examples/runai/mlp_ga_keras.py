"""Gradient accumulation with Keras 3: batches of 50 on a GPU that holds 10, on handwritten digits from scikit-learn.

python examples/runai/mlp_ga_keras.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import runai.ga.keras

HELD_OUT = 297


def network() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")]
    )


def main() -> None:
    """Train in small batches and in whole ones, and go on from a file that was saved between two updates."""
    parser = argparse.ArgumentParser(description="Accumulate gradients over several batches.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=50, help="samples of one update")
    parser.add_argument("--steps", type=int, default=5, help="batches that they come in")
    options = parser.parse_args()
    source = load_digits()
    order = np.random.default_rng(0).permutation(len(source.target))
    images, targets = source.data[order].astype("float32") / 16, source.target[order]
    train, held_out = (images[:-HELD_OUT], targets[:-HELD_OUT]), (images[-HELD_OUT:], targets[-HELD_OUT:])

    optimizers = {
        "in small batches": (runai.ga.keras.optimizers.Adam(options.steps, learning_rate=5e-3), options.steps),
        "in whole ones": (keras.optimizers.Adam(5e-3), 1),
    }
    trained = {}
    for name, (optimizer, steps) in optimizers.items():
        model = trained[name] = network()
        model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        size = options.batch_size // steps
        model.fit(*train, batch_size=size, epochs=options.epochs, shuffle=False, verbose=0)
        accuracy = model.evaluate(*held_out, verbose=0)[1]
        print(f"{name} of {size}: {int(model.optimizer.iterations)} updates, accuracy {accuracy:.3f}")
    both = zip(*(model.get_weights() for model in trained.values()), strict=True)
    print(f"the weights differ by {max(np.abs(one - other).max() for one, other in both):.1e} at most")

    with tempfile.TemporaryDirectory() as folder:
        trained["in small batches"].save(Path(folder) / "model.keras")
        loaded = keras.models.load_model(Path(folder) / "model.keras")
    loaded.fit(*train, batch_size=options.batch_size // options.steps, verbose=0)
    print(f"loaded and trained on: accuracy {loaded.evaluate(*held_out, verbose=0)[1]:.3f}")


if __name__ == "__main__":
    main()
