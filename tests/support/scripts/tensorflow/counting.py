"""The counting model: one weight a sample, moved by each sample that is trained on.

The loss of a step is minus the mean of its samples' weights, so SGD with learning rate 1 adds 1 / (samples of the
step) to each of them: a lost or repeated sample shows in its own weight.
"""

import argparse

import keras
import numpy as np

from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=61)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--batch", type=int, default=2)
options = parser.parse_args()


class Counting(keras.Model):
    def __init__(self):
        super().__init__(dtype="float64")
        self.weight = self.add_weight(shape=(options.samples,), initializer="zeros", name="weight")

    def call(self, indices):
        return keras.ops.take(self.weight, indices)


class Indices:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.int64(index), np.int64(index)


FabricModel(
    Counting(),
    lambda: (Indices(options.samples), Indices(5)),
    lambda targets, outputs: -outputs,
    keras.optimizers.SGD(1.0),
    worker_logger_callback=Gate.from_environment(),
).train(options.epochs, options.batch, options.workers, checkpoint_freq=0)
