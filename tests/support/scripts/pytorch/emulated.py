"""A user's main whose batch may follow the engines: two clouds of points, batch normalization, dropout, momentum."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=90)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--scaling", default="fixed")
parser.add_argument("--rule")
options = parser.parse_args()

BATCH, REFERENCE, LEARNING_RATE = 4, 8, 0.05


def points(count, seed):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % 2
    return TensorDataset(torch.randn(count, 3, generator=generator) + 3.0 * targets[:, None], targets)


net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
FabricModel(
    net,
    lambda: (points(options.samples, 1), points(30, 2)),
    F.cross_entropy,
    torch.optim.SGD(net.parameters(), LEARNING_RATE, momentum=0.9),
    worker_logger_callback=Gate.from_environment(),
).train(
    options.epochs,
    BATCH,
    REFERENCE // BATCH,
    checkpoint_freq=0,
    batch_scaling=options.scaling,
    lr_rule=options.rule,
)
