"""Data as they come: a DataLoader with a collate function, a stream with a length, samples that are dataclasses."""

from dataclasses import dataclass

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

EPOCHS, BATCH = 12, 32


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
    return DataLoader(list(Patients(0, 350)), BATCH, shuffle=True, collate_fn=collate), Patients(350, 442)


def network():
    return nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1), nn.Flatten(0))


def loss_of(model, batch):
    return functional.mse_loss(model(batch.measured), batch.progress)


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader, held_out = datasets()
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    with torch.no_grad():
        print(f"held-out loss {loss_of(model, collate(list(held_out))):.3f}")


if __name__ == "__main__":
    main()
