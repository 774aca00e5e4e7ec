"""A user's main with Run:AI's names: without a platform on one device, then on two; in a job on its engines."""

import sys
from pathlib import Path

import numpy as np

import runai.elastic.keras
from edt_runner import context

alone = context.current() is None
GPUS = 2
runai.elastic.keras.init(global_batch_size=20, max_gpu_batch_size=7, gpus=GPUS)
generator = np.random.RandomState(np.random.randint(1 << 30))  # what is drawn must be the same in all processes
inputs = generator.standard_normal((50, 3)).astype("float32")
targets = generator.standard_normal((50, 1)).astype("float32")

import keras  # noqa: E402 - after init, where it may be, too


def net():
    keras.utils.set_random_seed(1)
    layers = keras.layers
    net = keras.Sequential([keras.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    return runai.elastic.keras.models.Model(net)


class Sees(keras.callbacks.Callback):
    """What an engine is told of the job it is in."""

    def on_epoch_end(self, epoch, logs=None):
        with Path("seen").open("a") as file:
            print(runai.elastic.gpus, runai.elastic.steps, file=file)


def train(model):
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), loss="mse", metrics=["mae"])
    history = model.fit(
        inputs,
        targets,
        batch_size=runai.elastic.batch_size,
        epochs=2,
        verbose=0,
        shuffle=False,
        validation_data=(inputs[:9], targets[:9]),
        callbacks=[Sees()],
    )
    return history.history, model.get_weights()


found = {"inputs": inputs, "targets": targets}
first = net().get_weights()
if alone:
    runai.elastic.keras.init(global_batch_size=20, max_gpu_batch_size=7, gpus=1)
    history, weights = train(net())
    assert "torch" not in sys.modules, "one device needs no engine"
    found |= {f"alone{index}": weight for index, weight in enumerate(weights)}
    found |= {f"alone.{name}": values for name, values in history.items()}
    runai.elastic.keras.init(global_batch_size=20, max_gpu_batch_size=7, gpus=GPUS)
model = net()
history, weights = train(model)
assert runai.elastic.master and model.history.history == history
score = model.evaluate(inputs, targets, verbose=0)
found |= {f"first{index}": weight for index, weight in enumerate(first)}
found |= {f"engines{index}": weight for index, weight in enumerate(weights)}
found |= {f"engines.{name}": values for name, values in history.items()}
np.savez(Path("found.npz"), steps=runai.elastic.steps, batch_size=runai.elastic.batch_size, score=score, **found)
try:
    train(net())
except ValueError as error:
    print(error)
