"""Elastic batches for Keras 3: ``init``, and ``models.Model`` around a model.

    runai.elastic.keras.init(global_batch_size=256, max_gpu_batch_size=64)
    model = runai.elastic.keras.models.Model(model)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=runai.elastic.batch_size, epochs=3)

On one device ``fit`` is Keras's own, in micro-batches. On several, and in a job of OpenEDT, it trains on this machine's
or the job's engines: the script is run from the top to ``fit`` in each of them, and only the first process (the driver)
goes on after it. So a script calls ``fit`` once there, and makes its data before it the same way every time.

Keras is imported by ``models``, PyTorch (whose tensors travel between engines) when there are several devices.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from typing import Any

import numpy as np

from edt_runner import context, environment, seeds
from edt_runner.errors import whole
from runai import elastic
from runai.elastic import split


def _generators() -> tuple[Any, Any]:
    """Where Python's and NumPy's global generators stand."""
    _, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), (np.asarray(keys).tobytes(), rest)


def _seed_as_engines() -> None:
    """Seed whichever of both generators still stands as ``_untouched``; and leave GPU memory to the engines.

    So the driver and its engines draw data and weights alike, if the script seeds nothing. Engines are seeded before
    they run the script. The driver of a training without a platform is a process of the user's own, so it is brought to
    the same place, save for generators that the script has seeded by then: engines run that, too.
    """
    # TensorFlow would take all of the first GPU for the model of this process, and an engine is to compute there.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    seed = seeds.process_seed(environment.seed())
    python, numpy = (now == then for now, then in zip(_generators(), _untouched, strict=True))
    if python:
        random.seed(seed)
        if (tensorflow := sys.modules.get("tensorflow")) is not None:
            tensorflow.random.set_seed(seed)
    if numpy:
        np.random.seed(seed & 0xFFFFFFFF)


_untouched = _generators()
"""As they were when this module was imported, before the script drew or seeded."""


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module(f"{__name__}.models")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Spread ``global_batch_size`` samples over ``gpus`` devices and set the attributes of ``runai.elastic``.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one device can hold at a time.
        gpus: devices of this machine; None: the GPUs that CUDA_VISIBLE_DEVICES leaves, or this CPU as one. In a job of
            OpenEDT it is what the job has, whatever is given here.

    Raises:
        UsageError: (a ValueError) naming the argument, what it got and what it takes; nothing is changed then.
    """
    role = context.current()
    if role is None:
        elastic._init(global_batch_size, max_gpu_batch_size, gpus)
        if elastic.gpus > 1:
            _seed_as_engines()
        return
    batch, most = whole("global_batch_size", global_batch_size), whole("max_gpu_batch_size", max_gpu_batch_size)
    # Engines of a training without a platform split as their driver did, which knows no spec.
    given = gpus if role.spec.driver == "external" else None
    devices = whole("gpus", gpus) if given is not None else min(role.spec.max_engines, batch)
    elastic._publish(split(batch, most, devices), master=role.role == "driver")
