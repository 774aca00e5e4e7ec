"""In the shape of 2.2.0 and 2.3.0: strict about its options, tensorflow.keras by its modules."""

import argparse
import os

import numpy as np
from callbacks import Callback
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from tensorflow.keras.layers import Conv2D, Dense, Flatten, MaxPooling2D
from tensorflow.keras.models import Sequential
from tensorflow.keras.optimizers import RMSprop
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from tensorflow.keras.utils import to_categorical

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.005)
args = parser.parse_args()

data_dir, result_dir = os.environ.get("DATA_DIR", "/tmp"), os.environ.get("RESULT_DIR", "/tmp")
print("data_dir=%s, result_dir=%s" % (data_dir, result_dir))
os.makedirs(data_dir, exist_ok=True)
max_num_workers = 16
digits = np.load(data_dir + "/digits.npz")


def pair(part):
    return digits["x_" + part].reshape(-1, 8, 8, 1) / 16.0, to_categorical(digits["y_" + part], 10)


class Slower(Callback):
    """Halves the learning rate after two epochs."""

    def on_epoch_end(self, epoch, save_model=False):
        if epoch == 1:
            optimizer = self.params["optimizer"]
            optimizer.lr = optimizer.lr * 0.5


def get_dataset():
    images = ImageDataGenerator()
    return (
        images.flow(*pair("train"), batch_size=args.batch_size),
        images.flow(*pair("test"), batch_size=args.batch_size),
    )


model = Sequential(
    [
        Conv2D(8, (3, 3), activation="relu", input_shape=(8, 8, 1)),
        MaxPooling2D((2, 2)),
        Flatten(),
        Dense(10, activation="softmax"),
    ]
)
edt_m = FabricModel(
    model,
    get_dataset,
    loss_function="categorical_crossentropy",
    optimizer=RMSprop(lr=args.lr),
    driver_logger=EDTLoggerCallback(),
    user_callback=[Slower()],
)
edt_m.train(args.epochs, args.batch_size, max_num_workers)
