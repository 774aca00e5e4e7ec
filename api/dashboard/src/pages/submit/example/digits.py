"""Handwritten digits: an elastic training on real images that need no download (scikit-learn brings them).

python examples/digits/main.py --epochs 20         on this machine's own slots
edt submit examples/digits/main.py --max-workers 4 on a platform
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from fabric_model import FabricModel

HELD_OUT = 360
"""Images of 1797 that no engine ever trains on."""


def datasets() -> tuple[Dataset[tuple[Tensor, ...]], Dataset[tuple[Tensor, ...]]]:
    """Training and held-out images, 8 x 8, in an order of our own: the source sorts them by writer."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1797))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    targets = torch.tensor(digits.target)[order]
    return (
        TensorDataset(images[:-HELD_OUT], targets[:-HELD_OUT]),
        TensorDataset(images[-HELD_OUT:], targets[-HELD_OUT:]),
    )


def network() -> nn.Module:
    """A small convolutional network with what makes elastic training hard: batch statistics and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 10),
    )


def main() -> None:
    """Train; the model's files are in RESULT_DIR/model afterwards."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="samples of one micro-batch")
    parser.add_argument("--engines", type=int, default=4, help="E: micro-batches of one step, the most engines")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    options = parser.parse_args()

    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    FabricModel(model, datasets, functional.cross_entropy, optimizer).train(
        options.epochs, options.batch_size, options.engines, validation_freq=5, checkpoint_freq=0
    )
    print(f"trained for {options.epochs} epochs")


if __name__ == "__main__":
    main()
