"""Handwritten digits in a loop of one's own that goes on through resizes (scikit-learn brings the images).

python examples/runai/elastic_loop.py                            one process, this machine's device
EDT_CPU_SLOTS=3 python examples/runai/elastic_loop.py            three engines; on a machine with GPUs, one a GPU
edt submit examples/runai/elastic_loop.py --max-workers 4        on a platform: as many as there are, at any moment

The weights are the same with any number of engines that have as many threads each (the machine's cores by its slots:
on CPUs the last bits depend on it). The loop's body computes gradients, nothing else; what is behind it runs once.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import runai.elastic.torch
import runai.ga.torch

HELD_OUT = 360
"""Images of 1797 that are never trained on."""


def images_and_classes() -> tuple[Tensor, Tensor]:
    """In an order of our own: the source sorts them by writer."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1797))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    return images, torch.tensor(digits.target)[order]


def network() -> nn.Module:
    """With what makes elastic training hard: batch statistics and dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * 4 * 4, 10),
    )


def main() -> None:
    """Train, then test with the trained weights."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits, in a loop of one's own.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--global-batch", type=int, default=96, help="samples of one update, on any number of GPUs")
    parser.add_argument("--max-gpu-batch", type=int, default=32, help="samples that one GPU can hold at a time")
    options = parser.parse_args()

    images, classes = images_and_classes()
    torch.manual_seed(0)
    model = network()

    runai.elastic.torch.init(options.global_batch, options.max_gpu_batch)
    optimizer = runai.ga.torch.optim.Adam(runai.elastic.steps, model.parameters(), lr=3e-3)
    loader = runai.elastic.torch.loader(
        TensorDataset(images[:-HELD_OUT], classes[:-HELD_OUT]),
        model,
        optimizer,
        epochs=options.epochs,
        metrics=["accuracy"],
    )
    seen = None
    for inputs, targets in loader:
        if seen != (runai.elastic.gpus, runai.elastic.steps):
            seen = runai.elastic.gpus, runai.elastic.steps
            print(f"epoch {loader.epoch}, update {loader.step}: engines: {seen[0]}, micro-batches here: {seen[1]}")
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = functional.cross_entropy(outputs, targets)
        loss.backward()
        optimizer.step()
        loader.report(loss, accuracy=(outputs.argmax(1) == targets).double().mean())

    model.eval()
    with torch.no_grad():
        right = (model(images[-HELD_OUT:]).argmax(1) == classes[-HELD_OUT:]).double().mean()
    print(f"{loader.step} updates; {float(right):.4f} of the held-out images are right")


if __name__ == "__main__":
    main()
