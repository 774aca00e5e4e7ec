"""A script as users of ``runai.ga.torch`` have it: an optimizer by its name, or one that was wrapped."""

from __future__ import annotations

import argparse

import torch
from digits_net import Net, digits, test
from torch.nn import functional

import runai.ga.torch.optim


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--test-batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--wrap", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(27)

    train_loader = torch.utils.data.DataLoader(digits(train=True), batch_size=16, shuffle=True)
    test_loader = torch.utils.data.DataLoader(digits(train=False), batch_size=options.test_batch_size)
    model = Net()
    if options.wrap:
        optimizer = runai.ga.torch.optim.Optimizer(torch.optim.Adam(model.parameters(), lr=0.01), options.steps)
    else:
        optimizer = runai.ga.torch.optim.Adam(options.steps, model.parameters(), lr=0.01)
    for _ in range(options.epochs):
        model.train()
        for images, targets in train_loader:
            optimizer.zero_grad()
            functional.nll_loss(model(images), targets).backward()
            optimizer.step()
    print(f"{optimizer.runai.step} of {optimizer.runai.steps} {type(optimizer).__name__}")
    test(model, test_loader)


if __name__ == "__main__":
    main()
