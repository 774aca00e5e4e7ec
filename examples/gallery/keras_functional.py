"""A functional Keras model: a learning rate that falls along a cosine, and gradients clipped by their norm.

The change: ``FabricModel(…).train(…)`` in place of ``compile`` and ``fit``, and ``tf.data`` in place of arrays. The
schedule and ``clipnorm`` stay the optimizer's; the gradient that is clipped is the sum over all engines.
"""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from fabric_model import FabricModel

keras = tf.keras

EPOCHS, MICRO_BATCH, ENGINES = 8, 16, 4


def datasets():
    """(images, targets) for training, and held out."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, targets = digits.images.astype("float32")[order, ..., None] / 16, digits.target[order]
    return (images[:-360], targets[:-360]), (images[-360:], targets[-360:])


def samples():
    return tuple(tf.data.Dataset.from_tensor_slices(each) for each in datasets())


def network():
    """Two branches that meet."""
    images = keras.Input((8, 8, 1))
    seen = keras.layers.Conv2D(12, 3, activation="relu")(images)
    seen = keras.layers.Flatten()(seen)
    flat = keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(images))
    both = keras.layers.Dropout(0.1)(keras.layers.Concatenate()([seen, flat]))
    return keras.Model(images, keras.layers.Dense(10)(both))


def main():
    keras.utils.set_random_seed(0)
    model = network()
    train_set, held_out = datasets()
    steps = EPOCHS * -(-len(train_set[0]) // (MICRO_BATCH * ENGINES))
    rate = keras.optimizers.schedules.CosineDecay(5e-3, steps)
    optimizer = keras.optimizers.Adam(rate, clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    FabricModel(model, samples, loss, optimizer, metrics=["accuracy"]).train(EPOCHS, MICRO_BATCH, ENGINES)
    accuracy = (model.predict(held_out[0], verbose=0).argmax(1) == held_out[1]).mean()
    print(f"held-out accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
