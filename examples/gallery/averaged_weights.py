"""A moving average of the weights; training ends when the held-out loss no longer falls, and the best epoch is kept.

The change: ``FabricModel(…).train(…)`` in place of the loop, with ``early_stopping`` and ``keep_best``. The hook stays:
the average that it holds is found and travels with the training's state.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

EPOCHS, MICRO_BATCH, ENGINES, PATIENCE = 30, 16, 4, 2


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
    FabricModel(model, datasets, functional.cross_entropy, optimizer).train(
        EPOCHS, MICRO_BATCH, ENGINES, early_stopping=PATIENCE, keep_best="val_loss"
    )
    print(f"average: held-out accuracy {accuracy(average, datasets()[1]):.3f}")


if __name__ == "__main__":
    main()
