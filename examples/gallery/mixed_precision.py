"""Mixed precision: by default fp16, which scales the loss; with the word ``bf16`` behind the script, that.

The change: ``FabricModel(…).train(…)`` in place of the loop, with ``precision``. The scale of the loss belongs to the
training's state; a step whose summed gradient overflows is left out by all engines.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

EPOCHS, MICRO_BATCH, ENGINES = 8, 16, 4
PRECISION = sys.argv[1] if len(sys.argv) > 1 else "fp16"


def datasets():
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    targets = torch.tensor(digits.target)[order]
    return TensorDataset(images[:-360], targets[:-360]), TensorDataset(images[-360:], targets[-360:])


def network():
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 10))


def accuracy(model, held_out):
    model.eval()
    images, targets = held_out.tensors
    with torch.no_grad():
        return (model(images).argmax(1) == targets).double().mean().item()


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    FabricModel(model, datasets, functional.cross_entropy, optimizer).train(
        EPOCHS, MICRO_BATCH, ENGINES, precision=PRECISION
    )
    print(f"held-out accuracy {accuracy(model, datasets()[1]):.3f}")


if __name__ == "__main__":
    main()
