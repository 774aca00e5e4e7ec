"""A user's main with callbacks of Keras's own, of its own, and of WMLA's form."""

import argparse

import keras
import numpy as np
from keras import layers

from callbacks import Callback
from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--without", default="")
parser.add_argument("--stops", action="store_true")
options = parser.parse_args()

generator = np.random.default_rng(1)
inputs, targets = generator.standard_normal((44, 6), np.float32), generator.integers(0, 3, 44)
held_out = (generator.standard_normal((30, 6), np.float32), generator.integers(0, 3, 30))


class Samples:
    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


class EveryOther(Callback):
    """The rate is multiplied, so a hook that ran twice or never would show."""

    def on_epoch_begin(self, epoch):
        if epoch and epoch % 2 == 0:
            self.params["optimizer"].learning_rate = float(self.params["optimizer"].learning_rate) * 0.5
        print(f"hook begin {epoch}", flush=True)

    def on_epoch_end(self, epoch, save_model=False):
        last = epoch == self.params["epochs"] - 1
        print(f"hook end {epoch} saves {save_model} last {last}", flush=True)


class BestOfAll(keras.callbacks.Callback):
    """Remembers the best weights by the validation, goes back to them, and draws random numbers."""

    def on_train_begin(self, logs=None):
        self.best, self.weights, self.logs = np.inf, None, []

    def on_epoch_end(self, epoch, logs=None):
        self.logs.append(logs)
        if logs["val_loss"] < self.best:
            self.best, self.weights = logs["val_loss"], self.model.get_weights()
        elif epoch % 2:
            self.model.set_weights(self.weights)
        weights = self.model.get_weights()
        self.model.set_weights([weight + 1e-3 * np.random.standard_normal(weight.shape) for weight in weights])


callbacks = [
    EveryOther(),
    keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    keras.callbacks.ReduceLROnPlateau("loss", factor=0.7, patience=1, min_delta=0.02),
    BestOfAll(),
]
if options.stops:
    # patience 0 and a measure that cannot improve: it stops after the second epoch, and goes back to the first one's
    callbacks = [
        keras.callbacks.EarlyStopping("loss", min_delta=100, mode="min", restore_best_weights=True),
        EveryOther(),
    ]
net = keras.Sequential(
    [
        keras.Input((6,)),
        layers.Dense(8),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Dropout(0.2),
        layers.Dense(3),
    ]
)
FabricModel(
    net,
    lambda: (Samples(inputs, targets), Samples(*held_out)),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    keras.optimizers.SGD(0.2, momentum=0.8),
    metrics=["accuracy"],
    worker_logger_callback=Gate.from_environment(),
    user_callback=[callback for callback in callbacks if type(callback).__name__ not in options.without.split(",")],
).train(options.epochs, 4, 4, checkpoint_freq=2)
