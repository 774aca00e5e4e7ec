"""A loop of one's own: clipping, and a learning rate that falls with every step."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 8, 64


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
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.99)
    train_set, held_out = datasets()
    for _ in range(EPOCHS):
        for images, targets in DataLoader(train_set, BATCH, shuffle=True):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    print(f"held-out accuracy {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
