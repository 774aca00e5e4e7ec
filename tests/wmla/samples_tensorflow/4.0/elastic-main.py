"""In the shape of 4.0's sample: a legacy optimizer with lr, and a logger of 4.0 by the keyword of 1.2."""

import argparse
import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

digits = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
x_train, x_test = (digits[name].reshape(-1, 8, 8, 1).astype("float32") / 16 for name in ("x_train", "x_test"))
y_train, y_test = (tf.keras.utils.to_categorical(digits[name], 10) for name in ("y_train", "y_test"))


def get_dataset():
    generator = tf.keras.preprocessing.image.ImageDataGenerator()
    return generator.flow(x_train, y_train, batch_size=args.batch_size), generator.flow(
        x_test, y_test, batch_size=args.batch_size
    )


inputs = tf.keras.Input((8, 8, 1))
hidden = tf.keras.layers.Conv2D(8, 3, activation="relu")(inputs)
hidden = tf.keras.layers.Flatten()(tf.keras.layers.MaxPooling2D()(hidden))
model = tf.keras.Model(inputs, tf.keras.layers.Dense(10, activation="softmax")(hidden))
FabricModel(
    model,
    get_dataset,
    loss_function="categorical_crossentropy",
    optimizer=tf.keras.optimizers.legacy.Adam(lr=args.lr),
    driver_logger=EDTLoggerCallback(),
).train(args.epochs, args.batch_size, 16)
