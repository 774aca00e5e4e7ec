"""One process with TensorFlow, in the shape of WMLA's samples: it makes RESULT_DIR/model itself."""

import os

import numpy as np
import tensorflow as tf

data = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
model = tf.keras.Sequential(
    [
        tf.keras.Input(shape=(1, 8, 8)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(data["train_x"], data["train_y"], batch_size=32, epochs=3, verbose=2)
place = os.path.join(os.environ["RESULT_DIR"], "model")
os.mkdir(place)
model.save(os.path.join(place, "digits.keras"))
print("Saved in", place)
