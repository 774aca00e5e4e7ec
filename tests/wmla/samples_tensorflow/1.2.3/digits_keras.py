"""In the shape of 1.2.3 with the package keras, as scripts of 2019 import it; images are augmented."""

import os
import sys

sys.path.insert(0, os.path.join(os.getenv("FABRIC_HOME"), "libs", "fabric.zip"))

import keras
import numpy as np
from edtcallback import EDTLoggerCallback
from fabric_model import FabricModel
from keras import backend as K
from keras.layers import Activation, Dense, Flatten
from keras.layers.convolutional import Conv2D, MaxPooling2D
from keras.layers.core import Dropout
from keras.models import Sequential
from keras.optimizers import SGD
from keras.preprocessing.image import ImageDataGenerator
from keras.utils import np_utils

EPOCHS, BATCH, WORKERS = 4, 64, 4
held = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
shape = (1, 8, 8) if K.image_data_format() == "channels_first" else (8, 8, 1)
images = {part: held["x_" + part].reshape((-1,) + shape).astype("float32") / 16 for part in ("train", "test")}
labels = {part: np_utils.to_categorical(held["y_" + part], 10) for part in ("train", "test")}


def get_dataset():
    generator = ImageDataGenerator(width_shift_range=0.1, height_shift_range=0.1, rotation_range=10)
    train = generator.flow(images["train"], labels["train"], batch_size=32)
    return train, ImageDataGenerator().flow(images["test"], labels["test"], batch_size=128, shuffle=False)


model = Sequential()
model.add(Conv2D(8, (3, 3), padding="same", input_shape=shape))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Flatten())
model.add(Dropout(0.1))
model.add(Dense(10))
model.add(Activation("softmax"))

fabric = FabricModel(
    model,
    get_dataset,
    loss_function=keras.losses.categorical_crossentropy,
    optimizer=SGD(lr=0.1, decay=1e-4, momentum=0.9, nesterov=True),
    driver_logger=EDTLoggerCallback(),
)
fabric.train(EPOCHS, BATCH, WORKERS)
