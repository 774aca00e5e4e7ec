"""Data as they come: a DataLoader with a collate function, a stream with a length, samples that are dataclasses.

The change: ``FabricModel(…).train(…)`` in place of the loop. Of the DataLoader, the data set, the order and the collate
function are used, the size of a micro-batch is an argument of ``train``; the stream is read once.
"""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from fabric_model import FabricModel

EPOCHS, MICRO_BATCH, ENGINES = 12, 8, 4


@dataclass
class Patient:
    """Ten measurements, and how far the illness went in a year, both scaled."""

    measured: Tensor
    progress: Tensor


class Patients(IterableDataset):
    """A stream that knows its length."""

    def __init__(self, first, end):
        found = load_diabetes()
        self.measured = torch.tensor(found.data, dtype=torch.float32)[first:end] * 20
        self.progress = torch.tensor(found.target, dtype=torch.float32)[first:end] / 100 - 1.5

    def __len__(self):
        return len(self.measured)

    def __iter__(self):
        return (Patient(*both) for both in zip(self.measured, self.progress, strict=True))


def collate(patients):
    return Patient(torch.stack([each.measured for each in patients]), torch.stack([each.progress for each in patients]))


def datasets():
    return DataLoader(list(Patients(0, 350)), MICRO_BATCH, shuffle=True, collate_fn=collate), Patients(350, 442)


def network():
    return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1), nn.Flatten(0))


def loss_of(model, batch):
    return functional.mse_loss(model(batch.measured), batch.progress)


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    FabricModel(model, datasets, None, optimizer, training_step=loss_of).train(EPOCHS, MICRO_BATCH, ENGINES)
    held_out = datasets()[1]
    with torch.no_grad():
        print(f"held-out loss {loss_of(model, collate(list(held_out))):.3f}")


if __name__ == "__main__":
    main()
