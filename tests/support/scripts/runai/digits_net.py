"""What both scripts train: a small convolutional network on MNIST's images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import datasets, transforms


class Net(nn.Module):
    """Two convolutions with dropout and two dense layers; log-probabilities of ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.dropout = nn.Dropout(0.25)
        self.dense1 = nn.Linear(16 * 6 * 6, 64)
        self.dense2 = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.conv2(functional.relu(self.conv1(images))))
        hidden = functional.relu(self.dense1(self.dropout(hidden.flatten(1))))
        return functional.log_softmax(self.dense2(hidden), dim=1)


def digits(*, train: bool) -> datasets.MNIST:
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    return datasets.MNIST("data", train=train, download=True, transform=transform)


def test(model: nn.Module, loader: torch.utils.data.DataLoader[object]) -> None:
    """Print the accuracy on images that were not trained on."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, targets in loader:
            right += int((model(images).argmax(1) == targets).sum())
            total += len(targets)
    print(f"accuracy {right}/{total}")
