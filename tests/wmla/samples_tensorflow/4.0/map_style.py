"""In the shape of 4.0's documentation: Keras 3, a map-style data set, every argument by its keyword."""

import os

import keras
import numpy as np
from callbacks import LoggerCallback
from fabric_model import FabricModel

digits = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))


class Digits:
    def __init__(self, x, y):
        self.x, self.y = np.array(x, dtype="float32") / 16, np.array(y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]

    def __len__(self):
        return len(self.x)


@keras.saving.register_keras_serializable("digits")
class Scaled(keras.layers.Layer):
    def call(self, x):
        return x * 2.0 - 1.0


class Watch(LoggerCallback):
    def log_train_metrics(self, metrics, iteration, epoch, workers):
        assert 0.0 <= metrics["accuracy"] <= 1.0

    def log_test_metrics(self, metrics, iteration, epoch):
        assert iteration >= 0


def datasets():
    return Digits(digits["x_train"], digits["y_train"]), Digits(digits["x_test"], digits["y_test"])


def batch(samples):
    x, y = zip(*samples)
    return np.stack(x), np.stack(y)


model = keras.Sequential(
    [
        keras.Input((8, 8)),
        Scaled(),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(10),
    ]
)
edt_model = FabricModel(
    model=model,
    datasets_function=datasets,
    loss_function=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.Adam(learning_rate=0.01),
    metrics=["accuracy"],
    worker_logger_callback=Watch(),
    save_to_onnx=False,
    keras_custom_objects={"Scaled": Scaled},
    fn_batch_collate=batch,
)
edt_model.train(
    epoch_number=4,
    batch_size=32,
    num_dataloader_threads=1,
    validation_freq=1,
    checkpoint_freq=2,
    effective_batch_size=128,
)
