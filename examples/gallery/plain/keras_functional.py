"""A functional Keras model: a learning rate that falls along a cosine, and gradients clipped by their norm."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

keras = tf.keras

EPOCHS, BATCH = 8, 64


def datasets():
    """(images, targets) for training, and held out."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, targets = digits.images.astype("float32")[order, ..., None] / 16, digits.target[order]
    return (images[:-360], targets[:-360]), (images[-360:], targets[-360:])


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
    steps = EPOCHS * -(-len(train_set[0]) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(5e-3, steps)
    optimizer = keras.optimizers.Adam(rate, clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(*train_set, BATCH, EPOCHS, verbose=0)
    accuracy = (model.predict(held_out[0], verbose=0).argmax(1) == held_out[1]).mean()
    print(f"held-out accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
