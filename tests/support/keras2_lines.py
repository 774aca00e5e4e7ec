"""Lines of scripts, tried in a process of their own: ``python -m support.keras2_lines FILE`` writes, as JSON, what each
raised (None: nothing) and what hint it got, with whichever Keras TF_USE_LEGACY_KERAS gives to this process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

MODEL = """
m = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
m.compile("sgd", "mse")
one = np.ones((1, 2)), np.ones((1, 1))
"""

OF_KERAS_2 = (
    "tf.keras.optimizers.SGD(lr=0.1)",
    "from tensorflow.keras.optimizers import Adam; Adam(lr=1e-3, clipnorm=1.0)",
    "tf.keras.optimizers.legacy.SGD(0.1, decay=1e-6)",
    "from tensorflow.keras.layers.experimental import preprocessing",
    "tf.keras.layers.experimental.preprocessing.Rescaling(1 / 255)",
    "tf.keras.experimental.CosineDecay(0.1, 10)",
    "from tensorflow.keras.models import model_from_yaml",
    "from tensorflow.keras import backend as K; K.set_learning_phase(1)",
    "tf.keras.losses.mean_squared_error(np.ones(2), np.ones(2))",
    "tf.keras.metrics.Accuracy().reset_states()",
    "tf.keras.losses.MeanSquaredError(reduction='auto')",
    "tf.keras.layers.LocallyConnected2D(3, 3)",
    "tf.keras.layers.BatchNormalization(fused=True)",
    "tf.keras.layers.Dense(1, weights=[np.ones((2, 1)), np.ones(1)])",
    "tf.keras.regularizers.l2(l=0.1)",
    "tf.keras.utils.OrderedEnqueuer",
    "tf.keras.callbacks.ModelCheckpoint('best.hdf5', period=1)",
    "tf.keras.callbacks.ModelCheckpoint('best.ckpt')",
    "tf.keras.callbacks.TensorBoard(write_grads=True)",
    "x = tf.keras.Input((2,)); tf.keras.Model(x, tf.nn.relu(x))",
    "tf.keras.Input(tensor=tf.ones((2, 2)))",
    "tf.keras.layers.Layer().add_weight('w', shape=(2,))",
    f"{MODEL}m.fit_generator(iter([one]), steps_per_epoch=1, verbose=0)",
    f"{MODEL}m.fit(*one, workers=2, use_multiprocessing=False, verbose=0)",
    f"{MODEL}m.optimizer.lr",
    f"{MODEL}m.layers[0].output_shape",
    f"{MODEL}m.save('folder')",
    f"{MODEL}m.save_weights('weights')",
    "from keras.preprocessing.image import ImageDataGenerator",
    "import keras; keras.optimizers.Adam(lr=0.001)",
    "from keras.layers.core import Dense, Dropout; from keras.layers.convolutional import Conv2D, MaxPooling2D",
    "from keras.utils import np_utils; np_utils.to_categorical([1, 0], 2)",
    "import keras.utils.np_utils",
    "from keras.layers.advanced_activations import LeakyReLU",
    "from keras.layers.normalization import BatchNormalization",
    "from keras.engine.topology import Layer, InputSpec",
    "from keras.engine import Layer",
    "from keras.engine.training import Model",
    "import os; open('here', 'w').close(); tf.keras.utils.get_file(os.path.abspath('here'), 'http://127.0.0.1:1/here')",
    "from keras.layers import Dense; assert Dense is tf.keras.layers.Dense",
    "from keras.layers.core import Dense; assert Dense is tf.keras.layers.Dense",
    "from keras.optimizers import Adam; assert abs(float(Adam(lr=0.01).lr) - 0.01) < 1e-6",
    "assert tf.keras.optimizers.SGD(0.1, decay=0.5, momentum=0.9, nesterov=True)._decayed_lr('float32') is not None",
    "import keras, keras.engine; assert keras.layers.Dense.__module__.startswith('tf_keras.')",
)
"""What worked while Keras was Keras 2."""

OF_TENSORFLOW_1 = (
    "tf.Session(config=tf.ConfigProto())",
    "tf.set_random_seed(1)",
    "from tensorflow.contrib import layers",
    "from keras import backend as K; K.set_session(None)",
)
"""What no TensorFlow 2 has."""

OF_THE_PRIVATE_COPY = (
    "from tensorflow.python.keras.models import Sequential; import fabric_model\n"
    "fabric_model.FabricModel(Sequential(), list, 'mse', 'sgd')"
)
"""TensorFlow's own old copy of Keras, which many scripts of Keras 2's time name."""

WRONG_IN_BOTH = (
    "(lambda: None)(workers=2)",
    "(lambda: None)(batch_size=2)",
    "tf.keras.layers.CuDNNGRUU(3)",
    "from tensorflow.keras.layers import Densest",
    "from tensorflow.keras.wrappers.scikit_learn import KerasClassifier",
    "tf.keras.optimizers.SGD(momentom=0.9)",
    "tf.keras.layers.Dense(1, unitz=3)",
    f"{MODEL}m.fit_generaator()",
    f"{MODEL}m.fit(*one, epoch=1)",
    f"{MODEL}m.optimizer.learning",
    "np.ones(3).lr",
    "import nothing_of_the_kind",
    "raise ValueError('the data are not there')",
    "{}['lr']",
)
"""Mistakes, and what even the Keras 2 of today no longer has."""


def main(answer: Path) -> None:
    import numpy as np
    import tensorflow as tf

    from edt_contract.frameworks import keras2
    from edt_runner.frameworks.tensorflow import keras2_names, keras2_scripts

    if keras2():
        keras2_names.call_it_keras()
        keras2_names.accept_lr()
    outcomes: dict[str, tuple[str | None, str | None]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for line in (*OF_KERAS_2, *OF_TENSORFLOW_1, OF_THE_PRIVATE_COPY, *WRONG_IN_BOTH):
            try:
                exec(line, {"tf": tf, "np": np})  # noqa: S102 - that is the test
            except Exception as error:
                outcomes[line] = (f"{type(error).__name__}: {error}", keras2_scripts.hint(error))
            else:
                outcomes[line] = (None, None)
        os.chdir("/")
    answer.write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
