"""A user's main for the compose test: handwritten digits, slow until the test puts a file into the data folder."""

import argparse
import os
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--until", required=True, help="name of that file")
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()


class Slow:
    """A worker logger that rests after each step."""

    def __init__(self, until):
        self._until = until

    def on_train_begin(self): ...

    def on_train_end(self): ...

    def log_train_metrics(self, metrics, iteration, epoch, workers):
        if not self._until.exists():
            time.sleep(0.1 if iteration < 50 else 0.3)  # there are steps enough for a machine that takes its time

    def log_test_metrics(self, metrics, iteration, epoch): ...


digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
targets = torch.tensor(digits.target)
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
FabricModel(
    net,
    lambda: (TensorDataset(images[:1437], targets[:1437]), TensorDataset(images[1437:], targets[1437:])),
    nn.functional.cross_entropy,
    torch.optim.Adam(net.parameters(), 1e-2),
    worker_logger_callback=Slow(Path(os.environ["DLI_DATA_FS"]) / options.until),
).train(options.epochs, 4, 4)
