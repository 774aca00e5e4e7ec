"""A Keras model with a layer and a ``train_step`` of its own: it learns to undo noise, and its loss is its own.

The change: ``FabricModel(…).train(…)`` in place of ``compile`` and ``fit``, and ``tf.data`` in place of arrays. The
class keeps its ``train_step``: each micro-batch is given to it, and the sum of the gradients to the optimizer.
"""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from fabric_model import FabricModel

keras = tf.keras

EPOCHS, MICRO_BATCH, ENGINES = 12, 16, 4


@keras.utils.register_keras_serializable("gallery")
class Scaled(keras.layers.Layer):
    """Multiplies by a number that is learned."""

    def build(self, shape):
        self.factor = self.add_weight(name="factor", shape=(), initializer="ones")

    def call(self, values):
        return values * self.factor


@keras.utils.register_keras_serializable("gallery")
class Denoiser(keras.Model):
    """Its first layer adds noise while it trains, and it is judged by the image without noise."""

    def train_step(self, data):
        images, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.abs(self(images, training=True) - images))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}

    def test_step(self, data):
        images, _ = data
        noisy = images + 0.3 * tf.random.stateless_normal(tf.shape(images), seed=(3, 4))
        return {"loss": tf.reduce_mean(tf.abs(self(noisy, training=False) - images))}


def datasets():
    """(images, images) for training, and held out."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    images = digits.data.astype("float32")[order] / 16
    return (images[:-360], images[:-360]), (images[-360:], images[-360:])


def samples():
    return tuple(tf.data.Dataset.from_tensor_slices(each) for each in datasets())


def network():
    images = keras.Input((64,))
    noisy = keras.layers.GaussianNoise(0.3)(images)
    hidden = keras.layers.Dense(96, activation="relu")(noisy)
    return Denoiser(images, Scaled()(keras.layers.Dense(64)(hidden)))


def error(model, images):
    """What is left of the noise, on average, in a pixel from 0 to 1."""
    noisy = images + 0.3 * np.random.default_rng(5).normal(size=images.shape).astype("float32")
    return np.abs(model.predict(noisy, verbose=0) - images).mean()


def main():
    keras.utils.set_random_seed(0)
    model = network()
    optimizer = keras.optimizers.Adam(3e-3)
    FabricModel(model, samples, None, optimizer).train(EPOCHS, MICRO_BATCH, ENGINES)
    print(f"held-out error {error(model, datasets()[1][0]):.3f}")


if __name__ == "__main__":
    main()
