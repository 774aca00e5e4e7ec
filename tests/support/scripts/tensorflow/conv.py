"""A user's main: convolution, batch normalization, dropout, Adam; a data set that leaves an uneven last step."""

import argparse

import keras
import numpy as np
from keras import layers

from edt_runner.lr_scaling.rules import AdaScale
from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=237)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--loaders", type=int, default=0)
parser.add_argument("--reduction", default="exact")
parser.add_argument("--recovery", type=float, default=10.0)
parser.add_argument("--scaling", default="fixed")
parser.add_argument("--rule")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--require-exact", action="store_true")
parser.add_argument("--audit", type=int, help="training steps from one audit to the next")
options = parser.parse_args()
if options.rule == "adascale":
    options.rule = AdaScale(base="micro_batch")  # its gain is above 1 in every step


class Noisy:
    """Augments with the global generators: the same whatever process loads it."""

    def __init__(self, count):
        generator = np.random.default_rng(1)
        self.images = generator.standard_normal((count, 8, 8, 1), dtype=np.float32)
        self.targets = generator.integers(0, 5, count)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index] + 0.1 * np.random.standard_normal((8, 8, 1)), self.targets[index]


net = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(6, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dropout(0.25),
        layers.Dense(5),
    ]
)
FabricModel(
    net,
    lambda: (Noisy(options.samples), Noisy(37)),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    keras.optimizers.Adam(options.lr),
    metrics=["accuracy"],
    worker_logger_callback=Gate.from_environment(),
).train(
    options.epochs,
    options.batch,
    options.workers,
    options.loaders,
    reduction=options.reduction,
    recovery_interval=options.recovery,
    batch_scaling=options.scaling,
    lr_rule=options.rule,
    require_exact=options.require_exact,
    audit_interval=options.audit,
)
print("the code behind train() runs once")
