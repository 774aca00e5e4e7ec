"""A moving average of the weights; training ends when the held-out loss no longer falls, and the best epoch is kept."""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH, PATIENCE = 30, 64, 2


def datasets():
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    targets = torch.tensor(digits.target)[order]
    return TensorDataset(images[:-360], targets[:-360]), TensorDataset(images[-360:], targets[-360:])


def network():
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))


def accuracy(model, held_out):
    images, targets = held_out.tensors
    with torch.no_grad():
        return (model(images).argmax(1) == targets).double().mean().item()


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer.register_step_post_hook(lambda *step: average.update_parameters(model))
    train_set, held_out = datasets()
    best, best_loss, waited = copy.deepcopy(model.state_dict()), float("inf"), 0
    for _ in range(EPOCHS):
        for images, targets in DataLoader(train_set, BATCH, shuffle=True):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
        images, targets = held_out.tensors
        with torch.no_grad():
            loss = functional.cross_entropy(model(images), targets).item()
        waited = 0 if loss < best_loss else waited + 1
        if loss < best_loss:
            best, best_loss = copy.deepcopy(model.state_dict()), loss
        if waited == PATIENCE:
            break
    torch.save(best, "model_best.pt")
    print(f"average: held-out accuracy {accuracy(average, held_out):.3f}")


if __name__ == "__main__":
    main()
