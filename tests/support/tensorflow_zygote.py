"""``python -m support.tensorflow_zygote``: warm up as a supervisor does, fork children that train with two threads an
op, and print what was seen as JSON."""

import json
import os
import sys

from edt_contract import processes
from edt_runner.frameworks.tensorflow import FRAMEWORK


def trained() -> str:
    """Digest after three steps of a model large enough for ops to be shared among threads."""
    FRAMEWORK.enter(threads=2, seed=0)
    import keras
    import numpy as np
    from keras import layers

    from edt_runner.seeds import seed_python
    from support.sides import adapter_of, step

    seed_python(0)
    net = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(16, 3, padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(256, activation="relu"),
            layers.Dense(10),
        ]
    )
    generator = np.random.default_rng(0)
    batch = generator.standard_normal((16, 32, 32, 3), dtype=np.float32), generator.integers(0, 10, 16)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adapter = adapter_of(net, loss, keras.optimizers.Adam(), ["accuracy"], batch)
    for seed in range(3):
        step(adapter, batch, batch, seed=seed)
    return adapter.digest()


if __name__ == "__main__":
    FRAMEWORK.warm()
    threads, reader_and_writer = processes.threads(), os.pipe()
    for _ in range(2):
        child = os.fork()
        if not child:
            try:
                os.write(reader_and_writer[1], f"{trained()}\n".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    os.close(reader_and_writer[1])
    digests = os.read(reader_and_writer[0], 10_000).decode().split()
    json.dump({"threads": threads, "digests": digests}, sys.stdout)
