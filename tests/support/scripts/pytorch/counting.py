"""The counting model: one parameter a sample, moved by each sample that is trained on.

The loss of a step is minus the mean of its samples' parameters, so SGD with lr 1 adds 1 / (samples of the step)
to each of them: a lost or repeated sample shows in its own parameter.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=61)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--batch", type=int, default=2)
options = parser.parse_args()


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(options.samples, dtype=torch.float64))

    def forward(self, indices):
        return self.weight[indices]


def data():
    indices = torch.arange(options.samples)
    return TensorDataset(indices, indices), TensorDataset(indices[:5], indices[:5])


model = Counting()
FabricModel(
    model,
    data,
    lambda outputs, targets: -outputs.mean(),
    torch.optim.SGD(model.parameters(), lr=1.0),
    worker_logger_callback=Gate.from_environment(),
).train(options.epochs, options.batch, options.workers, checkpoint_freq=0)
