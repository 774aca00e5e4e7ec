"""A small convolutional network, trained elastically on made-up digits: a job that needs no code and no data.

The samples are pictures of the size of MNIST's (28 x 28, ten classes): each is its class's pattern with noise over it.
They are made from a sample's number, so that every engine sees the same ones.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from fabric_model import FabricModel

SIZE, CLASSES = 28, 10
TRAIN_SAMPLES, TEST_SAMPLES = 2000, 400
NOISE = 0.5
ENGINES = 4
"""Micro-batches of a step, and so the most engines that are of use."""


class MadeUpDigits(Dataset[tuple[torch.Tensor, int]]):
    """Pictures with their classes. ``first`` is the number of the first sample."""

    def __init__(self, first: int, length: int) -> None:
        self._first, self._length = first, length
        coarse = torch.rand(CLASSES, 1, SIZE // 4, SIZE // 4, generator=torch.Generator().manual_seed(0))
        self._patterns = functional.interpolate(coarse, size=(SIZE, SIZE))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        number = self._first + index
        noise = torch.randn(1, SIZE, SIZE, generator=torch.Generator().manual_seed(number))
        kind = number % CLASSES
        return self._patterns[kind] + NOISE * noise, kind


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.classifier(self.features(pictures))
        return found


def datasets() -> tuple[MadeUpDigits, MadeUpDigits]:
    return MadeUpDigits(0, TRAIN_SAMPLES), MadeUpDigits(TRAIN_SAMPLES, TEST_SAMPLES)


def main() -> None:
    parser = argparse.ArgumentParser(description="A prebuilt model: made-up digits.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    given, _ = parser.parse_known_args()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=given.lr, momentum=given.momentum)
    FabricModel(net, datasets, functional.cross_entropy, optimizer).train(given.epochs, given.batch_size, ENGINES)


main()
