"""A script as users of ``runai.elastic.torch`` have it: the loader's batch is ``batch_size``, DataParallel around."""

from __future__ import annotations

import argparse

import torch
from digits_net import Net, digits, test
from torch.nn import functional

import runai.elastic.torch
import runai.ga.torch.optim


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--test-batch-size", type=int, default=256)
    options = parser.parse_args()
    torch.manual_seed(27)

    runai.elastic.torch.init(256, 32)

    train_loader = torch.utils.data.DataLoader(digits(train=True), batch_size=runai.elastic.batch_size, shuffle=True)
    test_loader = torch.utils.data.DataLoader(digits(train=False), batch_size=options.test_batch_size)
    model = torch.nn.DataParallel(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    optimizer = runai.ga.torch.optim.Optimizer(optimizer, runai.elastic.steps)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    for _ in range(options.epochs):
        model.train()
        for images, targets in train_loader:
            optimizer.zero_grad()
            functional.nll_loss(model(images), targets).backward()
            optimizer.step()
        scheduler.step()
    print(f"{runai.elastic.steps} steps of {runai.elastic.batch_size} on {runai.elastic.gpus}")
    test(model, test_loader)


if __name__ == "__main__":
    main()
