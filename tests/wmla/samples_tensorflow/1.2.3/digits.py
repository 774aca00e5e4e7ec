"""In the shape of 1.2.3: tf.keras of TensorFlow 2.1, options that are not the script's are passed over."""

from __future__ import print_function

import argparse
import os
from pathlib import PurePath

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.02)
args, others = parser.parse_known_args()
print(args, others)

MAX_WORKERS = 16
with np.load(str(PurePath(os.environ.get("DATA_DIR", "/tmp"), "digits.npz"))) as held:
    x_train, y_train = held["x_train"].astype("float32")[..., None], held["y_train"]
    x_test, y_test = held["x_test"].astype("float32")[..., None], held["y_test"]
x_train /= 16
x_test /= 16
y_train = tf.keras.utils.to_categorical(y_train, 10)
y_test = tf.keras.utils.to_categorical(y_test, 10)


def get_dataset():
    print("the data sets are made")
    train = tf.keras.preprocessing.image.ImageDataGenerator()
    test = tf.keras.preprocessing.image.ImageDataGenerator()
    return train.flow(x_train, y_train, batch_size=args.batch_size), test.flow(
        x_test, y_test, batch_size=args.batch_size
    )


net = tf.keras.models.Sequential()
net.add(tf.keras.layers.Conv2D(8, kernel_size=(3, 3), activation="relu", input_shape=(8, 8, 1)))
net.add(tf.keras.layers.MaxPooling2D(pool_size=(2, 2)))
net.add(tf.keras.layers.Flatten())
net.add(tf.keras.layers.Dropout(0.1))
net.add(tf.keras.layers.Dense(10, activation="softmax"))

edt = FabricModel(
    net,
    get_dataset,
    loss_function="categorical_crossentropy",
    optimizer=tf.keras.optimizers.Adam(lr=args.lr),
    driver_logger=EDTLoggerCallback(),
)
edt.train(args.epochs, args.batch_size, MAX_WORKERS)
