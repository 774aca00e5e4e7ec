"""Mixed precision: by default fp16, which scales the loss; with the word ``bf16`` behind the script, that."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 8, 64
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
    train_set, held_out = datasets()
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[PRECISION]
    scaler = torch.amp.GradScaler("cpu", enabled=PRECISION == "fp16")
    model.train()
    for _ in range(EPOCHS):
        for images, targets in DataLoader(train_set, BATCH, shuffle=True):
            optimizer.zero_grad()
            with torch.autocast("cpu", half):
                loss = functional.cross_entropy(model(images), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    print(f"held-out accuracy {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
