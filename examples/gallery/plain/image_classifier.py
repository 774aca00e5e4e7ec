"""An image classifier: a plain loop over a DataLoader, on scikit-learn's digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 6, 64


def datasets():
    """Training and held-out images, 8 x 8, in an order of our own: the source sorts them by writer."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[order] / 16
    targets = torch.tensor(digits.target)[order]
    return TensorDataset(images[:-360], targets[:-360]), TensorDataset(images[-360:], targets[-360:])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * 4 * 4, 10),
    )


def accuracy(model, held_out):
    model.eval()
    images, targets = held_out.tensors
    with torch.no_grad():
        return (model(images).argmax(1) == targets).double().mean().item()


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train_set, held_out = datasets()
    for epoch in range(EPOCHS):
        model.train()
        for images, targets in DataLoader(train_set, BATCH, shuffle=True):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: accuracy {accuracy(model, held_out):.3f}")
    print(f"held-out accuracy {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
