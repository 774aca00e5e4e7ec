"""A user's main that asks for much at once: a layer, a loss and a train_step of its own, float16 with a scaled loss
that overflows, a schedule by steps, two limits on the gradient, a stream as data, and a callback of single steps."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from fabric_model import FabricModel
from support.gate import Gate

parser = argparse.ArgumentParser()
parser.add_argument("--without", default="")
parser.add_argument("--limit", choices=["clipnorm", "global_clipnorm", "clipvalue"], help="the optimizer's own, alone")
options = parser.parse_args()
keras.mixed_precision.set_global_policy("mixed_float16")


class Noisy(layers.Layer):
    """Adds noise, and keeps a mean of what it has seen."""

    def __init__(self, **named):
        super().__init__(**named)
        self.generator = keras.random.SeedGenerator(3)

    def build(self, shape):
        self.seen = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="seen")
        super().build(shape)

    def call(self, x, training=False):
        if training:
            self.seen.assign(0.9 * self.seen + 0.1 * keras.ops.mean(x, axis=0))
            return x + keras.random.normal(keras.ops.shape(x), stddev=0.1, dtype=x.dtype, seed=self.generator)
        return x


class Own(keras.Model):
    def __init__(self, **named):
        super().__init__(**named)
        self.body = keras.Sequential([Noisy(), layers.Dense(8, activation="relu"), layers.BatchNormalization()])
        self.last = layers.Dense(3, dtype="float32")
        self.right = keras.metrics.SparseCategoricalAccuracy(name="right")

    def call(self, x, training=False):
        return self.last(self.body(x, training=training))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            scores = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=scores)
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.right.update_state(y, scores)
        return {"loss": loss, "right": self.right.result(), "size": keras.ops.mean(keras.ops.abs(scores))}


def sharp(y_true, y_pred):
    return 2 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


class Steps(keras.callbacks.Callback):
    """Counts steps, and shakes a rate of the optimizer by what it sees."""

    def __init__(self):
        super().__init__()
        self.steps, self.losses = 0, []

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.losses.append(round(logs["loss"], 6))
        kernel = self.model.last.kernel
        kernel.assign(kernel * (1 - 1e-4 * np.random.rand() - 1e-5 * self.steps))
        print(f"step {batch} of {self.params['steps']}: {self.steps}", flush=True)

    def on_test_end(self, logs=None):
        print(f"validated after {self.steps}", flush=True)


generator = np.random.default_rng(1)
inputs, targets = generator.standard_normal((84, 6), np.float32), generator.integers(0, 3, 84)
held_out = tf.data.Dataset.from_tensor_slices((inputs[:20], targets[:20])).batch(7)
scaled = keras.mixed_precision.LossScaleOptimizer(
    keras.optimizers.Adam(0.01, **({options.limit: 0.1} if options.limit else {})),
    initial_scale=2.0**20,
    dynamic_growth_steps=4,
)
asked = {"lr_scheduler": keras.optimizers.schedules.CosineDecay(0.05, 30)}
if not options.limit:
    asked |= {"clip_grad_norm": 0.5, "clip_grad_value": 0.2}
asked.pop(options.without, None)
FabricModel(
    Own(),
    lambda: (tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(8), held_out),
    "sharp",
    scaled,
    metrics=[],
    keras_custom_objects={"Noisy": Noisy, "Own": Own, "sharp": sharp},
    worker_logger_callback=Gate.from_environment(),
    user_callback=None if options.without == "callback" else [Steps()],
).train(
    4,
    3,
    4,
    precision="fp16",
    lr_scheduler_interval="step" if "lr_scheduler" in asked else "epoch",
    **asked,
)
