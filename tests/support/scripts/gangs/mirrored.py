"""Keras 2 under MultiWorkerMirroredStrategy: a straight line through points, by as many workers as TF_CONFIG names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

place = json.loads(os.environ["TF_CONFIG"])
index, workers = place["task"]["index"], len(place["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print(f"worker {index} of {workers}, replicas {strategy.num_replicas_in_sync}, {tf.keras.__name__}", flush=True)

x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
points = tf.data.Dataset.from_tensor_slices((x, 3 * x - 1)).batch(16)
shards = tf.data.Options()
shards.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(points.with_options(shards), epochs=4, verbose=0)
losses = history.history["loss"]
print("losses", " ".join(f"{loss:.4f}" for loss in losses), flush=True)
folder = Path(os.environ["RESULT_DIR"]) / ("model" if index == 0 else f"of-worker-{index}")  # every worker must save
folder.mkdir(exist_ok=True)
model.save(folder / "line.h5")
