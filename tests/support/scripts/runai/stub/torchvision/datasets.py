"""MNIST's shape: grey images, 28 x 28, each digit a bright bar in a row of its own, in noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset


class MNIST(Dataset[Any]):
    """1,024 images to train on, 512 to test with."""

    def __init__(
        self, root: str, train: bool = True, transform: Callable[[Any], Any] | None = None, download: bool = False
    ) -> None:
        count = 1024 if train else 512
        generator = torch.Generator().manual_seed(count)
        self.targets = torch.arange(count) % 10
        self.data = torch.randint(0, 60, (count, 28, 28), generator=generator, dtype=torch.uint8)
        for image, target in zip(self.data, self.targets.tolist(), strict=True):
            image[3 + 2 * target : 5 + 2 * target, 4:24] += 180
        self._transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.data[index]
        return (self._transform(image) if self._transform else image), int(self.targets[index])
