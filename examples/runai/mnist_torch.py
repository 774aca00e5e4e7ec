"""The same global batch on any number of GPUs: handwritten digits at MNIST's size, from scikit-learn.

python examples/runai/mnist_torch.py                on this machine's GPUs, or its CPU
python examples/runai/mnist_torch.py --gpus 4       what each of four GPUs would get; the same training
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import runai.elastic.torch
import runai.ga.torch.optim

HELD_OUT = 297


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,500 images to train on and the held-out ones, 1 x 28 x 28."""
    source = load_digits()
    order = torch.randperm(len(source.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(source.images, dtype=torch.float32)[order, None] / 16
    images, targets = functional.interpolate(images, size=28), torch.tensor(source.target)[order]
    return (
        TensorDataset(images[:-HELD_OUT], targets[:-HELD_OUT]),
        TensorDataset(images[-HELD_OUT:], targets[-HELD_OUT:]),
    )


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 10),
    )


def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    images, targets = data.tensors
    with torch.no_grad():
        guesses: Tensor = model(images.to(device)).argmax(1).cpu()
    return float((guesses == targets).float().mean())


def main() -> None:
    """Train and print the accuracy on held-out images."""
    parser = argparse.ArgumentParser(description="Train with one global batch on any number of GPUs.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--global-batch-size", type=int, default=250)
    parser.add_argument("--max-gpu-batch-size", type=int, default=40, help="samples that one GPU can hold")
    parser.add_argument("--gpus", type=int, help="default: those that are there, or the CPU as one")
    options = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, held_out = digits()

    runai.elastic.torch.init(options.global_batch_size, options.max_gpu_batch_size, options.gpus)
    elastic = runai.elastic
    print(
        f"{elastic.gpus} GPUs x {elastic.steps} steps of at most {elastic.batch_size}: {elastic.sizes} samples a step"
    )

    model = nn.DataParallel(network().to(device))
    optimizer = runai.ga.torch.optim.SGD(elastic.steps, model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(train, batch_sampler=runai.elastic.torch.batches(train, shuffle=True))
    for epoch in range(options.epochs):
        for images, targets in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images.to(device)), targets.to(device))
            loss.backward()
            optimizer.step(samples=len(images))  # updates with the last step of each global batch
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, held_out, device):.3f}")


if __name__ == "__main__":
    main()
