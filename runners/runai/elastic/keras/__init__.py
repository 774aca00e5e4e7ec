"""Elastic batches for Keras 3: ``init``, and ``models.Model`` around a model.

    runai.elastic.keras.init(global_batch_size=256, max_gpu_batch_size=64)
    model = runai.elastic.keras.models.Model(model)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=runai.elastic.batch_size, epochs=3)

On one device, ``fit`` is Keras's own, and computes micro-batches. On several devices, and in a job of OpenEDT, ``fit``
trains on this machine's or the job's engines. Each engine runs the script from the top to ``fit``. Only the first
process, the driver, continues after ``fit``. So a script calls ``fit`` only once in this case, and must make its data
in the same way every time.

``models`` imports Keras. PyTorch is imported only if there are several devices, because engines exchange its tensors.
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
    """The states of Python's and NumPy's global generators."""
    _, keys, *rest = np.random.get_state(legacy=True)
    return random.getstate(), (np.asarray(keys).tobytes(), rest)


def _seed_as_engines() -> None:
    """Seed Python's and NumPy's generators, unless the script has seeded or used them; leave GPU memory to engines.

    The driver and its engines then draw equal data and weights even if the script sets no seed. Engines are seeded
    before they run the script. The driver of a training without a platform is the user's own process, so it is seeded
    here. A generator that the script has seeded by now is left alone, because engines run that code, too.
    """
    # TensorFlow would reserve the whole first GPU for this process's model, but an engine must compute there.
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
"""The generators' states when this module was imported, before the script used or seeded them."""


def __getattr__(name: str) -> Any:
    if name == "models":
        return importlib.import_module(f"{__name__}.models")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init(global_batch_size: int, max_gpu_batch_size: int, gpus: int | None = None) -> None:
    """Divide ``global_batch_size`` samples among ``gpus`` devices and set the attributes of ``runai.elastic``.

    Args:
        global_batch_size: samples of one update.
        max_gpu_batch_size: samples that one device can hold at a time.
        gpus: devices of this machine; None: the GPUs that CUDA_VISIBLE_DEVICES leaves, or this CPU as one. In a job of
            OpenEDT this argument has no effect, and the number of devices is that of the job.

    Raises:
        UsageError: (a ValueError) an argument is wrong; the message names it, what it got and what it takes. Nothing
            is changed then.
    """
    role = context.current()
    if role is None:
        elastic._init(global_batch_size, max_gpu_batch_size, gpus)
        if elastic.gpus > 1:
            _seed_as_engines()
        return
    batch, most = whole("global_batch_size", global_batch_size), whole("max_gpu_batch_size", max_gpu_batch_size)
    # The driver of a training without a platform knew no spec when it made its split; its engines make the same split.
    given = gpus if role.spec.driver == "external" else None
    devices = whole("gpus", gpus) if given is not None else min(role.spec.max_engines, batch)
    elastic._publish(split(batch, most, devices), master=role.role == "driver")
