"""Data and weights that the driver and its engines draw alike, if the script seeds nothing. Room: runners; NumPy.

Engines are seeded before they run the script. The driver of a training without a platform is a process of the user's
own, so it is brought to the same place, save for generators that the script has seeded by then: engines run that, too.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import numpy as np

from edt_runner import environment
from edt_runner.engine import seeds


class Generators:
    """Where Python's and NumPy's global generators stand."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy = _numpy_state()


def as_engines(untouched: Generators) -> None:
    """Seed, of both, which still stands at ``untouched``; and leave GPU memory to the engines."""
    # TensorFlow would take all of the first GPU for the model of this process, and an engine is to compute there.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    seed = seeds.process_seed(environment.seed())
    now = Generators()
    if now.python == untouched.python:
        random.seed(seed)
        if (tensorflow := sys.modules.get("tensorflow")) is not None:
            tensorflow.random.set_seed(seed)
    if now.numpy == untouched.numpy:
        np.random.seed(seed & 0xFFFFFFFF)


def _numpy_state() -> tuple[bytes, Any]:
    _, keys, *rest = np.random.get_state(legacy=True)
    return np.asarray(keys).tobytes(), tuple(rest)
