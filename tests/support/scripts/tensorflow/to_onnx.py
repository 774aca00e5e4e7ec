"""A user's main that wants an ONNX file."""

import numpy as np
import tensorflow as tf

from fabric_model import FabricModel

random = np.random.default_rng(1)
train = random.standard_normal((40, 6), dtype=np.float32), random.integers(0, 3, 40)
net = tf.keras.Sequential(
    [
        tf.keras.Input((6,)),
        tf.keras.layers.Dense(8),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dropout(0.2),
        tf.keras.layers.Dense(3, activation="softmax"),
    ]
)
FabricModel(net, lambda: (train, None), "sparse_categorical_crossentropy", "adam", save_to_onnx=True).train(2, 5, 4)
np.save("outputs.npy", net(train[0], training=False))
print("the code behind train() runs once")
