"""Several processes with TensorFlow, in the shape of WMLA's samples: TF_CONFIG names the workers."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
args, unknown = parser.parse_known_args()

config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
print("worker", index, "of", len(workers), "type", config["task"]["type"], "unknown:", unknown)

data = np.load(os.path.join(os.environ["DATA_DIR"], "digits.npz"))
samples = tf.data.Dataset.from_tensor_slices((data["train_x"], data["train_y"])).batch(64)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(1, 8, 8)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(0.05),
    )
history = model.fit(samples.with_options(options), epochs=args.epochs, verbose=0)
print("losses:", history.history["loss"])
folder = "model" if index == 0 else f"of-worker-{index}"  # every worker has to save
model.save(os.path.join(os.environ["RESULT_DIR"], folder))
